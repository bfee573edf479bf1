/** The playground's picture for README, of the built site: `npm run site && npx tsx site/picture.ts`. */
import { resolve } from 'node:path';
import { openBrowser, serve } from './test/browser.js';

const [browser, site] = await Promise.all([openBrowser(), serve()]);
const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
await page.goto(`${site.url}/playground#missing-acquire`);
await page.locator('.pg-verdict.pg-wrong').waitFor();
await page.screenshot({ path: resolve(import.meta.dirname, '../docs/playground.png') });
await browser.close();
site.close();
