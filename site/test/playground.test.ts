/** The playground in a browser: what it finds, shows and says, and how soon. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { programs } from '../../test/gpu/sim/gallery/programs.js';
import { needing } from '../../test/needs.js';
import { complaintsOf, openBrowser, type Served, serve } from './browser.js';

const soon = 2;

describe('the playground', needing('chromium'), () => {
  let browser: Browser;
  let page: Page;
  let site: Served;
  let complaints: string[];
  beforeAll(async () => {
    [browser, site] = await Promise.all([openBrowser(), serve()]);
  });
  afterAll(async () => {
    await browser.close();
    site.close();
  });
  beforeEach(async () => {
    await page?.close();
    page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
    complaints = complaintsOf(page);
  });

  const open = async (file: string): Promise<void> => {
    await page.goto(`${site.url}/playground#${file.replace('.ts', '')}`);
    await verdict();
  };
  /** What it says once it has checked. */
  const verdict = async (): Promise<string> => {
    const said = page.locator('.pg-verdict.pg-wrong, .pg-verdict.pg-clean');
    await said.waitFor();
    return (await said.textContent())!;
  };
  const secondsOf = (text: string): number => Number(/([\d.]+) s\.$/.exec(text)![1]);
  const marked = (): Promise<string[]> => page.locator('.cm-line.pg-wrong').allTextContents();

  test('a finding shows the mend that was tried', async () => {
    await open('missing-acquire.ts');
    const said = await page.locator('.pg-findings button').first().textContent();
    expect(said).toContain("tried: with g.fence('sys') after missing-acquire.ts:");
  });

  test.each(programs)('$file: found soon, with its lines, and silent once mended', async (shown) => {
    await open(shown.file);
    let found = await verdict();
    // Something else may have had the processor meanwhile: one of a few checks is to be soon.
    for (let more = 2; more > 0 && secondsOf(found) >= soon; more--) {
      await page.locator('.pg-check').click();
      found = await verdict();
    }
    expect(found).toMatch(/found in /);
    expect(secondsOf(found)).toBeLessThan(soon);
    // One of what it found in that schedule; each is shown when it is chosen.
    const all: string[][] = [];
    for (const finding of await page.locator('.pg-findings button').all()) {
      await finding.click();
      all.push((await marked()).map((line) => line.trim()));
    }
    const { lines } = shown.expect;
    const pointed = all.some((at) => lines.every((start) => at.some((line) => line.startsWith(start))));
    expect(pointed, JSON.stringify(all)).toBe(true);
    await page.locator('#pg-mend').check();
    expect(await verdict()).toMatch(/^Nothing found in \d+ schedules/);
    expect(await marked()).toEqual([]);
    expect(complaints).toEqual([]);
  });

  test('steps through the schedule to the race, and says who does what', async () => {
    await open('missing-acquire.ts');
    expect(await page.locator('.pg-racing').count()).toBe(2);
    const told = page.locator('.pg-told');
    const last = await told.textContent();
    expect(last).toMatch(/^Step \d+ of \d+: thread \d+ of block 0 on rank 1 reads window, data\[\d+\]\.$/);
    const step = Number(/\d+/.exec(last!)![0]);
    await page.getByLabel('Step back').click();
    expect(await told.textContent()).toContain(`Step ${step - 1} of `);
    await page.locator('.pg-mark.pg-strong.pg-read').first().click();
    expect(await told.textContent()).toMatch(
      /reads window, arrived\[0\], relaxed at sys scope; sees what rank 0, block 0, thread 0 stored at step \d+\.$/,
    );
    expect(await page.locator('.cm-line.pg-step').textContent()).toContain('g.awaitEpoch(there.arrived');
  });

  test('shows the CUDA of every kernel', async () => {
    await open('missing-acquire.ts');
    const cuda = page.locator('.pg-cuda pre');
    expect(await cuda.textContent()).toMatch(/extern "C" __global__(.|\n)*\bpost\w*\(/);
  });

  test('shows no CUDA but that of the text above', async () => {
    await open('missing-acquire.ts');
    const cuda = page.locator('.pg-cuda');
    expect(await cuda.isVisible()).toBe(true);
    await page.locator('.cm-content').fill('const = 3;');
    expect(await cuda.isVisible()).toBe(false);
    await page.locator('.pg-check').click();
    await page.getByText('This is no program yet.').waitFor();
    expect([await cuda.isVisible(), await cuda.textContent()]).toEqual([false, '']);
    expect(await page.locator('.pg-findings button, .pg-mark').count()).toBe(0);
    expect(await page.locator('.pg-schedule').isVisible()).toBe(false);
  });

  test('stops a check, and begins another', async () => {
    await open('missing-acquire.ts');
    const stop = page.locator('.pg-stop');
    expect(await stop.isVisible()).toBe(false);
    const endless =
      "import { run } from 'heddle/playground';\nrun({ ranks: 1 }, async () => { while (true); });\n";
    await page.locator('.cm-content').fill(endless);
    await page.locator('.pg-check').click();
    await stop.click();
    expect(await page.locator('.pg-verdict').textContent()).toBe('Stopped: press Check to begin again.');
    expect(await stop.isVisible()).toBe(false);
    await page.locator('.pg-original').click();
    expect(await verdict()).toMatch(/^A data race/);
    expect(complaints).toEqual([]);
  });

  test('keeps what the visitor wrote, for each program, until it is dropped', async () => {
    await open('missing-acquire.ts');
    const [editor, original] = [page.locator('.cm-content'), page.locator('.pg-original')];
    expect(await original.isVisible()).toBe(false);
    await editor.fill('const = 3;');
    await page.reload();
    await page.getByText('This is no program yet.').waitFor();
    expect(await editor.textContent()).toBe('const = 3;');
    await page.getByLabel('Exhibit').selectOption('narrow-release.ts');
    expect(await verdict()).toMatch(/^A data race/);
    expect(await original.isVisible()).toBe(false);
    await page.getByLabel('Exhibit').selectOption('missing-acquire.ts');
    await page.getByText('This is no program yet.').waitFor();
    await original.click();
    expect(await verdict()).toMatch(/^A data race/);
    await page.reload();
    expect(await verdict()).toMatch(/^A data race/);
    expect(complaints).toEqual([]);
  });

  test('checks what the visitor writes', async () => {
    await open('missing-acquire.ts');
    const editor = page.locator('.cm-content');
    const text =
      "import { kernel, pointer } from 'heddle/lang';\nimport { run } from 'heddle/playground';\nconst k = kernel({ name: 'mine', params: { n: pointer('u32') } }, (g, { n }) => {\ng.store(n, g.threadIdx.x as never);\n});\nrun({ ranks: 1 }, async (host: any) => {\nawait host.launch(k, {}, { n: host.buffer('numbers', 4) });\n});\n";
    await editor.fill(text.replace('g.threadIdx.x as never', 'nothing'));
    await page.locator('.pg-verdict', { hasText: 'press Check' }).waitFor();
    await page.locator('.pg-check').click();
    await page.getByText('HK101').waitFor();
    expect(await marked()).toEqual(['g.store(n, nothing);']);
    await editor.fill(text);
    await page.keyboard.press('Control+Enter');
    await page.getByText('Data race on numbers').waitFor();
    expect(await marked()).toEqual(['g.store(n, g.threadIdx.x as never);']);
    await editor.fill('const = 3;');
    await page.locator('.pg-check').click();
    await page.getByText('This is no program yet.').waitFor();
    expect(await marked()).toEqual(['const = 3;']);
    expect(complaints).toEqual([]);
  });
});
