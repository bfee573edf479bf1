import { readFileSync } from 'node:fs';
import { join, posix, resolve } from 'node:path';
import { defineConfig } from 'vitepress';
import { doors } from '../prepare/api.js';
import { sitePath } from '../prepare/places.js';

const root = resolve(import.meta.dirname, '../..');

/** Pages in the groups and in the order in which docs/README.md names them, each once. */
function documentation() {
  const index = readFileSync(join(root, 'docs/README.md'), 'utf8');
  const known = new Set<string>();
  return index.split(/^## /m).flatMap((section) => {
    const items: { text: string; link: string }[] = [];
    for (const [, text, to] of section.matchAll(/^- .* \[([^\]]+)\]\(([^)#]+)\)$/gm)) {
      const page = sitePath(posix.join('docs', to!));
      if (page === null || known.has(page)) continue;
      known.add(page);
      const link = `/${page.replace(/(index)?\.md$/, '')}`;
      items.push({ text: text!.replace(/^./, (letter) => letter.toUpperCase()), link });
    }
    return items.length === 0 ? [] : [{ text: section.slice(0, section.indexOf('\n')), items }];
  });
}

const guide = documentation();
const icon = readFileSync(join(root, 'site/icon.svg'), 'utf8');
const api = [
  {
    text: 'API reference',
    link: '/api/',
    items: doors(root).map(({ name, page }) => ({ text: name, link: `/${page.replace(/\.md$/, '')}` })),
  },
];

export default defineConfig({
  title: 'Heddle',
  description: 'A race detector for multi-GPU kernels, and Mixture-of-Experts dispatch and combine',
  lang: 'en',
  srcDir: '.pages',
  outDir: './dist',
  cacheDir: './.cache',
  // In the page itself: a path here would not follow --base.
  head: [['link', { rel: 'icon', href: `data:image/svg+xml,${encodeURIComponent(icon)}` }]],
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
