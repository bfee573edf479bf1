/** What is the hybrid family's alone: which nodes it takes, what crosses the network, and what the proxy believes. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { RankLostError, UnavailableError } from '../../../src/base/errors.js';
import { NativeView, type RemoteWrite, type WireSide } from '../../../src/gpu/index.js';
import { type FlushedNetwork, formatFinding, SimMachine } from '../../../src/gpu/sim/index.js';
import { initialEpoch, numberOfRound } from '../../../src/moe/families/common/waits.js';
import { inRound, roundsAfter, senderOfTag, tagOf } from '../../../src/moe/families/hybrid/messages.js';
import { hybridProxy, type ProxyData } from '../../../src/moe/families/hybrid/proxy.js';
import { mostPackers } from '../../../src/moe/families/hybrid/shape.js';
import { hybrid, oneSided } from '../../../src/moe/families/index.js';
import { ExpertParallel, emptyTensor, readBits, row } from '../../../src/moe/index.js';
import { type Layer, traffic } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { layerOf, makeSources, runRounds, shapeOfRounds } from '../../../src/verify/testing/index.js';
import { expectReference } from '../../suite/cases.js';
import { transpiledUrl } from '../../tree.js';
import { deepSeek, targetOn } from './target.js';

const layer: Layer = {
  ranks: 4,
  experts: 8,
  topK: 2,
  maxTokens: 5,
  payloads: [{ name: 'x', rowBytes: 32 }],
  output: { dtype: 'bf16', hidden: 16 },
  weights: true,
  counts: false,
};
const placeOn = (nodeOf: readonly unknown[], rank = 0) => targetOn(nodeOf, { kind: 'sim', rank });
const evenly = placeOn([0, 0, 1, 1]);

/** A machine that counts what its ranks send over the network. */
function counting(ranks: number) {
  const sent = { messages: 0, bytes: 0 };
  const network = (own: FlushedNetwork): FlushedNetwork => ({
    write(write) {
      const posted = own.write(write);
      if (posted) sent.messages++;
      if (posted) sent.bytes += write.bytes;
      return posted;
    },
    arrived: () => own.arrived(),
    flush: () => own.flush(),
  });
  return { sim: SimMachine.create({ ranks, substituteHost: { memory: (own) => own, network } }), sent };
}

