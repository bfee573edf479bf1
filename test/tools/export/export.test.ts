/** What `heddle export` writes is enough: a host that knows nothing else gets what Heddle's own gets, bit by bit. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ring, ringWindow } from '../../../examples/ring.js';
import { heddle } from '../../../src/cli/program.js';
import type { Stream } from '../../../src/gpu/index.js';
import { parameterAbi } from '../../../src/lang/index.js';
import { families, familyNamed } from '../../../src/moe/families/index.js';
import {
  bytesOf,
  ExpertParallel,
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  type MlpWeights,
  type OwnedTensor,
  row,
  tensorFrom,
} from '../../../src/moe/index.js';
import { type Layer, placeTable, type Source } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { type Exported, exportPlan, type LaunchPlan } from '../../../src/tools/export/index.js';
import { froms, structs, tables } from '../../../src/tools/export/pack.js';
import type { PlannedWeights } from '../../../src/tools/export/rounds.js';
import { familyKeys, familyShape, registry, type ShapeKeys } from '../../../src/verify/kernels/index.js';
import { makeSources } from '../../../src/verify/testing/index.js';
import { heard } from '../../cli/said.js';
import { hostCompiler, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root } from '../../tree.js';
import { PlanHost } from './host.js';

const small = { ranks: 2, tokens: 5, hidden: 16, experts: 6, topk: 2 };
const few = { 'dispatch.blocks': 2, 'dispatch.threads': 64, 'combine.blocks': 2, 'combine.threads': 64 };

/** As a file has it: nothing but JSON. */
async function exported(
  family: string,
  shape: Record<string, number | string>,
  split = false,
  how: Parameters<typeof exportPlan>[3] = {},
): Promise<Exported> {
  const found = familyNamed(family);
  const asked = familyShape(found, shape, { split, sms: null, ...(how.experts && { multiprocessors: 4 }) });
  const { plan, kernels } = await exportPlan(found, asked, '0.0.0', how);
  return { plan: JSON.parse(JSON.stringify(plan)) as LaunchPlan, kernels };
}

test('what cannot be exported is refused, and why is said', async () => {
  const plan = exported('one-sided', { ...small, weighting: 'plan' });
  await expect(plan).rejects.toThrow('combine takes rows by an experts’ plan here, and there are no experts');
});

test('structs, tables and sources of the player are those of the packer, in their order', () => {
  const player = readFileSync(join(root, 'src/tools/export/player.c'), 'utf8');
  const namesOf = (kind: string, name: string): string[] =>
    new RegExp(`^${kind} heddle_${name} \\{([^}]+)\\}`, 'm')
      .exec(player)![1]!
      .replaceAll(/\/\*.*?\*\/|(uint64_t|struct heddle_table) /g, '')
      .split(/[;,]/)
      .map((field) => field.trim())
      .filter(Boolean);
  for (const [name, fields] of Object.entries(structs)) expect(namesOf('struct', name)).toEqual(fields);
  expect(namesOf('struct', 'shape').slice(-tables.length)).toEqual(tables);
  expect(namesOf('enum', 'from')).toEqual(froms.map((from) => `HEDDLE_FROM_${from.toUpperCase()}`));
});

test('a plan is what it was, key by key', async () => {
  const shape = { ranks: 4, tokens: 64, hidden: 128, experts: 7, topk: 2, format: 'mxfp8', rounded: 'yes' };
  const { plan } = await exported('portable', shape, true);
  const kept: unknown = JSON.parse(readFileSync(join(import.meta.dirname, 'plan.json'), 'utf8'));
  expect(plan).toEqual(kept);
});

