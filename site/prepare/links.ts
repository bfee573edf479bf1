/** Replaces the targets of a page's links, but not what stands in blocks of code. */
export function markdownLinks(text: string, to: (link: string) => string): string {
  return text
    .split(/(^```[\s\S]*?^```$)/m)
    .map((part, i) =>
      i % 2 === 1 ? part : part.replaceAll(/\]\(([^)\s]+)\)/g, (_, link: string) => close(to(link))),
    )
    .join('');
}

/** Attributes of a link stand behind it. */
function close(link: string): string {
  const [target, attributes = ''] = link.split(/(?=\{)/);
  return `](${target})${attributes}`;
}
