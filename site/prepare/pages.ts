/**
 * Lays out the site's pages in `site/.pages`: the repository's own documentation with links that lead within the
 * site, a page for each file of source that it links to, and the API reference. VitePress makes them HTML.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, extname, join, posix, resolve } from 'node:path';
import { apiPages } from './api.js';
import { firstScreen } from './home.js';
import { markdownLinks } from './links.js';
import { beside, sitePath } from './places.js';

export const root = resolve(import.meta.dirname, '../..');
const target = join(root, 'site/.pages');
const publicFolder = join(target, 'public');

const documents = [...beside, ...under('docs').filter((path) => path.endsWith('.md'))];

/** What pages link to that is no page yet, in the order in which it was met. */
const sources = new Set<string>();

/** A link of the repository's page `from`, as the site's page has it. */
function siteLink(from: string, link: string): string {
  if (/^\w+:|^#/.test(link)) return link;
  const [file, hash = ''] = link.split(/(?=#)/);
  const path = posix.normalize(posix.join(posix.dirname(from), file!)).replace(/\/$/, '');
  if (!existsSync(join(root, path))) throw new Error(`${from} links to ${link}, which is not there`);
  const page = sitePath(path);
  if (page !== null) return `/${page}${hash}`;
  if (/\.(png|svg)$/.test(path) || /^docs\/.*\.(html|json|txt)$/.test(path)) {
    const copy = join(publicFolder, path);
    mkdirSync(dirname(copy), { recursive: true });
    cpSync(join(root, path), copy);
    // A page by itself, which VitePress must not take for one of its own.
    return extname(path) === '.png' || extname(path) === '.svg' ? `/${path}` : `/${path}{target="_blank"}`;
  }
  sources.add(path);
  return `/source/${path}.md${hash}`;
}

function write(path: string, text: string): void {
  const file = join(target, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

function document(path: string): void {
  const text = markdownLinks(readFileSync(join(root, path), 'utf8'), (link) => siteLink(path, link));
  // The first page has the name and what it is in its head.
  if (path === 'README.md') write('index.md', `${head()}${first}\n${text.replace(/^# .*\n/, '')}`);
  else write(sitePath(path)!, text);
}

function head(): string {
  const { description } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    description: string;
  };
  const action = (text: string, link: string, theme: string) => ({ text, link, theme });
  const hero = {
    name: 'Heddle',
    tagline: description,
    actions: [
      action('A checked kernel', '/docs/first-kernel.md', 'brand'),
      action('A layer in an engine', '/docs/first-layer.md', 'brand'),
      action('Playground', '/playground.md', 'alt'),
      action('Ten questions', '/docs/index.md', 'alt'),
    ],
  };
  return `---\n${JSON.stringify({ layout: 'home', title: 'Heddle', titleTemplate: ':title', hero })}\n---\n`;
}

/** A file of source, or a folder as the list of its files. */
function source(path: string): void {
  const up = posix.dirname(path);
  const heading = `---\n${JSON.stringify({ search: false, outline: false, editLink: false })}\n---\n# ${posix.basename(path)}\n\n`;
  if (statSync(join(root, path)).isDirectory()) {
    const list = under(path).map((file) => {
      const name = posix.relative(path, file);
      return `- [${name}](${name})`;
    });
    const linked = markdownLinks(list.join('\n'), (link) => siteLink(`${path}/.`, link));
    write(`source/${path}.md`, `${heading}${path}\n\n${linked}\n`);
    return;
  }
  const inFolder = sources.has(up) ? `[${up}](/source/${up}.md)` : up;
  const text = readFileSync(join(root, path), 'utf8').trimEnd();
  const language = { '.ts': 'ts', '.json': 'json', '.md': 'md', '.c': 'c' }[extname(path)] ?? 'txt';
  write(`source/${path}.md`, `${heading}${inFolder}\n\n\`\`\`\`${language}\n${text}\n\`\`\`\`\n`);
}

/** The files in a folder of the repository and below it. */
function under(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => `${folder}/${name}`)
    .filter((path) => statSync(join(root, path)).isFile())
    .sort();
}

rmSync(target, { recursive: true, force: true });
const first = await firstScreen(root);
for (const path of documents) document(path);
// A folder's page adds its files: the set grows while it is walked.
for (const path of sources) source(path);
for (const { path, text } of apiPages(root)) write(path, text);