describe('a host that knows only the plan', () => {
  test.each<[string, string, Record<string, number | string>, boolean?]>([
    ['one-sided', 'pushing', {}],
    ['one-sided', 'pulling', { 'combine.way': 'pull' }],
    ['one-sided', 'split', {}, true],
    ['one-sided', 'two payloads, counts', { scales: 12, counts: 'yes' }],
    ['portable', 'split', {}, true],
    ['one-sided', 'rows as fp8', { hidden: 128, format: 'fp8', rounded: 'yes' }],
    ['hybrid', 'between nodes', { ranks: 4, nodes: 2, experts: 8 }],
    ['portable', 'rows as mxfp8', { hidden: 128, format: 'mxfp8', rounded: 'yes' }, true],
  ])('%s, %s: three rounds as Heddle makes them', async (family, _, change, split = false) => {
    const { plan, kernels } = await exported(family, { ...small, ...few, ...change }, split);
    const { layer, rows } = plan;
    const rounding = layer.payloads[0]!.rounded;
    const brought: Layer =
      rounding === undefined
        ? layer
        : { ...layer, payloads: rows.map(({ payload, rowBytes }) => ({ name: payload, rowBytes })) };
    const nodes = plan.wire === undefined ? 1 : layer.ranks / plan.wire.localRanks;
    const rounds = [5, 3, 0].map((tokens, i) => {
      const each = Array.from({ length: layer.ranks }, (_, r) => (r % 2 === 0 ? tokens : 5 - tokens));
      return makeSources(brought, each, i + 1);
    });
    await World.local({ ranks: layer.ranks, nodes, device: 'sim' }, async (world) => {
      const { device, rank } = world;
      const stream = device.createStream();
      const mine = rounds.map((sources) => sources[rank]!);
      const host = await PlanHost.create(world, { plan, kernels });
      const theirs = mine.map((source) => host.round(source, stream));

      const { dtype, hidden } = layer.output;
      const ep = await ExpertParallel.create(world, {
        ...layer,
        payloads: Object.fromEntries(
          rows.map(({ payload, rowBytes }) => [
            payload,
            rounding === undefined ? row('u8', rowBytes) : { ...row('bf16', rowBytes / 2), rounds: rounding },
          ]),
        ),
        output: row(dtype, hidden),
        family,
        split,
      });
      for (const [i, source] of mine.entries()) {
        const { tokens, ...inputs } = source;
        const own = emptyTensor(device, dtype, [tokens, hidden]);
        const { output, payloads } = ep.dispatch(inputs, stream);
        // Rows that are rounded are shorter than those of the output: each goes there twice.
        const { rowBytes } = layer.payloads[0]!;
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
      expect(await failedIn(host, stream)).toBe(0);
      await ep.dispose();
    });
  });
});

/** What a wait of this rank was doing that gave up; 0 where none did. */
async function failedIn({ plan: { failure }, addressOf }: PlanHost, stream: Stream): Promise<number> {
  return (await stream.copyOut(addressOf(failure.in) + failure.offset, 4))[0]!;
}

/** Three rounds of this rank, which the host of an export and `round`, by Heddle's own classes, leave the same bits of. */
async function sameRounds(
  { device, rank }: World,
  layer: LaunchPlan['layer'],
  host: Pick<PlanHost, 'round'>,
  stream: Stream,
  round: (inputs: Omit<Source, 'tokens'>, own: OwnedTensor) => void,
): Promise<void> {
  for (const [i, tokens] of [5, 0, 3].entries()) {
    const source = makeSources(layer, [tokens, 5 - tokens], i + 1)[rank]!;
    const theirs = host.round(source, stream);
    const own = emptyTensor(device, 'bf16', [source.tokens, 64]);
    const { tokens: _, ...inputs } = source;
    round(inputs, own);
    const [mine, others] = [own.data, theirs].map((from) => stream.copyOut(from, own.bytes));
    expect(await others).toEqual(await mine);
    if (source.tokens > 0) expect(new Set(await mine).size).toBeGreaterThan(64);
  }
}

test.each([
  ['mxfp4', { hidden: 64, inner: 33 }, 'inner is 33; it must be a multiple of 64'],
  ['e4m3', { hidden: 192, inner: 128 }, 'hidden is 192; it must be a multiple of 128'],
] as const)(
  'experts of %s in sizes of which their kernels are none are refused',
  async (weights, of, wrong) => {
    const given = { ranks: 2, tokens: 5, experts: 4, topk: 2, hidden: of.hidden };
    const experts = { inner: of.inner, weights, activation: 'swiglu', biases: false } as const;
    await expect(exported('one-sided', given, false, { experts })).rejects.toThrow(wrong);
  },
);

test.each([
  ['bf16', 'experts'],
  ['bf16', 'plan'],
  ['mxfp4', 'plan'],
] as const)('experts of %s make what ExpertsMlp makes, weighting by %s', async (stored, weighting) => {
  const given = { ranks: 2, tokens: 5, hidden: 64, experts: 4, topk: 2, weighting, ...few };
  const experts = { inner: 64, weights: stored, activation: 'swiglu', biases: true } as const;
  const made = await exported('one-sided', given, false, { capability: [8, 0], experts });
  const { layer, weights: planned } = made.plan;
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { device, rank } = world;
    const stream = device.createStream();
    const random = ({ name, dtype, shape }: PlannedWeights, i: number) => {
      const count = shape.reduce((product, extent) => product * extent, 1);
      const values = Array.from({ length: count }, (_, n) => Math.sin(n * (i + 2) + rank) / 8);
      // Of MXFP4; scales are 2^-6 to 2^-3.
      const bytes = values.map((_, n) =>
        name.endsWith('Scales') ? 121 + (n % 4) : (n * n * 37 + i + rank) & 255,
      );
      return [name, tensorFrom(device, stream, dtype === 'u8' ? bytes : values, dtype, shape)] as const;
    };
    const weights = Object.fromEntries(planned!.map(random));
    const at = Object.fromEntries(Object.entries(weights).map(([name, { data }]) => [name, data]));
    const host = await PlanHost.create(world, made, at);
    const ep = await ExpertParallel.create(world, {
      ...layer,
      ...{ payloads: { x: row('bf16', 64) }, output: row('bf16', 64), weighting },
    });
    const sorted = await ExpertsPlan.create(ep);
    const mlp = await ExpertsMlp.create(ep, sorted, weights as unknown as MlpWeights);
    await sameRounds(world, layer, host, stream, (source, own) => {
      const received = ep.dispatch(source, stream);
      sorted.plan(received, stream);
      mlp.run(received, stream);
      ep.combine(own, stream, mlp.made ?? undefined);
    });
    await ep.dispose();
  });
});