describe('the hybrid family', () => {
  test('refuses nodes of unequal size, ranks in another order, and nodes of more than 32', () => {
    const refusal = (nodeOf: readonly unknown[]) => hybrid.refuses(layer, placeOn(nodeOf));
    expect(refusal([0, 0, 0, 1])).toBeInstanceOf(UnavailableError);
    expect(refusal([0, 0, 0, 1])!.message).toContain('nodes of one size, but its nodes have 3, 1 ranks');
    expect(refusal([0, 1, 0, 1])!.message).toContain('node 0 has ranks 0, 2');
    const many = Array.from({ length: 66 }, (_, rank) => Math.floor(rank / 33));
    expect(refusal(many)!.message).toContain('at most 32 ranks, not 33');
    expect(refusal([0, 0, 1, 1])).toBeNull();
  });

  test('takes groups of ranks with the same tokens inside a node, and refuses larger ones', () => {
    expect(hybrid.refuses({ ...layer, maxTokens: 4, replicas: 2 }, evenly)).toBeNull();
    expect(hybrid.refuses({ ...layer, maxTokens: 4, replicas: 4 }, evenly)!.message).toContain(
      'replicas is 4; it must be a number that divides the 2 ranks of a node',
    );
  });

  test('carries ids alone, without payloads or weights', async () => {
    await World.local({ ranks: 2, nodes: 2, device: 'sim' }, async (world) => {
      const ep = await ExpertParallel.create(world, {
        ...{ experts: 2, topK: 1, maxTokens: 1, payloads: {}, weights: false, output: row('bf16', 8) },
      });
      const stream = world.device.createStream();
      const { experts, output } = ep.dispatch(
        { topkIds: Int32Array.of(1 - world.rank), payloads: {} },
        stream,
      );
      stream.fill(output.data, output.bytes, 0);
      ep.combine(emptyTensor(world.device, 'bf16', [1, 8]), stream);
      await ep.synchronize(stream);
      const arrived = [-1, -1];
      arrived[1 - world.rank] = world.rank;
      expect([...(await readBits(experts, stream))]).toEqual(arrived);
      await ep.dispose();
    });
  });

  test('refuses more tokens than its messages have room for, before anything is made', () => {
    const refusal = (kind: 'sim' | 'cuda', maxTokens: number) =>
      hybrid.refuses(
        { ...layer, maxTokens, payloads: [{ name: 'x', rowBytes: 2 ** 16 }] },
        { ...evenly, kind },
      );
    expect(refusal('cuda', 4096)).toBeNull();
    expect(refusal('cuda', 9000)!.message).toMatch(
      /^maxTokens is 9000; it must be at most about 8\d{3} between 2 nodes/,
    );
    expect(refusal('sim', 9000)).toBeNull();
    expect(refusal('sim', 18_000)!.message).toContain('of 2.0 GiB');
  });

  test('on few multiprocessors leaves a block to watch the network', () => {
    const few = { ...evenly, sms: 3 };
    const { dispatch, combine } = hybrid.defaults(layer, few);
    expect([dispatch.blocks, combine.blocks]).toEqual([2, 2]);
    expect(hybrid.refuses(layer, few, hybrid.defaults(layer, few))).toBeNull();
    expect(hybrid.refuses(layer, few, hybrid.defaults(layer, evenly))!.message).toContain('less than sms, 3');
    expect(hybrid.refuses(layer, { ...evenly, sms: 1 })!.message).toContain('at least 2');
  });

  test('on one node is one-sided, without a wire', () => {
    const one = placeOn([0, 0, 0, 0]);
    const plan = hybrid.plan(layer, one, hybrid.defaults(layer, one));
    expect(plan.wire).toBeNull();
    expect(plan.windows).toEqual(oneSided.plan(layer, one, oneSided.defaults(layer, one)).windows);
    expect(hybrid.refuses(layer, one)).toBeNull();
    expect(hybrid.refuses(layer, one, hybrid.defaults(layer, evenly))!.message).toBe(
      `family is "hybrid"; it must be 'one-sided' on one node, where both have the same kernels; hybrid needs several nodes`,
    );
  });

  test('connects only the ranks of a rail', () => {
    const reach = (rank: number) =>
      hybrid.plan({ ...layer, ranks: 6 }, placeOn([0, 0, 1, 1, 2, 2], rank), hybrid.defaults(layer, evenly))
        .wire!.program.reach;
    expect([0, 3, 4].map(reach)).toEqual([
      [2, 4],
      [1, 5],
      [0, 2],
    ]);
  });

  test('is what carries rows between nodes where nobody asked for another', async () => {
    const shape = shapeOfRounds({ ranks: 2, experts: 2, topK: 1, maxTokens: 1, hidden: 8, dtype: 'bf16' });
    const names = await World.local({ ranks: 2, nodes: 2, device: 'sim' }, async (world) => {
      const ep = await ExpertParallel.create(world, layerOf(shape));
      await ep.dispose();
      return ep.family;
    });
    expect(names).toEqual(['hybrid', 'hybrid']);
  });
});

test.each([
  { nodes: 2, window: 45, wire: 5.6 },
  { nodes: 8, window: 179, wire: 39.1 },
])(
  'DeepSeek-V3, 128 tokens on $nodes nodes of 8, takes $window MB of a GPU and $wire MB of its host',
  (of) => {
    const ranks = of.nodes * 8;
    const layer = { ...deepSeek, ranks };
    const target = {
      ...placeOn(Array.from({ length: ranks }, (_, rank) => rank >> 3)),
      kind: 'cuda',
    } as const;
    const { windows, wire } = hybrid.plan(layer, target, hybrid.defaults(layer, target));
    expect(Math.round(windows[0]!.layout.bytes / 1e6)).toBe(of.window);
    expect(Math.round(wire!.layout.bytes / 1e5) / 10).toBe(of.wire);
  },
);

