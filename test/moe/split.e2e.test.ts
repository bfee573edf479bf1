/** Dispatch and combine in two halves each: what they give, and what is refused when they are called out of order. */
import { expect, test } from 'vitest';
import { HeddleError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import { ExpertParallel, type ExpertParallelOptions, emptyTensor, row } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import {
  compareRounds,
  expectedRound,
  makeSources,
  runRounds,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';

const options: ExpertParallelOptions = {
  experts: 4,
  topK: 2,
  maxTokens: 2,
  payloads: { x: row('bf16', 8) },
  output: row('bf16', 8),
  split: true,
};
const inputs = {
  topkIds: Int32Array.of(0, 3, 1, 2),
  topkWeights: Float32Array.of(0.5, 0.5, 0.25, 0.75),
  payloads: { x: new Uint16Array(16) },
};

/** Two ranks that run `program` with an ExpertParallel, its stream, and a tensor for what comes back. */
const withTwo = (
  program: (ep: ExpertParallel, more: Awaited<ReturnType<typeof prepare>>) => Promise<void>,
  changes: Partial<ExpertParallelOptions> = {},
) =>
  World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const more = await prepare(world, changes);
    await program(more.ep, more);
    await more.stream.synchronize();
    await more.ep.dispose();
  });

async function prepare(world: World, changes: Partial<ExpertParallelOptions>) {
  const ep = await ExpertParallel.create(world, { ...options, ...changes });
  const stream = world.device.createStream();
  const out = emptyTensor(world.device, 'bf16', [2, 8]);
  return { world, ep, stream, out };
}

const code = (call: () => unknown): string => {
  try {
    call();
  } catch (error) {
    return error instanceof HeddleError ? error.code : String(error);
  }
  return 'none';
};

test('each call is refused where another comes next', () =>
  withTwo(async (ep, { stream, out }) => {
    expect(code(() => ep.combine(out, stream))).toBe('HEDDLE_NO_ROUND');
    expect(code(() => ep.combineSend(ep.received, stream))).toBe('HEDDLE_NO_ROUND');
    expect(code(() => ep.dispatchRecv({ phase: 'dispatched', tokens: 2 }, stream))).toBe('HEDDLE_NO_ROUND');
    const sent = ep.dispatchSend(inputs, stream);
    expect(sent.tokens).toBe(2);
    expect(code(() => ep.dispatchSend(inputs, stream))).toBe('HEDDLE_ROUND_OPEN');
    expect(code(() => ep.dispatch(inputs, stream))).toBe('HEDDLE_ROUND_OPEN');
    expect(code(() => ep.combine(out, stream))).toBe('HEDDLE_NO_ROUND');
    const received = ep.dispatchRecv(sent, stream);
    expect(code(() => ep.dispatchRecv(sent, stream))).toBe('HEDDLE_NO_ROUND');
    stream.fill(received.output.data, received.output.bytes, 0);
    const combining = ep.combineSend(received, stream);
    expect(code(() => ep.combineSend(received, stream))).toBe('HEDDLE_NO_ROUND');
    ep.combineRecv(combining, out, stream);
    expect(code(() => ep.combineRecv(combining, out, stream))).toBe('HEDDLE_NO_ROUND');
  }));

test('a handle of another round, or of another ExpertParallel, is refused, and the round goes on', () =>
  withTwo(async (ep, { world, stream, out }) => {
    const other = await prepare(world, {});
    const old = ep.dispatchSend(inputs, stream);
    const received = ep.dispatchRecv(old, stream);
    stream.fill(received.output.data, received.output.bytes, 0);
    ep.combineRecv(ep.combineSend(received, stream), out, stream);

    const sent = ep.dispatchSend(inputs, stream);
    expect(code(() => ep.dispatchRecv(old, stream))).toBe('HEDDLE_OTHER_ROUND');
    expect(code(() => ep.dispatchRecv({ ...sent }, stream))).toBe('HEDDLE_OTHER_ROUND');
    ep.dispatchRecv(sent, stream);
    expect(code(() => ep.combineSend(other.ep.received, stream))).toBe('HEDDLE_OTHER_ROUND');
    ep.combineRecv(ep.combineSend(received, stream), out, stream);
    await stream.synchronize();
    await other.ep.dispose();
  }));

