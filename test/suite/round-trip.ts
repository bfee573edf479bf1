/**
 * Round trips against the reference, bit by bit, on whatever devices a world has: every rank enqueues several rounds
 * with different inputs back to back, looks at what arrived through copies on the stream, and waits only at the end.
 * Simulated GPUs run these cases in Vitest, real ones in test/gpu.
 */
import type { Stream } from '../../src/device/index.js';
import {
  type Bits,
  bitsArray,
  bytesOf,
  type Comparison,
  compareCombined,
  compareReceived,
  type Delivered,
  type Dtype,
  dtypes,
  ExampleExperts,
  ExpertParallel,
  emptyTensor,
  exampleOutput,
  makeAllRoutes,
  mergeComparisons,
  type OwnedTensor,
  type RoutesOptions,
  type Row,
  type RowDtype,
  random,
  randomBytes,
  randomElements,
  readBits,
  reference,
  row,
  type Shape,
  type Source,
  type Tensor,
  type Tuning,
  tensorFrom,
} from '../../src/moe/index.js';
import type { World } from '../../src/world/index.js';

/** One comparison with the reference; `run` is one rank's part of it, and throws where anything differs. */
export interface RoundTripCase {
  readonly name: string;
  readonly ranks: number;
  run(world: World): Promise<void>;
}

/** What a case is made of. */
export interface RoundTrip {
  readonly name: string;
  readonly ranks: number;
  readonly experts: number;
  readonly topK: number;
  readonly maxTokens: number;
  /** [round][rank]. Left out: three rounds of maxTokens. */
  readonly tokens?: readonly (readonly number[])[];
  readonly payloads: Readonly<Record<string, Row>>;
  readonly output: Row & { readonly dtype: RowDtype };
  /** Who multiplies by the router weights; with `combine`, `between` is `rows`, one a route. */
  readonly weighting?: 'experts' | 'combine';
  readonly routes?: RoutesOptions;
  /** Some ids are out of range, which only the device can see. */
  readonly stray?: boolean;
  readonly weights?: boolean;
  readonly counts?: boolean;
  readonly tuning?: Tuning;
  /** Inputs are host arrays instead of tensors. */
  readonly fromHost?: boolean;
  /**
   * What stands between dispatch and combine: rows made up on the host (any payloads will do), payload `x` copied, or
   * the example experts, which read everything that arrives.
   */
  readonly between: 'rows' | 'copy' | 'example';
  /** All rounds are captured as one graph, which runs so often; looked at after the first, in the middle, at the end. */
  readonly replays?: number;
}

/** What everybody brings to a round and gets from it, by rank. */
interface ExpectedRound {
  readonly sources: readonly Source[];
  readonly outputs: readonly Bits[];
  readonly out: readonly Bits[];
}

export function roundTripCase(trip: RoundTrip): RoundTripCase {
  const shape = shapeOf(trip);
  // Ranks of one process share it. It goes with the case.
  let expected: readonly ExpectedRound[] | undefined;
  let users = 0;
  return {
    name: trip.name,
    ranks: trip.ranks,
    run: async (world) => {
      users++;
      try {
        expected ??= expectedRounds(trip, shape);
        await run(world, trip, shape, expected);
      } finally {
        if (--users === 0) expected = undefined;
      }
    },
  };
}

const shapeOf = ({ ranks, experts, topK, maxTokens, payloads, output, weighting }: RoundTrip): Shape => ({
  ranks,
  experts,
  topK,
  maxTokens,
  payloads: Object.entries(payloads).map(([name, { dtype, length }]) => ({
    name,
    rowBytes: dtypes[dtype].size * length,
  })),
  output: { dtype: output.dtype, hidden: output.length, ...(weighting && { weighting }) },
});

