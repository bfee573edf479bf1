/** The simulator without Node.js: the gallery bundled for browsers, and run in one. */
import { join, resolve } from 'node:path';
import { build } from 'esbuild';
import { describe, expect, test } from 'vitest';
import type { Exhibit } from '../../test/gpu/sim/gallery/exhibit.js';
import { needing } from '../../test/needs.js';
import { openBrowser } from './browser.js';

const root = resolve(import.meta.dirname, '../..');
const soon = 2000;

/** Fails where anything asks for a module of Node.js. */
async function bundle(contents: string) {
  const { outputFiles, metafile } = await build({
    stdin: { contents, resolveDir: join(root, 'test/gpu/sim/gallery'), loader: 'ts' },
    bundle: true,
    write: false,
    metafile: true,
    platform: 'browser',
    format: 'iife',
    globalName: 'bundled',
    logLevel: 'silent',
  });
  return { text: outputFiles[0]!.text, inputs: Object.keys(metafile.inputs) };
}

const gallery = `
  export { findingsOf } from './exhibit.js';
  import { blocks } from './blocks.js';
  import { flags } from './flags.js';
  import { reuse } from './reuse.js';
  import { streams } from './streams.js';
  export const exhibits = [...flags, ...blocks, ...reuse, ...streams];
`;

describe('without Node.js', () => {
  test.each([
    ['lang/index', ['acorn']],
    ['gpu/sim/index', ['acorn']],
    ['gpu/index', []],
    ['base/errors', []],
  ])('src/%s needs nothing but %j', async (door, needs) => {
    const { inputs } = await bundle(`export * from '../../../../src/${door}.js';`);
    const packages = inputs.flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? []);
    expect(new Set(packages)).toEqual(new Set(needs));
  });

  test('what asks for it is noticed', async () => {
    await expect(bundle("export * from 'node:fs';")).rejects.toThrow(/node:fs/);
  });

  test(
    'the gallery is caught in Chromium, each soon, and its corrections are silent',
    needing('chromium'),
    async () => {
      const { text } = await bundle(gallery);
      const browser = await openBrowser();
      const page = await browser.newPage();
      await page.addScriptTag({ content: text });
      const results = await page.evaluate(async (soon) => {
        const { exhibits, findingsOf } = (globalThis as unknown as { bundled: Bundled }).bundled;
        const results = [];
        for (const exhibit of exhibits) {
          let caught = false;
          let milliseconds = Number.POSITIVE_INFINITY;
          // Something else may have had the processor meanwhile: one of a few searches is to be soon.
          for (let search = 0; search < 3 && milliseconds > soon; search++) {
            const begun = performance.now();
            caught = false;
            for (let seed = 0; seed < 20 && !caught; seed++) {
              const findings = await findingsOf(exhibit, 'wrong', seed);
              caught = findings.some(({ kind }) => kind === exhibit.expect.kind);
            }
            milliseconds = performance.now() - begun;
          }
          const silent = (await findingsOf(exhibit, 'right', 0)).length === 0;
          results.push({ name: exhibit.name, caught, silent, milliseconds });
        }
        return results;
      }, soon);
      await browser.close();
      expect(results.length).toBeGreaterThan(20);
      expect(results.filter(({ caught, silent }) => !caught || !silent)).toEqual([]);
      expect(results.filter(({ milliseconds }) => milliseconds > soon)).toEqual([]);
    },
  );
});

interface Bundled {
  readonly exhibits: readonly Exhibit[];
  findingsOf(
    exhibit: Exhibit,
    variant: 'wrong' | 'right',
    seed: number,
  ): Promise<readonly { readonly kind: string }[]>;
}
