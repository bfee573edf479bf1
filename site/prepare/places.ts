/** The repository's pages beside `docs`, and where they stand in the site. */
const places: Readonly<Record<string, string>> = {
  'README.md': 'index.md',
  'CONTRIBUTING.md': 'contributing.md',
  'CHANGELOG.md': 'changelog.md',
  'SECURITY.md': 'security.md',
  'SKILL.md': 'skill.md',
  'site/playground.md': 'playground.md',
};
export const beside = Object.keys(places);

/** Where a page of the repository stands in the site; null for what is no page of it, but source. */
export function sitePath(path: string): string | null {
  if (path === 'docs/README.md') return 'docs/index.md';
  return places[path] ?? (/^docs\/.*\.md$/.test(path) ? path : null);
}