function expectedRounds(trip: RoundTrip, shape: Shape): ExpectedRound[] {
  const full = Array.from({ length: trip.ranks }, () => trip.maxTokens);
  return (trip.tokens ?? [full, full, full]).map((tokens, round) => {
    const sources = sourcesOf(trip, shape, tokens, 1 + round);
    const outputs = sources.map((_, rank) => {
      if (trip.between === 'rows') {
        const rows = trip.ranks * trip.maxTokens * (trip.weighting === 'combine' ? trip.topK : 1);
        const elements = rows * shape.output.hidden;
        return randomElements(shape.output.dtype, elements, 1000 * (round + 1) + rank, 6);
      }
      const received = reference.dispatch(shape, sources, rank);
      if (trip.between === 'example') return exampleOutput(shape, received, trip.weights ?? true);
      const plane = bitsArray(
        shape.output.dtype,
        received.payloads.x!.length / dtypes[shape.output.dtype].size,
      );
      bytesOf(plane).set(received.payloads.x!);
      return plane;
    });
    const out = sources.map((source, rank) => reference.combine(shape, source, rank, outputs));
    return { sources, outputs, out };
  });
}

function sourcesOf(trip: RoundTrip, shape: Shape, tokens: readonly number[], seed: number): Source[] {
  return makeAllRoutes(shape, tokens, seed, trip.routes).map((routes, rank) => {
    const draw = random(seed, rank, 9);
    if (trip.stray) {
      const strays = [trip.experts, -9, 2 ** 31 - 1, -(2 ** 31)];
      for (let i = 0; i < routes.topkIds.length; i++) {
        if (draw.below(4) === 0) routes.topkIds[i] = strays[draw.below(strays.length)]!;
      }
    }
    const payloads = shape.payloads.map(({ name, rowBytes }, i) => {
      const own = seed * 1009 + rank * 16 + i;
      // Arithmetic needs numbers; everything else is bytes.
      return name === 'x' && trip.between !== 'rows'
        ? [name, bytesOf(randomElements(shape.output.dtype, routes.tokens * shape.output.hidden, own, 6))]
        : [name, randomBytes(routes.tokens * rowBytes, own)];
    });
    return { ...routes, payloads: Object.fromEntries(payloads) as Record<string, Uint8Array> };
  });
}

/** One rank's tensors of one round. */
interface Buffers {
  readonly source: Source;
  readonly inputs: Parameters<ExpertParallel['dispatch']>[0];
  /** Where `rows` come from. */
  readonly rows: Tensor | null;
  readonly snapshots: readonly { readonly name: string; readonly from: Tensor; readonly to: Tensor }[];
  readonly out: Tensor;
}

