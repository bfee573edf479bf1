/** The five GEMMs of docs/gemm.md: each is right under every schedule tried, and its mistake is found as the page says. */
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type * as Checked from '../../examples/gemm/check.js';
import { configurations } from '../../examples/gemm/check.js';
import { prepare, type Sizes, steps } from '../../examples/gemm/index.js';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { entryName, printCuda } from '../../src/lang/index.js';
import { check, mutantsOf, runOnce, seedOf } from '../../src/verify/check/index.js';
import { compileCuda } from '../lang/cuda/nvcc.js';
import { needing } from '../needs.js';
import { root, tree } from '../tree.js';
import { page } from './markdown.js';

const { text, blocks } = page('docs/gemm.md');

/** How many mutants each step has: the loop has nothing to synchronise. CI shows that the check finds each. */
const synchronising = [0, 2, 12, 15, 23];

test.each(configurations.map((one, step) => ({ name: one.name, one, step })))(
  '$name has no finding, and so many synchronising operations',
  async ({ name, one, step }) => {
    const { findings } = await check([{ name, kernels: [name], configurations: [one] }], { seeds: 1 });
    expect(findings.map(formatFinding)).toEqual([]);
    expect(mutantsOf(steps[step]!.kernel.ir())).toHaveLength(synchronising[step]!);
  },
);

test('a size that is no multiple of its tiles is refused', async () => {
  const device = SimMachine.create({ ranks: 1 }).device(0);
  await expect(prepare(device, steps[1], { a: 0, b: 0, c: 0, m: 128, n: 128, k: 100 })).rejects.toThrow(
    RangeError,
  );
});

describe('nvcc for sm_90a', needing('nvcc'), () => {
  test('compiles them without a warning, a spill or a stack', async () => {
    const modules = steps.map(({ kernel }) => kernel.ir());
    const { kernels, warnings } = await compileCuda(printCuda(modules), 'sm_90a');
    expect(warnings).toEqual([]);
    expect(kernels.map(({ name }) => name).sort()).toEqual(modules.map(entryName).sort());
    expect(kernels.filter(({ spillBytes, stackBytes }) => spillBytes + stackBytes !== 0)).toEqual([]);
  });
});

describe('the mistakes that docs/gemm.md shows', () => {
  /** A change of a file, and behind it the finding. */
  const mistakes = blocks.flatMap(({ language, text: diff, given }, i) =>
    language === 'diff' ? [{ file: given, diff, quote: blocks[i + 1]!.text }] : [],
  );
  let folder = '';
  beforeAll(() => {
    // A package of its own, so that findings name files as the page does; Heddle is what all tests run.
    folder = mkdtempSync(join(tree, 'mistakes-'));
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ type: 'module' }));
    mkdirSync(join(folder, 'node_modules'));
    symlinkSync(tree, join(folder, 'node_modules/heddle'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test('there is one for each step', () => {
    const files = readdirSync(join(root, 'examples/gemm')).filter((name) => /^\d/.test(name));
    expect(mistakes.map(({ file }) => file)).toEqual(files.sort().map((name) => `examples/gemm/${name}`));
  });

  test.each(mistakes.map((mistake, step) => ({ ...mistake, step })))(
    '$file',
    async ({ file, diff, quote, step }) => {
      cpSync(join(root, 'examples'), join(folder, 'examples'), { recursive: true });
      writeFileSync(join(folder, file), changed(readFileSync(join(root, file), 'utf8'), diff));
      await build({
        ...{
          absWorkingDir: folder,
          entryPoints: ['examples/gemm/*.ts'],
          outdir: `mistake-${step}`,
          outbase: '.',
        },
        ...{ format: 'esm', sourcemap: true, logLevel: 'error' },
      });
      const built = join(folder, `mistake-${step}`, 'examples/gemm/check.js');
      const mistaken = (await import(pathToFileURL(built).href)) as typeof Checked;
      const found = new Set<string>();
      for (let n = 0; n < 10 && !found.has(general(quote)); n++) {
        const seed = seedOf(n);
        const { findings } = await runOnce(mistaken.configurations[step]!, {
          ...{ seed, schedule: n % 2 === 0 ? 'random' : 'priority', stepLimit: 3_000_000 },
        });
        for (const finding of findings) found.add(general(formatFinding(finding).replace(/\n.*$/, '')));
      }
      expect([...found]).toContain(general(quote));
    },
  );

  /** Which thread and which element it is depends on the schedule; how lines are broken, on the page. */
  function general(finding: string): string {
    return finding
      .replaceAll(/\bthread \d+/g, 'thread n')
      .replaceAll(/\[\d+\]/g, '[n]')
      .replaceAll(/\s+/g, '');
  }

  /** The text behind a change, whose lines are indented as little as can be. */
  function changed(text: string, diff: string): string {
    const lines = text.split('\n');
    const change = diff.trimEnd().split('\n');
    const side = (other: string) => change.filter((line) => line[0] !== other).map((line) => line.slice(1));
    const [was, is] = [side('+'), side('-')];
    const at = lines.findIndex((_, i) => was.every((line, j) => lines[i + j]?.trim() === line.trim()));
    expect(at, `where the page changes the file:\n${diff}`).toBeGreaterThanOrEqual(0);
    const indent = /^ */.exec(lines[at]!)![0].slice(/^ */.exec(was[0]!)![0].length);
    lines.splice(at, was.length, ...is.map((line) => indent + line));
    return lines.join('\n');
  }
});

describe('figures', () => {
  interface Results {
    readonly sizes: Sizes;
    readonly points: readonly { readonly name: string; readonly time: number }[];
  }
  const shown = (figure: number): string => figure.toFixed(figure < 10 ? 1 : 0);
  const newest = readdirSync(join(root, 'docs/results'))
    .filter((name) => /^[\d-]+-h200-gemm-steps\.json$/.test(name))
    .sort()
    .at(-1);
  const measured =
    newest === undefined
      ? null
      : (JSON.parse(readFileSync(join(root, 'docs/results', newest), 'utf8')) as Results);

  test('the table says what the newest run measured, and nothing before there is one', () => {
    const rows = [...text.matchAll(/^\| (?:\[\d|cuBLAS).*$/gm)].map(([row]) =>
      row
        .split('|')
        .slice(-3, -1)
        .map((cell) => cell.trim()),
    );
    const times = measured?.points.map(({ time }) => time) ?? [];
    const { m, n, k } = measured?.sizes ?? { m: 0, n: 0, k: 0 };
    const wanted = rows.map((_, i) => {
      if (measured === null) return ['–', '–'];
      const rate = (2 * m * n * k) / times[i]! / 1e6;
      return [shown(rate), `${shown((100 * times[steps.length]!) / times[i]!)} %`];
    });
    expect(rows).toHaveLength(steps.length + 1);
    expect(rows).toEqual(wanted);
    expect(text.includes('not measured yet')).toBe(newest === undefined);
    if (newest !== undefined) expect(text).toContain(`results/${newest}`);
  });
});