const folder = temporaryFolder();

/** Its exit code, and what it printed. */
async function run(args: readonly string[]) {
  const { given: code, said } = await heard(() => heddle(args));
  return { code, said };
}
const write = (out: string, ...args: readonly string[]) =>
  run(['export', ...args, '--out', join(folder, out), '--json']);
const smallText = 'ranks=2,tokens=5,hidden=16,experts=6,topk=2';

test('rounds leave out the ranks that a host masks', async () => {
  const { plan, kernels } = await exported('one-sided', { ...small, ...few, masks: 'yes' });
  const source = makeSources(plan.layer, [5, 0], 1)[0]!;
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const host = await PlanHost.create(world, { plan, kernels });
    if (world.rank === 0) {
      const stream = world.device.createStream();
      const { in: window, offset } = plan.masked!;
      stream.copyIn(host.addressOf(window) + offset, bytesOf(Uint32Array.of(2, 0, 0, 0)));
      const out = host.round(source, stream);
      const rows = bytesOf(source.payloads.x!);
      const expected = Array.from({ length: 5 }, (_, token) => {
        const row = [...rows.subarray(32 * token, 32 * (token + 1))];
        return source.topkIds.subarray(2 * token, 2 * token + 2).some((id) => id >= 0 && id < 3)
          ? row
          : row.map(() => 0);
      });
      expect(expected.some((row) => row.every((byte) => byte === 0))).toBe(true);
      expect([...(await stream.copyOut(out, 160))]).toEqual(expected.flat());
      expect(await failedIn(host, stream)).toBe(0);
    }
    await world.barrier('the end');
  });
});

test('routes go to the places of experts that a host brings', async () => {
  const places = [0, 1, 2, 3, 0, 1];
  const shape = { ...small, ...few, hidden: 64, placed: 4 };
  const { plan, kernels } = await exported('one-sided', shape);
  const placement = { experts: 4, ranks: 2, places };
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { rank, device } = world;
    const stream = device.createStream();
    const host = await PlanHost.create(world, { plan, kernels });
    const ep = await ExpertParallel.create(world, {
      ...{ experts: 4, topK: 2, maxTokens: 5, placement },
      ...{ payloads: { x: row('bf16', 64) }, output: row('bf16', 64) },
    });
    const table = placeTable(placement, { source: rank, sources: 2 });
    await sameRounds(
      world,
      { ...plan.layer, experts: 4 },
      { round: (source) => host.round(source, stream, table) },
      stream,
      (source, own) => {
        const { output, payloads } = ep.dispatch(source, stream);
        stream.copy(output.data, payloads.x.data, output.bytes);
        ep.combine(own, stream);
      },
    );
    await ep.dispose();
  });
});

