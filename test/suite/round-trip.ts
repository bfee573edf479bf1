/**
 * Round trips against the reference, bit by bit, on whatever devices a world has: every rank enqueues several rounds
 * with different inputs back to back, looks at what arrived through copies on the stream, and waits only at the end.
 * Simulated GPUs run these cases in Vitest, real ones in test/on-gpus.
 */
import type { Stream } from '../../src/gpu/index.js';
import type { TransportName, Tuning } from '../../src/moe/families/index.js';
import {
  bytesOf,
  ExpertParallel,
  emptyTensor,
  type MadeRows,
  type OwnedTensor,
  type Row,
  readBits,
  row,
  type Tensor,
  tensorFrom,
  wrap,
} from '../../src/moe/index.js';
import {
  type Bits,
  bitsArray,
  bitsOf,
  type Dtype,
  dtypes,
  type RowDtype,
  type RowFormatName,
  reference,
  type Shape,
  type Source,
  sharing,
} from '../../src/moe/layer/index.js';
import type { World } from '../../src/net/world/index.js';
import {
  type Comparison,
  compareCombined,
  compareReceived,
  type Delivered,
  ExampleExperts,
  exampleOutput,
  makeAllRoutes,
  mergeComparisons,
  type RoutesOptions,
  random,
  randomBytes,
  randomElements,
} from '../../src/verify/testing/index.js';

/** One comparison with the reference. */
export interface RoundTripCase {
  readonly name: string;
  readonly ranks: number;
  /** One rank's part of it: throws where anything differs from the reference. */
  run(world: World): Promise<void>;
}

/** The families of one node. */
export const familyNames = ['one-sided', 'portable'] as const;
/** Those that these cases know how to tune. */
export type FamilyName = (typeof familyNames)[number] | 'hybrid';

/** What a case is made of. */
export interface RoundTrip {
  readonly name: string;
  readonly ranks: number;
  readonly experts: number;
  readonly topK: number;
  readonly maxTokens: number;
  readonly replicas?: number;
  /** [round][rank]. Left out: three rounds of maxTokens. */
  readonly tokens?: readonly (readonly number[])[];
  readonly payloads: Readonly<Record<string, Row>>;
  readonly output: Row & { readonly dtype: RowDtype };
  /** Who multiplies by the router weights; with `plan`, the rows between are one a route, each at its own index. */
  readonly weighting?: 'experts' | 'plan';
  readonly combineFormat?: RowFormatName;
  readonly routes?: RoutesOptions;
  /** Some ids are out of range, which only the device can see. */
  readonly stray?: boolean;
  readonly weights?: boolean;
  readonly counts?: boolean;
  readonly family?: FamilyName;
  readonly transport?: TransportName;
  readonly tuning?: Tuning;
  readonly waitMs?: number;
  /** Inputs are host arrays instead of tensors. */
  readonly fromHost?: boolean;
  /**
   * What stands between dispatch and combine: rows made up on the host (any payloads will do), payload `x` copied, or
   * the example experts, which read everything that arrives.
   */
  readonly between: 'rows' | 'copy' | 'example';
  /** Among the `rows`, which are f32, stand values that arithmetic treats in ways of their own. */
  readonly extremes?: boolean;
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
        expected ??= expectedRounds(trip, shape, world.topology.nodes);
        await run(world, trip, shape, expected);
      } finally {
        if (--users === 0) expected = undefined;
      }
    },
  };
}

const shapeOf = ({ ranks, experts, topK, maxTokens, payloads, output, ...trip }: RoundTrip): Shape => ({
  ranks,
  experts,
  topK,
  maxTokens,
  ...(trip.replicas && { replicas: trip.replicas }),
  payloads: Object.entries(payloads).map(([name, { dtype, length }]) => ({
    name,
    rowBytes: dtypes[dtype].size * length,
  })),
  output: { dtype: output.dtype, hidden: output.length, ...journey(trip) },
});

