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
import { type Gemm, prepare, type Sizes, steps } from '../../examples/gemm/index.js';
import { f32ToBf16 } from '../../src/gpu/index.js';
import { type Finding, formatFinding, type KernelModule, SimMachine } from '../../src/gpu/sim/index.js';
import { entryName, printCuda } from '../../src/lang/index.js';
import { mutantsOf, mutate } from '../../src/verify/check/index.js';
import { compileCuda } from '../lang/cuda/nvcc.js';
import { wholeNumbers } from '../lang/hopper/cases.js';
import { needing } from '../needs.js';
import { root, tree } from '../tree.js';
import { page } from './markdown.js';

/** Small, but more steps than there are stages and, where blocks stay, more tiles than blocks. */
const sizes: readonly Sizes[] = [
  { m: 20, n: 24, k: 40 },
  { m: 128, n: 128, k: 192 },
  { m: 128, n: 128, k: 192 },
  { m: 128, n: 256, k: 384 },
  { m: 128, n: 512, k: 192 },
];
const numbered = steps.map((gemm, i) => ({ name: gemm.kernel.ir().name, gemm, sizes: sizes[i]! }));
const { text, blocks } = page('docs/gemm.md');

interface Run {
  readonly findings: readonly Finding[];
  /** Elements that are not what they should be: all, where the run failed. */
  readonly wrong: number;
}

/** Whole numbers, whose sums are exact in any order, and what they make. */
function productOf({ m, n, k }: Sizes) {
  const [a, b] = [wholeNumbers(m * k, 1), wholeNumbers(n * k, 2)];
  const c = new Uint16Array(m * n);
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < n; column++) {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += a[row * k + i]! * b[column * k + i]!;
      c[row * n + column] = f32ToBf16(sum);
    }
  }
  return { a: Uint16Array.from(a, f32ToBf16), b: Uint16Array.from(b, f32ToBf16), c };
}
const products = new Map(sizes.map((of) => [of, productOf(of)]));

/** One schedule on the checked machine. */
async function multiply(
  gemm: Gemm,
  of: Sizes,
  seed: number,
  substitute = (module: KernelModule) => module,
): Promise<Run> {
  const schedule = seed % 2 === 0 ? 'random' : 'priority';
  const machine = SimMachine.create({
    ...{ ranks: 1, mode: 'checked', seed: `${schedule}-${seed}`, schedule },
    ...{ residentBlocks: 1, stepLimit: 3_000_000, substitute },
  });
  const device = machine.device(0);
  const stream = device.createStream();
  const product = products.get(of)!;
  const place = (name: 'a' | 'b' | 'c'): number => device.allocate(product[name].byteLength, name).address;
  const operands = { a: place('a'), b: place('b'), c: place('c') };
  for (const name of ['a', 'b'] as const) stream.copyIn(operands[name], new Uint8Array(product[name].buffer));
  (await prepare(device, gemm, { ...operands, ...of })).launch(stream);
  try {
    const bytes = await stream.copyOut(operands.c, product.c.byteLength);
    const made = new Uint16Array(bytes.slice().buffer);
    return { findings: machine.findings, wrong: made.filter((bits, i) => bits !== product.c[i]).length };
  } catch (error) {
    if (machine.findings.length === 0) throw error;
    return { findings: machine.findings, wrong: product.c.length };
  }
}

describe.each(numbered)('$name', ({ gemm, sizes }) => {
  test.each([0, 1])('is right, and has no finding, schedule %d', async (seed) => {
    const { findings, wrong } = await multiply(gemm, sizes, seed);
    expect(findings.map(formatFinding)).toEqual([]);
    expect(wrong).toBe(0);
  });

  const mutants = mutantsOf(gemm.kernel.ir()).map((mutant) => ({ ...mutant, mutant }));
  test.each(mutants)('needs $text: $description is found', async ({ mutant }) => {
    const { findings, wrong } = await multiply(gemm, sizes, 0, (module) => mutate(module, mutant));
    expect(findings.length + wrong).toBeGreaterThan(0);
  });
});

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
      const built = join(folder, `mistake-${step}`, 'examples/gemm/index.js');
      const { steps } = (await import(pathToFileURL(built).href)) as { readonly steps: readonly Gemm[] };
      const found = new Set<string>();
      for (let seed = 0; seed < 10 && !found.has(general(quote)); seed++) {
        const { findings } = await multiply(steps[step]!, sizes[step]!, seed);
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