describe('rounds between nodes give the reference’s bits', () => {
  const shapes = fc.record({
    nodes: fc.integer({ min: 2, max: 3 }),
    local: fc.integer({ min: 1, max: 2 }),
    together: fc.boolean(),
    experts: fc.integer({ min: 1, max: 20 }),
    topK: fc.integer({ min: 1, max: 6 }),
    maxTokens: fc.integer({ min: 1, max: 6 }),
    chunk: fc.integer({ min: 1, max: 6 }),
    blocks: fc.integer({ min: 1, max: 3 }),
    warps: fc.integer({ min: 1, max: 2 }),
    parts: fc.integer({ min: 1, max: 3 }),
    units: fc.integer({ min: 1, max: 36 }),
    travels: fc.constantFrom({ combineFormat: 'rows' }, { combineFormat: 'e4m3' } as const),
    dtype: fc.constantFrom('bf16' as const, 'f16' as const, 'f32' as const),
    weighting: fc.constantFrom('experts' as const, 'plan' as const),
    extra: fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 2 }),
    counts: fc.boolean(),
    split: fc.boolean(),
    holes: fc.constantFrom(0, 0.4),
  });

  test('whatever their shape and spread, free of races', async () => {
    await fc.assert(
      fc.asyncProperty(
        shapes,
        async ({ nodes, local, together, travels, units, warps, chunk, blocks, parts, ...of }) => {
          const ranks = nodes * local;
          const replicas = together ? local : 1;
          const maxTokens = of.maxTokens * replicas;
          const hidden = travels.combineFormat === 'e4m3' ? units * 16 : units;
          const { counts, split, holes, ...rows } = of;
          const tokens = [0, 1].map((n) =>
            Array.from({ length: ranks }, (_, rank) => {
              return (Math.floor(rank / replicas) * 5 + n * 3) % (maxTokens + 1);
            }),
          );
          const threads = 32 * warps;
          const tuning = {
            dispatch: { blocks, threads, chunk: Math.min(chunk, of.maxTokens) },
            combine: { blocks, threads, parts },
          };
          await expectReference({
            ...{
              ...rows,
              ...travels,
              topK: Math.min(of.topK, of.experts),
              ranks,
              hidden,
              replicas,
              maxTokens,
            },
            ...{ nodes, tokens, family: 'hybrid', tuning, counts, split, inspect: true, checked: true },
            routes: { holes },
          });
        },
      ),
      { numRuns: 4, seed: 7 },
    );
  });

  test('and of a token of two ranks one sends the row', async () => {
    const shape = { ranks: 4, experts: 8, topK: 4, maxTokens: 4, hidden: 64, dtype: 'bf16' } as const;
    const crossed = async (replicas: number) => {
      const { sim, sent } = counting(4);
      const of = shapeOfRounds({ ...shape, replicas });
      // Every token has an expert on each rank.
      const sources = makeSources(of, 4, 1).map((source) => {
        return { ...source, topkIds: Int32Array.from(source.topkIds, (_, i) => (i % 4) * 2) };
      });
      const tuning = hybrid.defaults(layer, evenly);
      await World.local({ ranks: 4, nodes: 2, device: 'sim', sim }, (world) =>
        runRounds(world, of, [sources], {
          family: 'hybrid',
          tuning: { ...tuning, dispatch: { ...tuning.dispatch, chunk: 1 } },
        }),
      );
      return sent.bytes;
    };
    // Chunk 0 always travels; with a share of two tokens there are two chunks of one, with one of four, four.
    expect(await crossed(2)).toBe((await crossed(1)) / 2);
  });

  // Masks of a whole word, its last lane included.
  test('and chunks of 32 tokens', async () => {
    const tuning = {
      dispatch: { blocks: 1, threads: 64, chunk: 32 },
      combine: { blocks: 1, threads: 64, parts: 1 },
    };
    await expectReference({
      ...{ maxTokens: 33, nodes: 2, tokens: [[33, 32]], counts: true, inspect: true, checked: true },
      ...{ routes: { router: { kind: 'remote' } }, family: 'hybrid', tuning },
    });
  });

  test('and more messages and blocks than those that pack', async () => {
    const most = mostPackers.dispatch + 1;
    const tuning = {
      dispatch: { blocks: most, threads: 32, chunk: 1 },
      combine: { blocks: 1, threads: 32, parts: 1 },
    };
    await expectReference({
      ...{ experts: 2, topK: 1, maxTokens: most, nodes: 2, tokens: [[most, most]], checked: true },
      ...{ family: 'hybrid', tuning },
    });
  });
});