test('rows that a plan sorts for the host come back as those of ExpertsPlan', async () => {
  const given = { ranks: 2, tokens: 5, hidden: 64, experts: 4, topk: 2, weighting: 'plan', ...few };
  const experts = { form: 'masked', alignment: 16, capacity: 16 } as const;
  const made = await exported('one-sided', given, false, { experts });
  const { layer } = made.plan;
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { device } = world;
    const stream = device.createStream();
    const host = await PlanHost.create(world, made);
    const ep = await ExpertParallel.create(world, {
      ...layer,
      ...{ payloads: { x: row('bf16', 64) }, output: row('bf16', 64), weighting: 'plan' },
    });
    const sorted = await ExpertsPlan.create(ep, experts);
    const x = emptyTensor(device, 'bf16', [sorted.rows, 64]);
    await sameRounds(world, layer, host, stream, (source, own) => {
      const received = ep.dispatch(source, stream);
      sorted.plan(received, stream);
      sorted.expand(received, { x }, stream);
      ep.combine(own, stream, sorted.made(x));
    });
    await ep.dispose();
  });
});

describe('heddle export', () => {
  test('writes the plan, a host and the sources, of this version of Heddle', async () => {
    const { code, said } = await write('plain', 'one-sided', '--shape', smallText, '--arch', 'none');
    expect(code).toBe(0);
    expect(JSON.parse(said).written).toHaveLength(5);
    expect(readdirSync(join(folder, 'plain')).sort()).toEqual([
      'heddle.c',
      'heddle.h',
      'one_sided_combine.cu',
      'one_sided_dispatch.cu',
      'plan.json',
    ]);
    const plan = JSON.parse(readFileSync(join(folder, 'plain/plan.json'), 'utf8')) as LaunchPlan;
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
    expect(plan.heddle).toBe(version);
    const header = readFileSync(join(folder, 'plain/heddle.h'), 'utf8');
    expect(header).toContain(`#define HEDDLE_VERSION "${version}"`);
    for (const { kernel, parameters, parameterBytes, programmatic } of plan.launches) {
      expect(programmatic).toBe(true);
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
    ['yes', 'weights[k] times what'],
    ['no', 'what'],
  ])('says with weights=%s what the experts leave, and what ids are', async (weights, left) => {
    await write('meaning', 'one-sided', '--shape', `${smallText},weights=${weights}`, '--arch', 'none');
    const header = readFileSync(join(folder, 'meaning/heddle.h'), 'utf8').replaceAll(/\n \s*\*\s/g, ' ');
    expect(header).toContain(
      `the sum over its routes k here of ${left} the expert of route k made of the slot's row`,
    );
    expect(header).toContain("as topk_ids has it, so FIRST_EXPERT(rank) is this rank's first");
  });

  test('no launch takes more than --sms multiprocessors', async () => {
    const largest = (out: string): number => {
      const plan = JSON.parse(readFileSync(join(folder, out, 'plan.json'), 'utf8')) as LaunchPlan;
      expect(plan.sms).toBe(out === 'all' ? null : 8);
      return Math.max(...plan.launches.map(({ grid }) => grid));
    };
    const shape = ['--shape', 'ranks=2,tokens=128,hidden=256,experts=8,topk=4', '--arch', 'none'];
    await write('all', 'one-sided', ...shape);
    await write('some', 'one-sided', ...shape, '--sms', '8');
    expect(largest('all')).toBeGreaterThan(8);
    expect(largest('some')).toBeLessThanOrEqual(8);
  });

  test('rows travel as fp8 with scales, and come back as bf16', async () => {
    const shape = `${smallText.replace('hidden=16', 'hidden=256')},format=fp8`;
    await write('fp8', 'one-sided', '--shape', shape, '--arch', 'none');
    const { layer } = JSON.parse(readFileSync(join(folder, 'fp8/plan.json'), 'utf8')) as LaunchPlan;
    expect(layer.payloads).toEqual([
      { name: 'x', rowBytes: 256 },
      { name: 'scales', rowBytes: 8 },
    ]);
    expect(layer.output).toMatchObject({ dtype: 'bf16', hidden: 256 });
  });

  test('the help lists every key of --shape, with its values', async () => {
    for (const [command, shapes] of [
      ['export', families.map(familyKeys)],
      ['emit', registry().map(({ shape }) => shape)],
    ] as const) {
      const { code, said } = await run([command, '--help']);
      expect(code).toBe(0);
      const lines = said.split('\n');
      for (const [name, { knob }] of shapes.flatMap((shape: ShapeKeys) => Object.entries(shape))) {
        const values = knob.kind === 'choice' ? knob.choices.join(' | ') : `${knob.min} to ${knob.max}`;
        const meaning = `  ${name}: ${knob.summary}, ${values}`;
        expect(lines.filter((line) => line.startsWith(meaning))).toHaveLength(1);
      }
    }
  });

  const strict = ['-Wall', '-Wextra', '-Wpedantic', '-Werror', '-fsyntax-only'];
  const compilers = [
    { language: 'C11', need: 'cc', compiler: 'cc', args: ['-x', 'c', '-std=c11', ...strict] },
    {
      language: 'C++17',
      need: 'c++',
      compiler: hostCompiler(),
      args: ['-x', 'c++', '-std=c++17', ...strict],
    },
  ] as const;
  describe.each(compilers)('as $language', ({ need, compiler, args }) => {
    test.each([
      ['one-sided', smallText, []],
      ['one-sided', `${smallText},weights=yes`, ['--split']],
      ['portable', `${smallText},scales=12,counts=yes`, ['--split']],
      ['one-sided', `${smallText.replace('hidden=16', 'hidden=256')},format=fp8,rounded=yes`, []],
      ['one-sided', `${smallText},placed=4,masks=yes,waits=yes`, []],
      ['one-sided', smallText.replace('hidden=16', 'hidden=64'), ['--experts', '64', '--biases']],
      ['one-sided', `${smallText.replace('hidden=16', 'hidden=64')},weighting=plan`, ['--experts', '64']],
    ])('the host of %s, %s compiles', needing(need), async (family, shape, more) => {
      const out = `${family}-${shape.length}`;
      await write(out, family, '--shape', shape, '--arch', 'none', ...more);
      execFileSync(compiler!, [...args, join(folder, out, 'heddle.c')]);
    });

    test('the header of one’s own kernels says where parameters and windows lie', needing(need), async () => {
      await write('rings', './examples/export/kernels.ts', '--arch', 'none', '--prefix', 'rings');
      const module = ring(4).ir();
      const claims = parameterAbi(module).map(
        ({ name, offset }) => `offsetof(struct rings_ring, ${name}) == ${offset}`,
      );
      claims.push(`RINGS_RING_WIN_ROW == ${ringWindow.fields.find(({ name }) => name === 'row')!.offset}`);
      claims.push(
        `RINGS_RING_WIN_BYTES == ${ringWindow.bytes}`,
        `RINGS_RING_MAX_THREADS == ${module.maxThreads}`,
      );
      const program = [
        '#include <stddef.h>',
        `#include "${join(folder, 'rings', 'rings.h')}"`,
        '#ifndef __cplusplus\n#define static_assert _Static_assert\n#endif',
        ...claims.map((claim) => `static_assert(${claim}, "");`),
        'int main(void) { struct rings_ring of = {{0}, 0, 0, 0, 0}; void *all[] = RINGS_RING_PARAMETERS(&of); return all[0] != &of; }',
      ];
      writeFileSync(join(folder, 'rings', 'own.c'), program.join('\n'));
      execFileSync(compiler!, [...args, join(folder, 'rings', 'own.c')]);
    });

    test('plans of different prefixes fit one program, and one file', needing(need), async () => {
      await write('decode', 'one-sided', '--shape', smallText, '--prefix', 'decode', '--arch', 'none');
      const prefill = `${smallText},counts=yes,tokens=64`
        .replace('tokens=5,', '')
        .replace('experts=6', 'experts=7');
      await write('prefill', 'portable', '--shape', prefill, '--prefix', 'preFill', '--arch', 'none');
      const program = `
        #include "decode/decode.c"
        #include "prefill/preFill.c"
        #include "decode/decode.h"
        int tokens[DECODE_MAX_TOKENS == 5 && PRE_FILL_MAX_TOKENS == 64 ? 1 : -1];
        int even[DECODE_FIRST_EXPERT(0) == 0 && DECODE_FIRST_EXPERT(1) == 3 && DECODE_FIRST_EXPERT(2) == 6 ? 1 : -1];
        int odd[PRE_FILL_FIRST_EXPERT(0) == 0 && PRE_FILL_FIRST_EXPERT(1) == 4 && PRE_FILL_FIRST_EXPERT(2) == 7 ? 1 : -1];
        int main(void) { return decode_failure(NULL, NULL) != NULL && preFill_failure(NULL, NULL) != NULL; }`;
      execFileSync(compiler!, [...args, '-I', folder, '-'], { input: program });
    });
  });

  test('compiles to cubins and PTX', needing('nvrtc or nvcc'), async () => {
    const arch = ['--arch', 'compute_90,sm_90,sm_90a'];
    expect((await write('images', 'one-sided', '--shape', smallText, ...arch)).code).toBe(0);
    const image = (name: string) => readFileSync(join(folder, `images/one_sided_dispatch.${name}`), 'latin1');
    expect(image('sm_90a.cubin').slice(1, 4)).toBe('ELF');
    expect(image('compute_90.ptx')).toMatch(/^\.target sm_90$/m);
  });

  test('compiles kernels of one’s own', needing('nvrtc or nvcc'), async () => {
    const asked = ['./examples/export/kernels.ts', '--arch', 'sm_90a', '--prefix', 'rings'];
    expect((await write('own', ...asked)).code).toBe(0);
    expect(readFileSync(join(folder, 'own/ring.sm_90a.cubin'), 'latin1').slice(1, 4)).toBe('ELF');
  });

  test('writes nothing where a kernel does not compile', needing('nvrtc or nvcc'), async () => {
    const asked = ['one-sided', '--shape', smallText, '--arch', 'sm_90a,sm_99'];
    const { code, said } = await write('halfway', ...asked);
    expect(code).toBe(1);
    expect(JSON.parse(said).error.code).toBe('HEDDLE_COMPILE');
    expect(existsSync(join(folder, 'halfway'))).toBe(false);
  });

  test.each([
    [['one-sided', '--shape', 'ranks=0'], /--shape ranks is 0/],
    [['one-sided', '--shape', 'rank=2'], /--shape is "rank"; it must be a key of one-sided: ranks/],
    [['one-sided', '--prefix', '2nd'], /--prefix is "2nd"; it must be a letter, then letters/],
    [
      ['one-sided', '--shape', 'format=fp8,scales=12'],
      /--shape scales is 12; it must be 0: rows of fp8 have scales/,
    ],
    [['portable', '--shape', 'transport=nvshmem'], /rows of the family portable need NVSHMEM here/],
    [
      ['hybrid'],
      /^family is "hybrid"; it must be 'one-sided' on one node, where both have the same kernels; hybrid needs several nodes/,
    ],
    [['one-sided', '--sms', '0'], /--sms/],
    [['two-sided'], /^family is "two-sided"; it must be one of 'one-sided', 'hybrid', 'portable'/],
    [['./examples/ring.ts'], /a module that exports a kernel itself/],
    [
      [
        'one-sided',
        '--shape',
        `${smallText.replace('hidden=16', 'hidden=256')},format=fp8,rounded=yes`,
        '--arch',
        'sm_90a,sm_80',
      ],
      /one_sided_dispatch uses conversions of e4m3, which GPUs of compute capability 8.9 \(Ada\) and later have; sm_80 has 8.0/,
    ],
    [['one-sided', '--arch', 'sm_75'], /sm_75 has compute capability 7.5. Heddle’s kernels need 8.0/],
    [['one-sided', '--arch', 'hopper'], /--arch is "hopper"; it must be architectures like sm_90a/],
  ])('%j is refused before anything is written', async (args, why) => {
    const { code, said } = await write('refused', ...args);
    expect(code).toBe(2);
    expect(JSON.parse(said).error.message).toMatch(why);
    expect(existsSync(join(folder, 'refused'))).toBe(false);
  });
});