/** What of a trip is both in the layer's options and in the reference's shape. */
const journey = ({ weighting, combineFormat }: Pick<RoundTrip, 'weighting' | 'combineFormat'>) => ({
  ...(weighting && { weighting }),
  ...(combineFormat && { combineFormat }),
});

function expectedRounds(trip: RoundTrip, shape: Shape, worldNodes: number): ExpectedRound[] {
  // Hybrid adds up inside each node first.
  const nodes = trip.family === 'hybrid' ? worldNodes : 1;
  const full = Array.from({ length: trip.ranks }, () => trip.maxTokens);
  return (trip.tokens ?? [full, full, full]).map((tokens, round) => {
    const sources = sourcesOf(trip, shape, tokens, 1 + round);
    const outputs = sources.map((_, rank) => {
      if (trip.between === 'rows') {
        const rows = sharing(shape).groups * trip.maxTokens * (trip.weighting === 'plan' ? trip.topK : 1);
        const elements = rows * shape.output.hidden;
        const made = randomElements(shape.output.dtype, elements, 1000 * (round + 1) + rank, 6);
        return trip.extremes ? withExtremes(made, shape.output.hidden, rank) : made;
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
    const out = sources.map((source, rank) => reference.combine(shape, source, rank, outputs, nodes));
    return { sources, outputs, out };
  });
}

const extremes = [
  ...[0, -0, 448, 449, -464, 1.5e38, -1.5e38, 1e-45, 1.2e-38, 2 ** -126, 2 ** -131],
  ...[Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
];

/** Each block of 128 elements, which share a scale as e4m3, has one of `extremes` among its values. */
function withExtremes(rows: Bits, hidden: number, rank: number): Bits {
  return rows.map((value, i) => {
    const block = Math.floor((i % hidden) / 128);
    return i % 16 === rank ? value : extremes[(block + rank) % extremes.length]! / ((i % 7) + 1);
  });
}

function sourcesOf(trip: RoundTrip, shape: Shape, tokens: readonly number[], seed: number): Source[] {
  return makeAllRoutes(shape, tokens, seed, trip.routes).map((routes, rank) => {
    const first = rank - (rank % sharing(shape).replicas);
    const draw = random(seed, first, 9);
    if (trip.stray) {
      const strays = [trip.experts, -9, 2 ** 31 - 1, -(2 ** 31)];
      for (let i = 0; i < routes.topkIds.length; i++) {
        if (draw.below(4) === 0) routes.topkIds[i] = strays[draw.below(strays.length)]!;
      }
    }
    const payloads = shape.payloads.map(({ name, rowBytes }, i) => {
      const own = seed * 1009 + first * 16 + i;
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
  /** Where combine takes them, if it weighs. */
  readonly made: MadeRows | undefined;
  readonly snapshots: readonly { readonly name: string; readonly from: Tensor; readonly to: Tensor }[];
  readonly out: Tensor;
}

async function run(
  world: World,
  trip: RoundTrip,
  shape: Shape,
  expected: readonly ExpectedRound[],
): Promise<void> {
  const { experts, topK, maxTokens, payloads, output, weights = true, counts = false } = trip;
  const { family, transport, tuning, waitMs, replicas } = trip;
  const ep = await ExpertParallel.create(world, {
    experts,
    topK,
    maxTokens,
    payloads,
    output,
    weights,
    counts,
    ...journey(trip),
    ...(replicas && { replicas }),
    ...(family && { family }),
    ...(transport && { transport }),
    ...(tuning && { tuning }),
    ...(waitMs && { waitMs }),
  });
  const stream = world.device.createStream();
  const owned: OwnedTensor[] = [];
  const own = <T extends OwnedTensor>(tensor: T): T => {
    owned.push(tensor);
    return tensor;
  };
  const example = trip.between === 'example' ? await ExampleExperts.create(world, ep, stream) : null;
  /** A row for each route that arrives here, at the route's own index. */
  const identity = (rows: Tensor, sources: readonly Source[]): MadeRows => {
    const { experts, weights } = reference.dispatch(shape, sources, world.rank);
    const routes = [...ep.received.experts.shape];
    return {
      rows: wrap(rows.data, rows.dtype, [experts.length, output.length]),
      scatter: own(
        tensorFrom(
          world.device,
          stream,
          experts.map((id, route) => (id < 0 ? -1 : route)),
          'i32',
          routes,
        ),
      ),
      weights: own(tensorFrom(world.device, stream, weights, 'f32', routes)),
    };
  };
  const rounds = expected.map(({ sources, outputs }): Buffers => {
    const source = sources[world.rank]!;
    const place = (bits: Bits, dtype: Dtype, width: number) =>
      trip.fromHost
        ? bits
        : own(tensorFrom(world.device, stream, bits, dtype, [source.tokens, width], 'input'));
    const parts = Object.entries({ ...ep.received.payloads, experts: ep.received.experts });
    if (ep.received.weights) parts.push(['weights', ep.received.weights]);
    if (ep.received.counts) parts.push(['counts', ep.received.counts]);
    const rows =
      trip.between === 'rows'
        ? own(tensorFrom(world.device, stream, outputs[world.rank]!, output.dtype))
        : null;
    return {
      source,
      inputs: {
        topkIds: place(source.topkIds, 'i32', topK),
        ...(weights && { topkWeights: place(source.topkWeights!, 'f32', topK) }),
        payloads: Object.fromEntries(
          Object.entries(payloads).map(([name, { dtype, length }]) => {
            return [name, place(bitsOf(dtype, source.payloads[name]!), dtype, length)];
          }),
        ),
      },
      rows,
      made: rows && trip.weighting === 'plan' ? identity(rows, sources) : example?.made,
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
  const enqueue = ({ inputs, rows, made, snapshots, out }: Buffers) => {
    const received = ep.dispatch(inputs, stream);
    for (const { to, from } of snapshots) copy(to, from);
    if (example) example.run(stream);
    else if (!made) copy(received.output, rows ?? received.payloads.x!);
    ep.combine(out, stream, made);
  };
  const check = async (): Promise<void> => {
    await ep.synchronize(stream);
    // On GPUs of one process, nobody makes or frees memory while another's kernels still wait for a peer.
    await world.barrier('rounds are done');
    const found: Comparison[] = [];
    for (const [i, buffers] of rounds.entries())
      found.push(compare(world.rank, shape, await look(shape, buffers, stream), expected[i]!));
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

/** One rank's round, as it was read back. */
interface Outcome {
  readonly received: Delivered;
  readonly out: Bits;
}

async function look(shape: Shape, { snapshots, out }: Buffers, stream: Stream): Promise<Outcome> {
  const bits: Record<string, Bits> = {};
  for (const { name, to } of snapshots) bits[name] = await readBits(to, stream);
  const { experts, weights, counts } = bits;
  const received: Delivered = {
    experts: experts as Int32Array,
    ...(weights && { weights: weights as Float32Array }),
    ...(counts && { counts: counts as Uint32Array }),
    payloads: Object.fromEntries(shape.payloads.map(({ name }) => [name, bytesOf(bits[name]!)])),
  };
  return { received, out: await readBits(out, stream) };
}

const compare = (
  rank: number,
  shape: Shape,
  { received, out }: Outcome,
  expected: ExpectedRound,
): Comparison =>
  mergeComparisons([
    compareReceived(shape, expected.sources, rank, received),
    compareCombined(shape, rank, out, expected.out[rank]!),
  ]);

const noPayloads: Readonly<Record<string, Row>> = {};
const u8 = (...lengths: number[]): Readonly<Record<string, Row>> =>
  Object.fromEntries(lengths.map((length, i) => [`p${i}`, row('u8', length)]));
const out = (dtype: RowDtype, length: number): RoundTrip['output'] => ({ dtype, length });

/** Experts between rows of one type, which come back as e4m3 with scales. */
const asE4m3 = (dtype: RowDtype, length: number, combineFormat: RowFormatName = 'e4m3') =>
  ({ payloads: { x: row(dtype, length) }, output: out(dtype, length), combineFormat }) as const;

function tuning(
  way: 'pull' | 'push',
  [blocks, threads, parts]: readonly [number, number, number],
  ahead = 1,
  inFlight = 4,
): Tuning {
  const launch = { blocks, threads, parts, inFlight, teams: 1 };
  return { dispatch: launch, combine: { ...launch, way, ahead } };
}

/** A tuning as the family has it; null where it asks for a way that the family has not. */
function tuningOf(family: FamilyName, tuning: Tuning): Tuning | null {
  if (family === 'one-sided') return tuning;
  const { dispatch, combine } = tuning;
  if (dispatch === undefined || combine?.way !== 'push') return null;
  if (family === 'hybrid') {
    const { blocks, threads, parts } = dispatch;
    return {
      dispatch: { blocks: blocks!, threads: threads!, chunk: parts! },
      combine: { blocks: combine.blocks!, threads: combine.threads!, parts: combine.parts! },
    };
  }
  const spread = ({ blocks, threads, parts }: Tuning[string]) => ({
    blocks: blocks!,
    threads: threads!,
    parts: parts!,
  });
  return { dispatch: spread(dispatch), combine: spread(combine) };
}

/** The cases of a world of so many ranks; graphs run `replays` times, kernels wait for `waitMs`. */
export function roundTripCases(
  ranks: number,
  {
    family = 'one-sided',
    transport = 'windows',
    replays,
    waitMs,
  }: {
    readonly family?: FamilyName;
    readonly transport?: TransportName;
    readonly replays: number;
    readonly waitMs?: number;
  },
): RoundTripCase[] {
  const plain: Omit<RoundTrip, 'name'> = {
    ranks,
    family,
    transport,
    experts: 3 * ranks + 1,
    topK: 4,
    maxTokens: 5,
    payloads: { x: row('bf16', 24) },
    output: out('bf16', 24),
    between: 'example',
    ...(waitMs && { waitMs }),
  };
  const full = Array.from({ length: ranks }, () => plain.maxTokens);
  const none = full.map(() => 0);
  const some = full.map((most, rank) => (rank * 3 + 2) % (most + 1));
  /** Pairs, or where they do not divide the ranks, all of them. */
  const replicas = ranks % 2 === 0 ? 2 : ranks;
  const twos = full.map(() => 2);
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
    'mxfp8 rows with scales, f16 back': {
      payloads: { x: row('e4m3', 96), scales: row('u8', 96 / 32) },
      output: out('f16', 96),
      between: 'rows',
    },
    'nvfp4 rows with scales, bf16 back': {
      payloads: { x: row('u8', 80 / 2), scales: row('e4m3', 80 / 16), scale: row('f32', 1) },
      output: out('bf16', 80),
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
    'fewer experts than ranks': {
      experts: Math.max(1, ranks - 1),
      topK: Math.min(2, Math.max(1, ranks - 1)),
      counts: true,
    },
    'top-1': { topK: 1 },
    'top-32': { topK: 32, experts: 40, maxTokens: 3, counts: true },
    'combine weighs': { weighting: 'plan', between: 'rows', routes: { router: { kind: 'repeated' } } },
    'combine weighs, rows of 13 f16, holes': {
      weighting: 'plan',
      between: 'rows',
      payloads: u8(7),
      output: out('f16', 13),
      routes: { holes: 0.4 },
    },
    'combine weighs, pull, f32 in three parts': {
      weighting: 'plan',
      between: 'rows',
      output: out('f32', 40),
      tuning: tuning('pull', [4, 96, 3]),
    },
    'combine weighs, a graph of two rounds, replayed': {
      weighting: 'plan',
      between: 'rows',
      tokens: [full, some],
      replays,
    },
    'bf16 as e4m3': { ...asE4m3('bf16', 144), counts: true },
    'f16 as e4m3, rows in three parts, holes': {
      ...asE4m3('f16', 272),
      routes: { holes: 0.4 },
      tuning: tuning('push', [4, 96, 3], 2),
    },
    'f32 as e4m3, uneven and empty ranks': {
      ...asE4m3('f32', 16),
      tokens: [some, none, onlyLast, full, some],
    },
    'f32 as e4m3, values of every kind': {
      ...asE4m3('f32', 14 * 128),
      payloads: noPayloads,
      between: 'rows',
      extremes: true,
      maxTokens: 2,
    },
    'combine weighs, bf16 as e4m3': {
      ...asE4m3('bf16', 144),
      weighting: 'plan',
      routes: { router: { kind: 'repeated' } },
    },
    'combine weighs, f32 as e4m3, one small block, holes': {
      ...asE4m3('f32', 144),
      weighting: 'plan',
      routes: { holes: 0.4 },
      tuning: tuning('push', [1, 32, 1], 0),
    },
    'bf16 as e4m3, a graph of two rounds, replayed': { ...asE4m3('bf16', 48), tokens: [some, full], replays },
    'bf16 as mxfp8': { ...asE4m3('bf16', 144, 'mxfp8'), counts: true },
    'f32 as mxfp8, values of every kind': {
      ...asE4m3('f32', 14 * 128, 'mxfp8'),
      payloads: noPayloads,
      between: 'rows',
      extremes: true,
      maxTokens: 2,
    },
    'combine weighs, f16 as mxfp8, rows in three parts, holes': {
      ...asE4m3('f16', 1040, 'mxfp8'),
      weighting: 'plan',
      routes: { holes: 0.4 },
      tuning: tuning('push', [4, 96, 3], 2),
    },
    'groups, bf16 as mxfp8': { ...asE4m3('bf16', 1040, 'mxfp8'), replicas, maxTokens: 2 * replicas },
    'groups, counts': { replicas, maxTokens: 3 * replicas, counts: true },
    'groups, two tokens each, rows in three parts': {
      ...{ replicas, maxTokens: 3 * replicas, tokens: [twos, none, twos] },
      tuning: tuning('push', [4, 96, 3], 2),
    },
    'groups, bf16 as e4m3': { ...asE4m3('bf16', 1040), replicas, maxTokens: 2 * replicas },
    'groups, pull': { replicas, maxTokens: 2 * replicas, tuning: tuning('pull', [4, 96, 3]), counts: true },
    'groups, a graph, replayed': { replicas, maxTokens: 2 * replicas, replays },
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
      tuning: tuning('push', [2, 32, 1], 1, 1),
    },
    'eight vectors in flight, rows in two parts': {
      payloads: { x: row('bf16', 4000) },
      output: out('bf16', 4000),
      tuning: tuning('push', [3, 32, 2], 1, 8),
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
    .flatMap(([name, { tuning, ...trip }]) => {
      const tuned = tuning && tuningOf(family, tuning);
      return tuned === null
        ? []
        : [roundTripCase({ ...plain, ...trip, name, ...(tuned && { tuning: tuned }) })];
    });
}

/** Every feature once: those that each network must carry. */
const features =
  /^(bf16|no payloads|eight payloads|uneven and empty ranks|nobody brings a token|ids out of range|combine weighs|bf16 as e4m3|bf16 as mxfp8|groups, counts|no weights|host arrays|push, rows in three parts|a graph of two rounds, replayed)$/;

/** The cases of worlds of several nodes. */
export const casesAcross = (ranks: number): RoundTripCase[] =>
  roundTripCases(ranks, { family: 'hybrid', replays: 3 }).filter(({ name }) => features.test(name));

/** A large model's layer, with whatever tuning suits it; too much for simulated GPUs. */
export function largeCases(ranks: number, family: FamilyName = 'one-sided'): RoundTripCase[] {
  const layer = { ranks, family, experts: 256, topK: 8 };
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
      name: '7168 bf16 as e4m3, weighed by combine, 32 tokens',
      maxTokens: 32,
      weighting: 'plan',
      combineFormat: 'e4m3',
      between: 'example',
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