test('over the network goes what traffic counts: a row for each token and other node, there and back', async () => {
  const nodes = 2;
  const shape = shapeOfRounds({ ranks: 16, experts: 64, topK: 8, maxTokens: 4, hidden: 16, dtype: 'bf16' });
  const sources = makeSources(shape, 4, 3);
  const { sim, sent } = counting(shape.ranks);
  const phases = await World.local({ ranks: shape.ranks, nodes, device: 'sim', sim }, async (world) => {
    await runRounds(world, shape, [sources]);
    const target = placeOn(Array.from({ length: 16 }, (_, rank) => rank >> 3));
    const of: Layer = { ...shape, weights: true, counts: false };
    return (hybrid.plan(of, target, hybrid.defaults(of, target)).wire!.program.data as ProxyData).phases;
  });
  // Chunks of up to 32 tokens: each rank has one, for the other node.
  expect(sent.messages).toBe(2 * shape.ranks);
  const heads = phases[0]!.reduce((sum, { rows }) => sum + rows, 0) * shape.ranks;
  const { between, tokens } = traffic(shape, sources, nodes);
  expect(sent.bytes - heads).toBe(between.dispatch + between.combine);
  expect(between.rows / tokens).toBeLessThanOrEqual(1.02);
});

/** The number that words and tags carry in a round, counted from 1. */
const epochOf = (round: number) => (initialEpoch + round) >>> 0;
const chunkOfTag = (tag: number) => tag & 0xfffff;
const tagIn = (tag: number, round: number) => inRound(tag, epochOf(round));

/** A proxy of rank 0 of 2 nodes, or of another, with a network and memory that do what a test says. */
function proxyOfTwo(side: WireSide = 'host', target = placeOn([0, 1])) {
  const { length: ranks } = target.topology.members.flat();
  const { wire } = hybrid.plan({ ...layer, ranks }, target, {
    ...hybrid.defaults(layer, target),
    dispatch: { chunk: 2, blocks: 1, threads: 32 },
  });
  const data = wire!.program.data as ProxyData;
  const bytes = new Uint8Array(wire!.layout.bytes);
  for (const { offset, length } of wire!.allOnes!) bytes.fill(0xff, offset, offset + 4 * length);
  const memory = new NativeView(bytes);
  const writes: RemoteWrite[] = [];
  const tags: number[] = [];
  let room = Number.POSITIVE_INFINITY;
  const network = {
    write({ peer, from, to, bytes, tag }: Readonly<RemoteWrite>) {
      if (room-- <= 0) return false;
      writes.push({ peer, from, to, bytes, tag });
      return true;
    },
    arrived: () => tags.shift() ?? -1,
  };
  const proxy = hybridProxy({ rank: target.rank, ranks, out: [], network, side, memory, data });
  const header = (at: number, words: readonly number[]) => {
    for (const [i, word] of words.entries()) memory.store(at + 4 * i, word);
  };
  const dispatch = data.phases[0]!;
  return {
    ...{ proxy, memory, writes, dispatch, layout: wire!.layout, phases: data.phases },
    arrives: (tag: number) => tags.push(tag),
    leave: (n: number) => {
      room = n;
    },
    /** The kernels make a message of dispatch ready. */
    ready(chunk: number, round: number, rows: number) {
      memory.store(dispatch.counts + 4 * chunk, rows);
      memory.store(dispatch.ready + 4 * chunk, epochOf(round));
    },
    /** A message of dispatch has come from rank 1. */
    comes(chunk: number, words: readonly number[]) {
      header(dispatch.in + chunk * dispatch.room, [epochOf(words[0]!), ...words.slice(1)]);
      tags.push(tagIn(tagOf(0, 1, chunk), words[0]!));
    },
    /** The round of the last message that the kernels were told of. */
    came: (chunk: number) => numberOfRound(memory.load(dispatch.came + 4 * chunk)),
  };
}