async function run(
  world: World,
  trip: RoundTrip,
  shape: Shape,
  expected: readonly ExpectedRound[],
): Promise<void> {
  const { experts, topK, maxTokens, payloads, output, tuning, weights = true, counts = false } = trip;
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens,
    payloads,
    output,
    weights,
    counts,
    ...(trip.weighting && { weighting: trip.weighting }),
    ...(tuning && { tuning }),
  });
  const stream = world.device.createStream();
  const owned: OwnedTensor[] = [];
  const own = <T extends OwnedTensor>(tensor: T): T => {
    owned.push(tensor);
    return tensor;
  };
  const example = trip.between === 'example' ? await ExampleExperts.create(world, ep, stream) : null;
  const rounds = expected.map(({ sources, outputs }): Buffers => {
    const source = sources[world.rank]!;
    const place = (bits: Bits, dtype: Dtype, width: number) =>
      trip.fromHost
        ? bits
        : own(tensorFrom(world.device, stream, bits, dtype, [source.tokens, width], 'input'));
    const parts = Object.entries({ ...ep.received.payloads, experts: ep.received.experts });
    if (ep.received.weights) parts.push(['weights', ep.received.weights]);
    if (ep.received.counts) parts.push(['counts', ep.received.counts]);
    return {
      source,
      inputs: {
        topkIds: place(source.topkIds, 'i32', topK),
        ...(weights && { topkWeights: place(source.topkWeights!, 'f32', topK) }),
        payloads: Object.fromEntries(
          shape.payloads.map(({ name, rowBytes }) => [name, place(source.payloads[name]!, 'u8', rowBytes)]),
        ),
      },
      rows:
        trip.between === 'rows'
          ? own(tensorFrom(world.device, stream, outputs[world.rank]!, output.dtype))
          : null,
      snapshots: parts.map(([name, from]) => ({
        name,
        from,
        to: own(emptyTensor(world.device, from.dtype, from.shape, `${name} as received`)),
      })),
      out: own(emptyTensor(world.device, output.dtype, [source.tokens, output.length], 'out')),
    };
  });
  const copy = (to: Tensor, from: Tensor) => {
    if (from.bytes > 0) stream.copy(to.data, from.data, from.bytes);
  };
  const enqueue = ({ inputs, rows, snapshots, out }: Buffers) => {
    const received = ep.dispatch(inputs, stream);
    for (const { to, from } of snapshots) copy(to, from);
    if (rows) copy(received.output, rows);
    else if (example) example.run(stream);
    else copy(received.output, received.payloads.x!);
    ep.combine(out, stream);
  };
  const check = async () => {
    await ep.synchronize(stream);
    // On GPUs of one process, nobody makes or frees memory while another's kernels still wait for a peer.
    await world.barrier('rounds are done');
    const found: Comparison[] = [];
    for (const [i, buffers] of rounds.entries()) {
      found.push(await compare(world.rank, shape, buffers, expected[i]!, stream));
    }
    const { different, compared, first } = mergeComparisons(found);
    if (different > 0) throw new Error(`${trip.name}: ${different} of ${compared} differ; ${first}`);
  };

  await world.barrier('buffers are ready');
  if (trip.replays === undefined) {
    for (const round of rounds) enqueue(round);
    await check();
  } else {
    stream.beginCapture();
    for (const round of rounds) enqueue(round);
    const graph = stream.endCapture();
    const looks = [0, trip.replays >> 1, trip.replays - 1];
    for (let replay = 0; replay < trip.replays; replay++) {
      // Bits of an earlier replay are no proof.
      if (looks.includes(replay)) {
        for (const { out, snapshots } of rounds) {
          for (const tensor of [out, ...snapshots.map(({ to }) => to)]) {
            if (tensor.bytes > 0) stream.fill(tensor.data, tensor.bytes, 0xa5);
          }
        }
      }
      graph.launch(stream);
      if (looks.includes(replay)) await check();
      // A GPU's queue holds about a thousand launches; a host that fills it blocks, and in one process so do all.
      else if (replay % 8 === 0) await world.barrier('keeping pace');
    }
    graph.dispose();
  }

  await world.barrier('compared');
  example?.free();
  for (const tensor of owned) tensor.free();
  await ep.dispose();
  stream.dispose();
}

async function compare(
  rank: number,
  shape: Shape,
  { snapshots, out }: Buffers,
  expected: ExpectedRound,
  stream: Stream,
): Promise<Comparison> {
  const bits: Record<string, Bits> = {};
  for (const { name, to } of snapshots) bits[name] = await readBits(to, stream);
  const { experts, weights, counts } = bits;
  const delivered: Delivered = {
    experts: experts as Int32Array,
    ...(weights && { weights: weights as Float32Array }),
    ...(counts && { counts: counts as Uint32Array }),
    payloads: Object.fromEntries(shape.payloads.map(({ name }) => [name, bytesOf(bits[name]!)])),
  };
  return mergeComparisons([
    compareReceived(shape, expected.sources, rank, delivered),
    compareCombined(shape, rank, await readBits(out, stream), expected.out[rank]!),
  ]);
}

const noPayloads: Readonly<Record<string, Row>> = {};
const u8 = (...lengths: number[]): Readonly<Record<string, Row>> =>
  Object.fromEntries(lengths.map((length, i) => [`p${i}`, row('u8', length)]));
const out = (dtype: RowDtype, length: number): RoundTrip['output'] => ({ dtype, length });

function tuning(
  way: 'pull' | 'push',
  [blocks, threads, parts]: readonly [number, number, number],
  ahead = 1,
  { send = 'store', inFlight = 4 }: { readonly send?: 'store' | 'bulk'; readonly inFlight?: number } = {},
): Tuning {
  const launch = { blocks, threads, parts, inFlight };
  return { dispatch: { ...launch, way: send }, combine: { ...launch, way, ahead } };
}
const bulk = { send: 'bulk' } as const;