test('halves need split: true', () =>
  withTwo(
    async (ep, { stream, out }) => {
      expect(code(() => ep.dispatchSend(inputs, stream))).toBe('HEDDLE_NOT_SPLIT');
      const { output } = ep.dispatch(inputs, stream);
      expect(code(() => ep.combineSend(ep.received, stream))).toBe('HEDDLE_NOT_SPLIT');
      stream.fill(output.data, output.bytes, 0);
      ep.combine(out, stream);
    },
    { split: false },
  ));

test('a call behind dispose is refused', async () => {
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { ep, stream } = await prepare(world, {});
    const sent = ep.dispatchSend(inputs, stream);
    await stream.synchronize();
    await ep.dispose();
    expect(code(() => ep.dispatchRecv(sent, stream))).toBe('HEDDLE_DISPOSED');
  });
});

test('a whole dispatch goes with a combine in halves, and the other way round', () =>
  withTwo(async (ep, { stream, out }) => {
    for (let round = 0; round < 2; round++) {
      const received = ep.dispatch(inputs, stream);
      stream.fill(received.output.data, received.output.bytes, 0);
      ep.combineRecv(ep.combineSend(received, stream), out, stream);
      ep.dispatchRecv(ep.dispatchSend(inputs, stream), stream);
      stream.fill(received.output.data, received.output.bytes, 0);
      ep.combine(out, stream);
    }
  }));

test('rows that one-sided cannot push go by the portable family; asked for by name, it refuses them', () =>
  World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const odd = { ...options, output: row('bf16', 7) };
    await expect(ExpertParallel.create(world, { ...odd, family: 'one-sided' })).rejects.toThrow(
      'output.length is 7; it must be rows of a multiple of 16 bytes',
    );
    const ep = await ExpertParallel.create(world, odd);
    expect(ep.family).toBe('portable');
    await ep.dispose();
  }));

const families = ['one-sided', 'portable'];
test.each(families)(
  'two instances of %s on two streams, halves interleaved, give what the reference gives',
  async (family) => {
    const shape = shapeOfRounds({ ranks: 3, experts: 7, topK: 3, maxTokens: 3, hidden: 16, dtype: 'bf16' });
    const rounds = [1, 2, 3].map((seed) => makeSources(shape, [3, 1, 2], seed));
    const machine = SimMachine.create({ ranks: 3, mode: 'checked', seed: 'two batches' });
    const expected = rounds.map((sources) => expectedRound(shape, sources));
    const results = await World.local({ ranks: 3, device: 'sim', sim: machine }, async (world) => {
      // Created one after the other everywhere; then both run at once.
      const tuning = { split: true, family };
      const [first, second] = await Promise.all([
        runRounds(world, shape, rounds, tuning),
        world.barrier('the second begins').then(() => runRounds(world, shape, rounds, tuning)),
      ]);
      return [first, second];
    }).catch((error: unknown) => error);
    expect(Array.isArray(results)).toBe(true);
    for (const which of [0, 1]) {
      const mine = (results as Awaited<ReturnType<typeof runRounds>>[][]).map((of) => of[which]!);
      expect(compareRounds(shape, rounds, mine, expected).different).toBe(0);
    }
    expect(machine.findings).toEqual([]);
  },
);

