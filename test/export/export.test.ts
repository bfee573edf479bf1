/** What `heddle export` writes is enough: a host that knows nothing else gets what Heddle's own gets, bit by bit. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { heddle } from '../../src/cli/program.js';
import { type Exported, exportPlan, type LaunchPlan } from '../../src/export/index.js';
import { familyNamed, familyShape } from '../../src/kernels/index.js';
import { dtypes } from '../../src/layer/index.js';
import { ExpertParallel, emptyTensor, row } from '../../src/moe/index.js';
import { makeSources } from '../../src/testing/index.js';
import { World } from '../../src/world/index.js';
import { cudaHeaders, needing } from '../needs.js';
import { PlanHost } from './host.js';

const small = { ranks: 2, tokens: 5, hidden: 16, experts: 6, topk: 2 };
const few = { 'dispatch.blocks': 2, 'dispatch.threads': 64, 'combine.blocks': 2, 'combine.threads': 64 };

/** As a file has it: nothing but JSON. */
async function exported(
  family: string,
  shape: Record<string, number | string>,
  split = false,
): Promise<Exported> {
  const found = familyNamed(family);
  const { plan, kernels } = await exportPlan(found, familyShape(found, shape, split));
  return { plan: JSON.parse(JSON.stringify(plan)) as LaunchPlan, kernels };
}

describe('a host that knows only the plan', () => {
  test.each([
    { name: 'one-sided, pushing', family: 'one-sided', shape: { ...small, ...few }, split: false },
    {
      name: 'one-sided, pulling',
      family: 'one-sided',
      shape: { ...small, ...few, 'combine.way': 'pull' },
      split: false,
    },
    { name: 'one-sided, split', family: 'one-sided', shape: { ...small, ...few }, split: true },
    {
      name: 'one-sided, two payloads, counts',
      family: 'one-sided',
      shape: { ...small, ...few, scales: 12, counts: 'yes' },
      split: false,
    },
    {
      name: 'combine weighs',
      family: 'one-sided',
      shape: { ...small, ...few, weighting: 'combine' },
      split: false,
    },
    { name: 'portable', family: 'portable', shape: { ...small, ...few }, split: true },
  ])('$name: three rounds as Heddle makes them', async ({ family, shape, split }) => {
    const { plan, kernels } = await exported(family, shape, split);
    const rounds = [5, 3, 0].map((tokens, i) => makeSources(plan.layer, [tokens, 5 - tokens], i + 1));
    const { layer } = plan;
    await World.local({ ranks: layer.ranks, device: 'sim' }, async (world) => {
      const { device, rank } = world;
      const stream = device.createStream();
      const mine = rounds.map((sources) => sources[rank]!);
      const host = await PlanHost.create(world, { plan, kernels });
      const theirs = mine.map((source) => host.round(source, stream));

      const { dtype, hidden } = layer.output;
      const ep = await ExpertParallel.create(world, {
        ...layer,
        payloads: Object.fromEntries(layer.payloads.map(({ name, rowBytes }) => [name, row('u8', rowBytes)])),
        output: row(dtype, hidden),
        weighting: layer.output.weighting!,
        family,
        split,
      });
      for (const [i, source] of mine.entries()) {
        const own = emptyTensor(device, dtype, [source.tokens, hidden]);
        const { output, payloads } = ep.dispatch(source, stream);
        const rowBytes = hidden * dtypes[dtype].size;
        const slots = layer.ranks * layer.maxTokens;
        const copies = output.bytes / rowBytes / slots;
        for (let slot = 0; slot < slots * copies; slot++) {
          const from = payloads.x!.data + Math.floor(slot / copies) * rowBytes;
          stream.copy(output.data + slot * rowBytes, from, rowBytes);
        }
        ep.combine(own, stream);
        expect(await stream.copyOut(theirs[i]!, own.bytes)).toEqual(
          await stream.copyOut(own.data, own.bytes),
        );
      }
      const failure = host.addressOf(plan.failure.in) + plan.failure.offset;
      expect((await stream.copyOut(failure, 4))[0]).toBe(0);
      await ep.dispose();
    });
  });
});

const folder = mkdtempSync(join(tmpdir(), 'heddle-export-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Its exit code, and what it printed. */
async function write(out: string, ...args: readonly string[]): Promise<{ code: number; said: string }> {
  const said: string[] = [];
  const stdout = vi.spyOn(process.stdout, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  try {
    const code = await heddle(['export', ...args, '--out', join(folder, out), '--json']);
    return { code, said: said.join('') };
  } finally {
    stdout.mockRestore();
  }
}
const smallText = 'ranks=2,tokens=5,hidden=16,experts=6,topk=2';

describe('heddle export', () => {
  test('writes the plan, its tables and the sources', async () => {
    const { code, said } = await write('plain', 'one-sided', '--shape', smallText, '--arch', 'none');
    expect(code).toBe(0);
    expect(JSON.parse(said).written).toHaveLength(4);
    expect(readdirSync(join(folder, 'plain')).sort()).toEqual([
      'one_sided_combine.cu',
      'one_sided_dispatch.cu',
      'plan.h',
      'plan.json',
    ]);
    const plan = JSON.parse(readFileSync(join(folder, 'plain/plan.json'), 'utf8')) as LaunchPlan;
    for (const { kernel, parameters, parameterBytes } of plan.launches) {
      const source = readFileSync(join(folder, `plain/${kernel}.cu`), 'utf8');
      expect(source).toContain(plan.kernels.find(({ name }) => name === kernel)!.entry);
      // One behind the other, up to the last byte.
      expect(parameters.at(-1)!.offset + parameters.at(-1)!.bytes).toBe(parameterBytes);
      for (const [i, { offset }] of parameters.entries()) {
        const before = parameters[i - 1];
        expect(offset).toBeGreaterThanOrEqual(before === undefined ? 0 : before.offset + before.bytes);
      }
    }
  });

  test.each([
    ['one-sided', smallText],
    ['one-sided', `${smallText},weighting=combine`],
    ['portable', `${smallText},scales=12,counts=yes`],
  ])('the host in C compiles with the tables of %s, %s', needing('cc', 'cuda.h'), async (family, shape) => {
    const out = `${family}-${shape.length}`;
    await write(out, family, '--shape', shape, '--arch', 'none');
    const host = resolve(import.meta.dirname, '../../examples/export-host.c');
    const warnings = ['-Wall', '-Wextra', '-Werror', '-Wno-unused-const-variable'];
    const includes = ['-I', join(folder, out), '-isystem', cudaHeaders()!];
    execFileSync('cc', ['-std=gnu11', ...warnings, ...includes, '-fsyntax-only', host]);
  });

  test.each([
    [['one-sided', '--shape', 'ranks=0'], /--shape ranks is 0/],
    [['one-sided', '--shape', 'rank=2'], /--shape is "rank"; it must be a key of one-sided: ranks/],
    [['one-sided', '--arch', 'hopper'], /--arch is "hopper"; it must be architectures like sm_90a/],
  ])('%j is refused before anything is written', async (args, why) => {
    const { code, said } = await write('refused', ...args);
    expect(code).toBe(2);
    expect(JSON.parse(said).error.message).toMatch(why);
    expect(existsSync(join(folder, 'refused'))).toBe(false);
  });
});