/** The cases of a world of so many ranks. */
export function roundTripCases(ranks: number, { replays }: { replays: number }): RoundTripCase[] {
  const plain: Omit<RoundTrip, 'name'> = {
    ranks,
    experts: 3 * ranks + 1,
    topK: 4,
    maxTokens: 5,
    payloads: { x: row('bf16', 24) },
    output: out('bf16', 24),
    between: 'example',
  };
  const full = Array.from({ length: ranks }, () => plain.maxTokens);
  const none = full.map(() => 0);
  const some = full.map((most, rank) => (rank * 3 + 2) % (most + 1));
  const onlyLast = none.map((_, rank) => (rank === ranks - 1 ? 5 : 0));

  const trips: Record<string, Partial<RoundTrip>> = {
    bf16: {},
    f16: { payloads: { x: row('f16', 40) }, output: out('f16', 40) },
    f32: { payloads: { x: row('f32', 12) }, output: out('f32', 12) },
    'fp8 rows with scales, bf16 back': {
      payloads: { x: row('e4m3', 256), scales: row('f32', 2) },
      output: out('bf16', 256),
      between: 'rows',
    },
    'no payloads': { payloads: noPayloads, between: 'rows' },
    'one payload of one byte': { payloads: u8(1), between: 'rows' },
    'two payloads of odd lengths': { payloads: u8(3, 17), between: 'rows' },
    'eight payloads': { payloads: u8(1, 2, 3, 4, 8, 16, 33, 100), between: 'rows' },
    'payloads copied, counts': { counts: true, between: 'copy' },
    'rows of one element': { payloads: { x: row('bf16', 1) }, output: out('bf16', 1) },
    'rows of 13 f16': { payloads: { x: row('f16', 13) }, output: out('f16', 13) },
    'rows of 77 f32': { payloads: { x: row('f32', 77) }, output: out('f32', 77), counts: true },
    'rows of 1000 bf16': { payloads: { x: row('bf16', 1000) }, output: out('bf16', 1000) },
    'uneven and empty ranks': { tokens: [some, none, onlyLast, full, some], counts: true },
    'nobody brings a token': { tokens: [none, none], counts: true },
    'holes (-1)': { routes: { holes: 0.4 }, counts: true },
    'ids out of range': { stray: true, counts: true },
    'repeated experts': { routes: { router: { kind: 'repeated' } }, counts: true },
    'all remote': { routes: { router: { kind: 'remote' } } },
    'one rank has it all': { routes: { router: { kind: 'one-rank', target: ranks >> 1 } }, counts: true },
    'fewer experts than ranks': { experts: Math.max(1, ranks - 1), topK: 2, counts: true },
    'top-1': { topK: 1 },
    'top-32': { topK: 32, experts: 40, maxTokens: 3, counts: true },
    'combine weighs': { weighting: 'combine', between: 'rows', routes: { router: { kind: 'repeated' } } },
    'combine weighs, rows of 13 f16, holes': {
      weighting: 'combine',
      between: 'rows',
      payloads: u8(7),
      output: out('f16', 13),
      routes: { holes: 0.4 },
    },
    'combine weighs, pull, f32 in three parts': {
      weighting: 'combine',
      between: 'rows',
      output: out('f32', 40),
      tuning: tuning('pull', [4, 96, 3]),
    },
    'combine weighs, a graph of two rounds, replayed': {
      weighting: 'combine',
      between: 'rows',
      tokens: [full, some],
      replays,
    },
    'no weights': { weights: false },
    'no weights, counts, nine rounds': {
      weights: false,
      counts: true,
      tokens: [full, some, full, full, none, some, onlyLast, full, full],
    },
    'host arrays': { fromHost: true, tokens: [full, some, none, full], counts: true },
    'pull, one small block': { tuning: tuning('pull', [1, 32, 1]), counts: true },
    'pull, rows in three parts': { tuning: tuning('pull', [4, 96, 3]), counts: true },
    'pull, a block a piece': { tuning: tuning('pull', [64, 256, 2]) },
    'pull, top-32': { topK: 32, experts: 40, maxTokens: 3, tuning: tuning('pull', [3, 64, 1]) },
    'push, one small block': { tuning: tuning('push', [1, 32, 1], 0), counts: true },
    'push, rows in three parts': { tuning: tuning('push', [4, 96, 3], 2), counts: true },
    'push, a block a piece': { tuning: tuning('push', [64, 256, 2], 1) },
    'push, far ahead': { tuning: tuning('push', [2, 64, 1], 7) },
    'a vector in flight': {
      payloads: { x: row('bf16', 1000) },
      output: out('bf16', 1000),
      tuning: tuning('push', [2, 32, 1], 1, { inFlight: 1 }),
    },
    'eight vectors in flight, rows in two parts': {
      payloads: { x: row('bf16', 4000) },
      output: out('bf16', 4000),
      tuning: tuning('push', [3, 32, 2], 1, { inFlight: 8 }),
    },
    'bulk, rows take turns in one stage': { tuning: tuning('push', [1, 32, 1], 1, bulk), counts: true },
    'bulk, odd payloads beside, uneven and empty ranks, three parts': {
      payloads: { x: row('bf16', 104), ...u8(17, 48, 100, 16) },
      output: out('bf16', 104),
      tokens: [some, none, onlyLast, full, some],
      tuning: tuning('push', [4, 96, 3], 2, bulk),
      counts: true,
    },
    'bulk, nothing but odd payloads, pull': {
      payloads: u8(3, 20),
      between: 'rows',
      tuning: tuning('pull', [3, 64, 1], 1, bulk),
    },
    'bulk, pull, more stages than rows': { tuning: tuning('pull', [64, 256, 2], 1, bulk) },
    'bulk, rows longer than a stage': {
      payloads: { x: row('f32', 1500) },
      output: out('f32', 1500),
      between: 'copy',
      tuning: tuning('push', [2, 1024, 1], 1, bulk),
    },
    'bulk, a graph of two rounds, replayed': {
      replays,
      tokens: [full, some],
      tuning: tuning('push', [2, 64, 1], 1, bulk),
    },
    'a graph of two rounds, replayed': { replays, tokens: [full, some], counts: true },
    'a graph of two pulling rounds, replayed': {
      replays,
      tokens: [some, full],
      tuning: tuning('pull', [5, 64, 1]),
    },
    'a graph with host arrays': { replays: 10, fromHost: true, tokens: [full, full] },
  };
  return Object.entries(trips)
    .filter(([name]) => name !== 'all remote' || ranks > 1)
    .map(([name, trip]) => roundTripCase({ ...plain, ...trip, name }));
}

