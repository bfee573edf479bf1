import { readFileSync } from 'node:fs';
import { join, posix, resolve } from 'node:path';
import { defineConfig } from 'vitepress';
import { doors } from '../prepare/api.js';
import { sitePath } from '../prepare/places.js';

const root = resolve(import.meta.dirname, '../..');

/** Pages in the order in which docs/README.md names them, each once. */
function documentation() {
  const index = readFileSync(join(root, 'docs/README.md'), 'utf8');
  const pages = new Map<string, string>();
  for (const [, text, link] of index.matchAll(/^\|.*\| \[([^\]]+)\]\(([^)#]+)\) \|$/gm)) {
    const page = sitePath(posix.join('docs', link!));
    if (page !== null && !pages.has(page))
      pages.set(
        page,
        text!.replace(/^./, (letter) => letter.toUpperCase()),
      );
  }
  return [...pages].map(([page, text]) => ({ text, link: `/${page.replace(/(index)?\.md$/, '')}` }));
}

const guide = [{ text: 'Documentation', items: documentation() }];
const api = [
  {
    text: 'API reference',
    link: '/api/',
    items: doors(root).map(({ name, page }) => ({ text: name, link: `/${page.replace(/\.md$/, '')}` })),
  },
];

export default defineConfig({
  title: 'Heddle',
  description: 'Mixture-of-Experts dispatch and combine, in TypeScript from the API to the GPU warp',
  lang: 'en',
  srcDir: '.pages',
  outDir: './dist',
  cacheDir: './.cache',
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  lastUpdated: false,
  markdown: {
    theme: { light: 'github-light', dark: 'github-dark' },
    // As GitHub makes them, so that one link serves both.
    anchor: {
      slugify: (heading) =>
        heading
          .toLowerCase()
          .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
          .trim()
          .replaceAll(' ', '-'),
    },
  },
  themeConfig: {
    nav: [
      { text: 'Documentation', link: '/docs/', activeMatch: '^/(docs|contributing|source)' },
      { text: 'API', link: '/api/', activeMatch: '^/api' },
      { text: 'Playground', link: '/playground' },
    ],
    sidebar: { '/api/': api, '/': guide },
    outline: { level: [2, 3] },
    search: { provider: 'local' },
  },
  vite: {
    // Sources are shared with the repository around the site.
    server: { fs: { allow: [root] } },
    worker: { format: 'es' },
  },
});