describe('the proxy', () => {
  test('posts each message once, with the rows that the kernels count', () => {
    const { proxy, ready, writes, dispatch } = proxyOfTwo();
    expect(proxy.step()).toBe(false);
    ready(1, 1, 1);
    expect(proxy.step()).toBe(true);
    expect(proxy.step()).toBe(false);
    const from = dispatch.out + dispatch.room;
    const [to, bytes] = [dispatch.in + dispatch.room, dispatch.rows + dispatch.row];
    expect(writes).toEqual([{ peer: 1, from, to, bytes, tag: tagIn(1, 1) }]);
  });

  test('tries again where the network has no room', () => {
    const { proxy, ready, writes, leave } = proxyOfTwo();
    ready(0, 1, 2);
    ready(1, 1, 0);
    leave(1);
    proxy.step();
    expect(writes.map(({ tag }) => chunkOfTag(tag))).toEqual([0]);
    leave(1);
    proxy.step();
    expect(writes.map(({ tag }) => chunkOfTag(tag))).toEqual([0, 1]);
  });

  test('tells the kernels what has come, also where chunks overtake each other', () => {
    const { proxy, comes, came } = proxyOfTwo();
    comes(2, [1, 5, 1, 1]);
    comes(0, [1, 5, 0]);
    comes(1, [1, 5, 3, 2]);
    expect(proxy.step()).toBe(true);
    expect([came(0), came(1), came(2)]).toEqual([1, 1, 1]);
    comes(0, [2, 2, 3, 2]);
    proxy.step();
    expect([came(0), came(1), came(2)]).toEqual([2, 1, 1]);
  });

  test.each([
    { of: 'fewer rows than tokens', words: [1, 5, 0b11, 1] },
    { of: 'more rows than its tokens may have', words: [1, 5, 0b11, 3] },
  ])('refuses a message of $of', ({ words }) => {
    const { proxy, comes, came } = proxyOfTwo();
    comes(0, words);
    expect(() => proxy.step()).toThrow(/^message .* of rank 1 /);
    expect(came(0)).toBe(0);
  });

  test('refuses likewise on another node, and names the rank of its rail', () => {
    const { proxy, arrives } = proxyOfTwo('host', placeOn([0, 0, 1, 1], 3));
    arrives(tagOf(0, 2, 0));
    expect(() => proxy.step()).toThrow(/of rank 5 names no message/);
    arrives(tagIn(tagOf(0, 0, 0), 2));
    expect(() => proxy.step()).toThrow('of rank 1 is not of round 1');
  });

  test('refuses a message that has come before', () => {
    const { proxy, comes } = proxyOfTwo();
    for (const chunk of [0, 1]) comes(chunk, [1, 5, 0]);
    proxy.step();
    comes(1, [1, 5, 0]);
    expect(() => proxy.step()).toThrow('is not of round 2');
  });

  test('tells the kernels likewise of messages that it does not see, by their tags', () => {
    const { proxy, arrives, came } = proxyOfTwo('gpu');
    const comes = (chunk: number, round: number) => arrives(tagIn(tagOf(0, 1, chunk), round));
    for (let round = 1; round <= 20; round++) {
      // Of two rounds in turn: a chunk ahead of its round's first, and one that comes behind it.
      comes(round % 2, round);
      comes(1 - (round % 2), round);
      proxy.step();
      expect([came(0), came(1), came(2)]).toEqual([round, round, 0]);
    }
    comes(1, 20);
    expect(() => proxy.step()).toThrow('is not of round 21');
    comes(0, 22);
    expect(() => proxy.step()).toThrow('is not of round 21');
  });

  test('believes no tag and no header that cannot be, whatever they are, and names whose they are', () => {
    const any = fc.integer({ min: 0, max: 2 ** 32 - 1 });
    const near = fc.oneof({ arbitrary: fc.nat(3), weight: 9 }, { arbitrary: any, weight: 1 });
    const count = fc.oneof({ arbitrary: fc.nat(6), weight: 9 }, { arbitrary: any, weight: 1 });
    const tag = fc.oneof(
      { arbitrary: fc.integer({ min: 0, max: 2 ** 31 - 1 }), weight: 1 },
      {
        arbitrary: fc
          .tuple(fc.nat(1), fc.nat(2), fc.nat(3), fc.constantFrom(1, 1, 1, 0, 2))
          .map(([phase, node, chunk, round]) => tagIn(tagOf(phase, node, chunk), round)),
        weight: 9,
      },
    );
    const ones = (word: number) => word.toString(2).replaceAll('0', '').length;
    let believed = 0;
    fc.assert(
      fc.property(tag, near, count, near, (tag, round, tokens, mask) => {
        const { proxy, memory, writes, phases, arrives } = proxyOfTwo();
        // Every message says so: the tag picks one of them, or none.
        for (const { in: into, room } of phases) {
          for (let chunk = 0; chunk < 3; chunk++) {
            for (const [i, word] of [epochOf(round), tokens, mask, ones(mask)].entries())
              memory.store(into + chunk * room + 4 * i, word);
          }
        }
        const raised = () =>
          phases.map(({ came }) => [0, 1, 2].map((chunk) => numberOfRound(memory.load(came + 4 * chunk))));
        arrives(tag);
        const chunk = chunkOfTag(tag);
        const here = Math.min(Math.max(tokens - 2 * chunk, 0), 2);
        const right =
          roundsAfter(initialEpoch, tag) === 1 &&
          senderOfTag(tag) === 1 &&
          chunk < 3 &&
          round === 1 &&
          tokens <= 5 &&
          (chunk === 0 || here > 0) &&
          mask < 2 ** here;
        if (right) {
          proxy.step();
          believed++;
        } else {
          expect(() => proxy.step()).toThrow(
            expect.objectContaining({
              code: 'HEDDLE_MESSAGE',
              message: expect.stringContaining(`of rank ${senderOfTag(tag)} `),
            }),
          );
        }
        expect(
          raised()
            .flat()
            .filter((word) => word !== 0),
        ).toEqual(right ? [1] : []);
        expect(writes).toEqual([]);
      }),
      { seed: 10, numRuns: 2000 },
    );
    expect(believed).toBeGreaterThan(10);
  });
});

