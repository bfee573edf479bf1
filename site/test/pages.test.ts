/** Every page opens in a browser without complaint, and every link leads somewhere. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { needing } from '../../test/needs.js';
import { complaintsOf, dist, openBrowser, type Served, serve } from './browser.js';

const firstPageBytes = 500_000;
/** Milliseconds in which a page that has a heading surely shows it. */
const patience = 20_000;
const pages = readdirSync(dist, { recursive: true, encoding: 'utf8' })
  // Reports are pages of their own, which the site only keeps.
  .filter((path) => path.endsWith('.html') && !/^docs\/results\/.*bench/.test(path))
  .sort();

/** The headings and other places of a built page that a link can name. */
const placesOf = (path: string): Set<string> =>
  new Set([...readFileSync(join(dist, path), 'utf8').matchAll(/ id="([^"]+)"/g)].map(([, id]) => id!));

describe('links', () => {
  const known = new Map(pages.map((path) => [`/${path}`, placesOf(path)]));
  const pageOf = (pathname: string): string | undefined =>
    [pathname, `${pathname}.html`, `${pathname}index.html`].find((path) => known.has(path));

  test.each(pages)('%s', (path) => {
    const text = readFileSync(join(dist, path), 'utf8').replaceAll(/<pre[\s\S]*?<\/pre>/g, '');
    const links = [...text.matchAll(/<a [^>]*href="([^"]+)"/g)].map(([, link]) =>
      link!.replaceAll('&amp;', '&'),
    );
    const dead = links.filter((link) => {
      const { hash, host, pathname } = new URL(link, `http://site/${path}`);
      const page = pageOf(pathname);
      if (host !== 'site') return false;
      if (page === undefined) return pathname.endsWith('/') || !existsSync(join(dist, pathname));
      return hash !== '' && !known.get(page)!.has(decodeURIComponent(hash.slice(1)));
    });
    expect([...new Set(dead)]).toEqual([]);
  });
});

test('the first page shows a race, the kernel mended, the chart and both commands', () => {
  const text = readFileSync(join(dist, 'index.html'), 'utf8');
  const parts = [
    /first-wrong[\s\S]*Data race on window, data\[\d+\][\s\S]*first-clean[\s\S]*acquire/,
    /<svg class="first-chart"[\s\S]*<polyline/,
    /first-command.*git clone .* &amp;&amp; cd heddle</,
    /first-command.*npm install &amp;&amp; npm start</,
    /first-command.*npm install &amp;&amp; npm test</,
  ];
  expect(parts.filter((part) => !part.test(text))).toEqual([]);
});

describe('in Chromium', needing('chromium'), () => {
  let browser: Browser;
  let page: Page;
  let site: Served;
  beforeAll(async () => {
    [browser, site] = await Promise.all([openBrowser(), serve()]);
    page = await browser.newPage();
  });
  afterAll(async () => {
    await browser.close();
    site.close();
  });

  /** What the server sent has become the program's, which complains where they differ, and hears keys from now on. */
  const alive = (tab: Page) => tab.waitForFunction(() => '__vue_app__' in document.querySelector('#app')!);

  test('every page opens without complaint, and fits a narrow screen', async () => {
    const wrong: string[] = [];
    const left = pages.filter((name) => name !== '404.html');
    const open = async (): Promise<void> => {
      const tab = await browser.newPage({ viewport: { width: 400, height: 800 } });
      let complaints = complaintsOf(tab);
      for (let path = left.pop(); path !== undefined; path = left.pop()) {
        await tab.goto(`${site.url}/${path}`);
        await alive(tab);
        // The playground's heading comes with its program, which is fetched once the page stands.
        const heading = tab.locator('h1').first().waitFor({ timeout: patience });
        await heading.catch(() => wrong.push(`${path} has no heading`));
        const width = await tab.evaluate(() => document.documentElement.scrollWidth);
        if (width > 400) wrong.push(`${path} is ${width} wide on a screen of 400`);
        wrong.push(...complaints.map((text) => `${path}: ${text}`));
        tab.removeAllListeners();
        complaints = complaintsOf(tab);
      }
      await tab.close();
    };
    await Promise.all([open(), open(), open()]);
    expect(wrong).toEqual([]);
  });

  test('pages are grouped by purpose, and have an icon of their own', async () => {
    const tab = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    await tab.goto(`${site.url}/docs/design`);
    await alive(tab);
    const groups = tab.locator('.VPSidebarItem.level-0');
    expect(await groups.locator('h2').allTextContents()).toEqual([
      'Tutorial',
      'How-to',
      'Reference',
      'Explanation',
    ]);
    expect(await groups.filter({ hasText: 'Explanation' }).locator('a').first().getAttribute('href')).toMatch(
      /\/docs\/design/,
    );
    const icon = await tab.locator('link[rel=icon]').getAttribute('href');
    const drawn = await tab.evaluate(async (source) => {
      const image = new Image();
      image.src = source!;
      await image.decode();
      return image.naturalWidth;
    }, icon);
    expect(drawn).toBeGreaterThan(0);
    await tab.close();
  });

  test('the first page is light', async () => {
    site.sent = 0;
    const fresh = await browser.newPage();
    await fresh.goto(site.url, { waitUntil: 'networkidle' });
    await fresh.close();
    expect(site.sent).toBeLessThan(firstPageBytes);
  });

  test('search finds what a heading and what a text says', async () => {
    await page.setViewportSize({ width: 1400, height: 900 });
    await page.goto(`${site.url}/docs/`);
    await alive(page);
    const box = page.locator('.VPLocalSearchBox');
    for (const [words, link] of [
      ['awaitFilled', '/docs/language'],
      ['ExpertParallel', '/api/heddle'],
    ] as const) {
      await page.keyboard.press('Control+k');
      await box.locator('input').fill(words);
      await box.locator(`a[href^="${link}"]`).first().waitFor();
      await page.keyboard.press('Escape');
      await box.waitFor({ state: 'detached' });
    }
  });
});