/** A large model's layer, with whatever tuning suits it; too much for simulated GPUs. */
export function largeCases(ranks: number): RoundTripCase[] {
  const layer = { ranks, experts: 256, topK: 8 };
  const bf16 = { payloads: { x: row('bf16', 7168) }, output: out('bf16', 7168), between: 'copy' } as const;
  const sizes = [1, 2, 8, 32, 128, 384].map((maxTokens) =>
    roundTripCase({
      ...layer,
      ...bf16,
      name: `7168 bf16, top-8 of 256, ${maxTokens} tokens`,
      maxTokens,
      tokens: Array.from({ length: maxTokens > 100 ? 2 : 5 }, () => Array<number>(ranks).fill(maxTokens)),
    }),
  );
  return [
    ...sizes,
    roundTripCase({
      ...layer,
      name: '7168 fp8 with scales, bf16 back, 16 tokens, counts',
      maxTokens: 16,
      counts: true,
      payloads: { x: row('e4m3', 7168), scales: row('f32', 56) },
      output: out('bf16', 7168),
      between: 'rows',
    }),
    roundTripCase({
      ...layer,
      ...bf16,
      name: '7168 bf16, weighted by experts, 24 of 32 tokens, in a graph',
      maxTokens: 32,
      counts: true,
      tokens: [Array<number>(ranks).fill(24), Array<number>(ranks).fill(32)],
      between: 'example',
      replays: 100,
    }),
  ];
}