test('two rounds in flight take turns, each with views of its own', () =>
  withTwo(
    async (ep, { world, stream, out }) => {
      const [even, odd] = ep.views;
      expect(ep.received).toBe(even);
      const [first, second] = [ep.dispatchSend(inputs, stream), ep.dispatchSend(inputs, stream)];
      expect(code(() => ep.dispatchSend(inputs, stream))).toBe('HEDDLE_ROUND_OPEN');
      expect(code(() => ep.combineSend(odd!, stream))).toBe('HEDDLE_NO_ROUND');
      expect(ep.dispatchRecv(second, stream)).toBe(odd);
      expect(code(() => ep.dispatchRecv(second, stream))).toBe('HEDDLE_OTHER_ROUND'); // the first waits for its own
      expect(code(() => ep.combine(out, stream))).toBe('HEDDLE_NO_ROUND'); // the first round's turn
      expect(ep.dispatchRecv(first, stream)).toBe(even);
      expect(code(() => ep.dispatchRecv(first, stream))).toBe('HEDDLE_NO_ROUND');
      for (const { output } of ep.views) stream.fill(output.data, output.bytes, 0);
      const combining = ep.combineSend(odd!, stream);
      expect(code(() => ep.combineRecv({ ...combining }, out, stream))).toBe('HEDDLE_OTHER_ROUND');
      // The second is combined before the first, but the next round's turn is the first's.
      ep.combineRecv(combining, out, stream);
      expect(code(() => ep.dispatch(inputs, stream))).toBe('HEDDLE_ROUND_OPEN');
      ep.combine(out, stream);
      expect(ep.dispatch(inputs, stream)).toBe(even);
      stream.fill(even!.output.data, even!.output.bytes, 0);
      ep.combine(out, stream);
      await world.barrier('both are done');
    },
    { rounds: 2 },
  ));

test.each([
  ['one-sided', 1],
  ['portable', 1],
  ['hybrid', 2],
])('%s, nodes: %i: a graph of two rounds in flight, replayed on new inputs', async (family, nodes) => {
  const ranks = 4;
  const shape = shapeOfRounds({ ranks, experts: 7, topK: 3, maxTokens: 4, hidden: 24, dtype: 'bf16' });
  const batches = [
    [4, 1, 3, 2],
    [1, 0, 2, 4],
  ];
  const rounds = Array.from({ length: 8 }, (_, n) => makeSources(shape, batches[n % 2]!, n + 1));
  const machine = SimMachine.create({ ranks, seed: `graphs of ${family}` });
  const results = await World.local({ ranks, nodes, device: 'sim', sim: machine }, (world) =>
    runRounds(world, shape, rounds, { family, split: true, rounds: 2, graph: true }),
  );
  const summed = family === 'hybrid' ? nodes : 1;
  const expected = rounds.map((sources) => expectedRound(shape, sources, true, summed));
  expect(compareRounds(shape, rounds, results, expected)).toMatchObject({ different: 0 });

  // Of every replay, the second batch is sent while the first is with its experts, or before.
  for (let rank = 0; rank < ranks; rank++) {
    const launches = (name: RegExp) =>
      machine.trace
        .filter((launch) => launch.rank === rank && name.test(launch.kernel))
        .sort((a, b) => a.start - b.start);
    const [sends, experts] = [launches(/_dispatch_send$/), launches(/^example_experts$/)];
    expect([sends.length, experts.length]).toEqual([rounds.length, rounds.length]);
    for (let n = 0; n < rounds.length; n += 2) expect(sends[n + 1]!.start).toBeLessThan(experts[n]!.end);
  }
});

test('two rounds in flight take twice the memory; more there are not', () => {
  const of = { ...options, ranks: 2 };
  const { bytes, parts } = ExpertParallel.memory(of);
  const both = ExpertParallel.memory({ ...of, rounds: 2 });
  expect(both.bytes).toBe(2 * bytes);
  expect(both.parts.map(({ bytes }) => bytes)).toEqual(parts.map(({ bytes }) => 2 * bytes));
  expect(() => ExpertParallel.memory({ ...of, rounds: 3 as never })).toThrow(/rounds is 3; it must be/);
});