describe('a message that changes after the proxy has looked', () => {
  test.each([1, 2, 3, 4])('never becomes an address (seed %i)', async (seed) => {
    const { plan } = hybrid;
    const garbled: typeof plan = (layer, target, tuning) => {
      const made = plan(layer, target, tuning);
      const { data } = made.wire!.program;
      const module = transpiledUrl('test/moe/families/programs/garbling.ts');
      return {
        ...made,
        wire: Object.assign(made.wire!, {
          program: { module, name: 'garbling', data: { ...(data as ProxyData), seed } },
        }),
      };
    };
    Object.assign(hybrid, { plan: garbled });
    try {
      const machine = SimMachine.create({ ranks: 4, mode: 'checked', seed: String(seed) });
      const shape = shapeOfRounds({ ranks: 4, experts: 8, topK: 2, maxTokens: 5, hidden: 16, dtype: 'bf16' });
      const rounds = [1, 2].map((n) => makeSources(shape, [5, 3, 5, 1], n));
      const world = World.local({ ranks: 4, nodes: 2, device: 'sim', sim: machine }, (world) =>
        runRounds(world, shape, rounds, {
          ...{ family: 'hybrid', counts: true, experts: { blocks: 1, threads: 32 } },
          tuning: {
            dispatch: { chunk: 2, blocks: 2, threads: 32 },
            combine: { blocks: 2, threads: 32, parts: 1 },
          },
        }),
      );
      // Another number of tokens has kernels wait for messages that do not come, or go on without some.
      await world.catch((error: unknown) => expect(error).toBeInstanceOf(RankLostError));
      // What was never sent may be read; nothing is read or written elsewhere.
      const wild = machine.findings.filter(({ kind }) => kind === 'out-of-bounds' || kind === 'misaligned');
      expect(wild.map(formatFinding)).toEqual([]);
    } finally {
      Object.assign(hybrid, { plan });
    }
  });
});
