/**
 * Whole rounds, dispatch → example experts → combine, with inputs from a seed and results from the reference: what
 * the demo shows, the check runs under many schedules, and the tests run in many shapes.
 */

import {
  HeddleError,
  onlyGiven,
  RankMaskedError,
  requireArray,
  requireInteger,
  requireObject,
} from '../../base/errors.js';
import type { Stream } from '../../gpu/index.js';
import {
  bytesOf,
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  fp8,
  mxfp8,
  type OwnedTensor,
  type Row,
  readBits,
  row,
  tensorFrom,
} from '../../moe/index.js';
import {
  areScales,
  type Bits,
  bitsOf,
  type Dtype,
  dtypes,
  type FloatDtype,
  firstOf,
  floatDtypes,
  limits,
  type Placement,
  placed,
  placedRoutes,
  reference,
  requireDtype,
  requireShape,
  roundRows,
  type Shape,
  type Source,
  scaledFormats,
  toF32,
} from '../../moe/layer/index.js';
import type { World } from '../../net/world/index.js';
import {
  type Comparison,
  compareCombined,
  compareReceived,
  type Delivered,
  mergeComparisons,
} from './compare.js';
import {
  ExampleExperts,
  type ExampleExpertsOptions,
  exampleInput,
  exampleOutput,
} from './example-experts.js';
import { createOtherWork } from './other-work.js';
import { randomBytes, randomElements } from './random.js';
import { makeAllRoutes, type RoutesOptions } from './routes.js';

/** A layer whose experts are the example experts. */
export interface RoundsShape {
  readonly ranks: number;
  readonly experts: number;
  readonly topK: number;
  readonly maxTokens: number;
  readonly replicas?: number;
  readonly hidden: number;
  readonly dtype: Shape['output']['dtype'];
  readonly weighting?: NonNullable<Shape['output']['weighting']>;
  readonly combineFormat?: NonNullable<Shape['output']['combineFormat']>;
  /** Combine adds to `out`, which holds the rows of `x`. */
  readonly adds?: boolean;
  /** Bytes of further payloads, which travel beside `x`. */
  readonly extra?: readonly number[];
}

/** The shape in the words of the reference: payloads `x`, `p1`, `p2` … */
export function shapeOfRounds(of: RoundsShape): Shape {
  requireObject('of', of);
  const { ranks, experts, topK, maxTokens, hidden, dtype, extra = [] } = of;
  requireDtype('dtype', dtype, floatDtypes);
  requireInteger('hidden', hidden, 1, Number.MAX_SAFE_INTEGER);
  requireArray('extra', extra);
  const { size } = dtypes[dtype];
  const hiddenBytes = requireInteger('hidden', hidden, 1, limits.rowBytes / size) * size;
  return requireShape({
    ...{ ranks, experts, topK, maxTokens, ...onlyGiven(of, 'replicas') },
    payloads: [
      { name: exampleInput, rowBytes: hiddenBytes },
      ...extra.map((rowBytes, i) => ({ name: `p${i + 1}`, rowBytes })),
    ],
    output: {
      ...{ dtype, hidden, ...onlyGiven(of, 'weighting', 'combineFormat'), ...(of.adds && { adds: true }) },
    },
  });
}

/** The inputs of all ranks to one round: `tokens[rank]`, or as many from each. Rows that dispatch rounds are bf16. */
export function makeSources(
  shape: Shape,
  tokens: number | readonly number[],
  seed: number,
  options: RoutesOptions = {},
): Source[] {
  requireShape(shape);
  const { dtype, hidden } = shape.output;
  return makeAllRoutes(shape, tokens, seed, options).map((routes, rank) => ({
    ...routes,
    payloads: Object.fromEntries(
      shape.payloads.flatMap(({ name, rowBytes, rounded }, i) => {
        if (areScales(shape, i)) return [];
        const own = seed * 1009 + firstOf(shape, rank) * 16 + i;
        const elements = (dtype: FloatDtype, length: number): Uint8Array =>
          bytesOf(randomElements(dtype, routes.tokens * length, own, 6));
        if (name === exampleInput) return [[name, elements(dtype, hidden)]];
        return [[name, rounded ? elements('bf16', rowBytes) : randomBytes(routes.tokens * rowBytes, own)]];
      }),
    ),
  }));
}

/** The inputs of the ranks as the reference takes them. It rounds no rows itself, so here they are rounded as dispatch rounds them. */
export const roundedSources = (shape: Shape, sources: readonly Source[]): Source[] =>
  sources.map((source) => ({
    ...source,
    payloads: Object.fromEntries(
      shape.payloads.flatMap(({ name, rounded }, p) => {
        if (areScales(shape, p)) return [];
        const bytes = source.payloads[name]!;
        if (rounded === undefined) return [[name, bytes]];
        const { e4m3, scales } = roundRows(toF32('bf16', bitsOf('bf16', bytes)), scaledFormats[rounded]);
        return [
          [name, e4m3],
          [shape.payloads[p + 1]!.name, bytesOf(scales)],
        ];
      }),
    ),
  }));

/** The inputs of the ranks, in the words of the reference where experts are placed: ids are places. */
export function placedSources(
  shape: Shape,
  sources: readonly Source[],
  placement: Placement | undefined,
  nodes = 1,
): Source[] {
  return placement === undefined ? [...sources] : placedRoutes(shape, sources, placement, nodes);
}

/**
 * The rows that every rank gets back from a round, according to the reference; `nodes`: inside how many rows are summed first;
 * `lives`: as ExampleExperts has it.
 */
export function expectedRound(
  shape: Shape,
  sources: readonly Source[],
  weights = true,
  nodes = 1,
  lives?: readonly number[],
): Bits[] {
  // One rank after the other, so that the received planes of only one rank are in memory.
  const outputs = sources.map((_, rank) =>
    exampleOutput(shape, reference.dispatch(shape, sources, rank), weights, lives),
  );
  const onto = ({ payloads }: Source) => bitsOf(shape.output.dtype, payloads[exampleInput]!);
  return sources.map((source, rank) =>
    reference.combine(shape, source, rank, outputs, nodes, shape.output.adds ? onto(source) : undefined),
  );
}

/**
 * What each rank gets back where some still go by the old placement, some already by the next: `placements[rank]`; `masked`:
 * ranks that the round leaves out.
 */
export function expectedPlacedRound(
  shape: Shape,
  sources: readonly Source[],
  placements: readonly Placement[],
  masked: readonly number[] = [],
): Bits[] {
  const inPlaces = placed(shape, placements[0]);
  const routed = sources.map((_, rank) => placedSources(shape, sources, placements[rank])[rank]!);
  // A place that is empty to some ranks already, or still, has an expert to others.
  const lives = placements[0]!.places.map((_, place) =>
    Math.max(...placements.map((of) => of.places[place]!)),
  );
  return expectedRound(inPlaces, reference.without(inPlaces, routed, masked), true, 1, lives);
}

/** The options of an ExpertParallel that a shape leaves open. */
type Features = Pick<
  ExpertParallelOptions,
  'family' | 'weights' | 'counts' | 'tuning' | 'waitMs' | 'split' | 'sms' | 'rounds' | 'onLoss' | 'waits'
>;

export interface RoundsOptions extends Features, Pick<ExpertParallelOptions, 'transport'> {
  readonly experts?: ExampleExpertsOptions;
  /** Also returns what arrived in each round, or the last. Looking at it keeps kernels of that round from overlapping. */
  readonly inspect?: boolean | 'last';
  /** [round]: where experts live. Rounds bring ids of experts. */
  readonly placements?: readonly Placement[];
  /** So many layers take turns: a round each. Default 1. */
  readonly layers?: number;
  /**
   * A round, those of all layers, or the two that are in flight are captured as a graph, which then runs all rounds on inputs that are copied
   * to where it reads. Each replay must bring as many tokens as the next.
   */
  readonly graph?: boolean;
  readonly leaveOut?: LeaveOut;
}

/** The world leaves ranks out before a round, counted from 0, and takes them in again before a later one. Default: never. */
interface LeaveOut {
  readonly before: number;
  readonly until?: number;
  readonly ranks: readonly number[];
  /** Whether ranks come back as new processes, each with layers, memory and a graph of its own. */
  readonly anew?: boolean;
}

export function leftOut(
  shape: Shape,
  rounds: readonly (readonly Source[])[],
  leaveOut: LeaveOut,
): (readonly Source[])[] {
  const { before, until = rounds.length, ranks } = leaveOut;
  return rounds.map((sources, n) =>
    n < before || n >= until ? [...sources] : reference.without(shape, sources, ranks),
  );
}

interface RoundsResult {
  /** [round]: `[tokens, hidden]`; undefined where the rank was left out. */
  readonly out: readonly (Bits | undefined)[];
  /** [round], where inspected. */
  readonly received: readonly (Delivered | undefined)[];
}

/**
 * Runs rounds back to back as one rank: everything is enqueued before anything is waited for. `rounds[n][rank]` is
 * what a rank brings to round n.
 */
export async function runRounds(
  world: World,
  shape: Shape,
  rounds: readonly (readonly Source[])[],
  options: RoundsOptions = {},
): Promise<RoundsResult> {
  const { before = 0, until, ranks, anew = false } = options.leaveOut ?? {};
  if (!anew || !ranks?.includes(world.rank)) return runFrom(0, world, shape, rounds, options);
  const fell = { ...options, leaveOut: { before, ranks } };
  const first = await runFrom(0, world, shape, rounds.slice(0, until), fell);
  const { leaveOut: _, ...back } = options;
  return together(first, await runFrom(until ?? rounds.length, await world.startAnew(), shape, rounds, back));
}

const together = (first: RoundsResult, then: RoundsResult): RoundsResult => ({
  out: [...first.out, ...then.out],
  received: [...first.received, ...then.received],
});

async function runFrom(
  first: number,
  world: World,
  shape: Shape,
  rounds: readonly (readonly Source[])[],
  options: RoundsOptions,
): Promise<RoundsResult> {
  const {
    experts: expertsOptions,
    inspect = false,
    graph = false,
    leaveOut,
    placements,
    layers = 1,
    ...features
  } = options;
  const placement = placements?.[0];
  const ep = await ExpertParallel.create(
    world,
    layerOf(shape, { ...features, ...(placement && { placement }) }),
  );
  for (let n = 1; n < layers; n++) await ep.addLayer(placements?.[n]);
  const stream = world.device.createStream();
  const experts = await Promise.all(
    ep.views.map((received) => ExampleExperts.create(world, ep, stream, expertsOptions, received)),
  );
  const other = await createOtherWork(world, stream);
  const runner = runnerOf(world, ep, experts, other, stream, placements);
  const mine = rounds.map((sources) => sources[world.rank]!);
  const { before = mine.length, until = mine.length, ranks } = leaveOut ?? {};
  if (world.out) await world.rejoin();
  const takesPart = async (n: number): Promise<boolean> => {
    if (n === before) await world.mask(ranks).catch(requireOut);
    if (n === until) await (world.out ? world.rejoin() : admit(world));
    return !world.out;
  };
  let result: RoundsResult = { out: [], received: [] };
  if (graph) result = await runner.replayed(mine.slice(first), first, [before, until], takesPart);
  else
    for (const [i, from] of [first, before, until].entries()) {
      const some = mine.slice(from, [before, until][i]);
      if (some.length === 0) continue;
      const more = (await takesPart(from)) ? await runner.launched(some, from, inspect) : nothingOf(some);
      result = together(result, more);
    }
  for (const one of experts) one.free();
  runner.dispose();
  other.free();
  await ep.dispose();
  stream.dispose();
  return result;
}

const notTold = () => new HeddleError('HEDDLE_WRONG_RESULT', 'a rank that is out was not told so');

function requireOut(error: unknown): void {
  if (!(error instanceof RankMaskedError)) throw error;
}

/** Admits ranks until all take part. */
async function admit(world: World): Promise<void> {
  for (let tries = 0; world.masked.length > 0; tries++) {
    if (tries === 1000)
      throw new HeddleError('HEDDLE_WRONG_RESULT', `ranks ${world.masked} do not come back`);
    await world.admit();
    await new Promise(setImmediate);
  }
}

/** The results of rounds that leave the rank out. */
function nothingOf(rounds: readonly Source[]): RoundsResult {
  const nothing = rounds.map(() => undefined);
  return { out: nothing, received: nothing };
}

export function layerOf(
  shape: Shape,
  features: Features & Pick<ExpertParallelOptions, 'placement'> = {},
): ExpertParallelOptions {
  const { experts, topK, maxTokens, replicas = 1, payloads, output } = shape;
  const { dtype, hidden, ...how } = output;
  const rows = payloads.flatMap(({ name, rowBytes, rounded }, p): [string, Row][] => {
    if (areScales(shape, p)) return [];
    if (rounded) return [[name, (rounded === 'mxfp8' ? mxfp8 : fp8)('bf16', rowBytes)]];
    return [[name, name === exampleInput ? row(dtype, hidden) : row('u8', rowBytes)]];
  });
  return {
    ...{ experts, topK, maxTokens, replicas, payloads: Object.fromEntries(rows), output: row(dtype, hidden) },
    ...how,
    ...features,
  };
}

interface Buffers {
  readonly inputs: {
    readonly topkIds: OwnedTensor;
    readonly topkWeights?: OwnedTensor;
    readonly payloads: Readonly<Record<string, OwnedTensor>>;
  };
  readonly out: OwnedTensor;
}

function runnerOf(
  { device }: World,
  ep: ExpertParallel,
  experts: readonly ExampleExperts[],
  other: Awaited<ReturnType<typeof createOtherWork>>,
  stream: Stream,
  placements: readonly Placement[] = [],
) {
  let combined = 0;
  /** A stream for each round in flight. */
  const streams = [stream, ...ep.views.slice(1).map(() => device.createStream())];
  const on = (n: number): Stream => streams[n % streams.length]!;

  const layerAt = (n: number) => ep.layers[n % ep.layers.length]!;
  const moves = (n: number): boolean => (placements[n] ?? layerAt(n).placement) !== layerAt(n).placement;

  /** Where experts of the layer of round n live from there on, if that changes. */
  function move(n: number, on: Stream): void {
    if (moves(n)) layerAt(n).place(placements[n]!, on);
  }

  /** `from`: the first one's number. */
  async function launched(
    rounds: readonly Source[],
    from: number,
    inspect: boolean | 'last',
  ): Promise<RoundsResult> {
    const buffers = rounds.map((source) => place(source));
    const arrived = rounds.map((): Promise<Delivered> | undefined => undefined);
    enqueue(buffers, from, (n) => {
      if (inspect === true || (inspect === 'last' && n === rounds.length - 1)) arrived[n] = delivered();
    });
    await ep.synchronize(stream);
    return { out: await collect(buffers), received: await Promise.all(arrived) };
  }

  /** `look`: called when rows of the n-th have arrived, where it is alone in flight. */
  function enqueue(rounds: readonly Buffers[], from: number, look: (n: number) => void = () => {}): void {
    if (streams.length > 1) interleave(rounds, from);
    else
      for (const [n, round] of rounds.entries()) {
        move(from + n, stream);
        dispatch(round, from + n);
        look(n);
        experts[0]!.run(stream);
        combine(round.out);
      }
  }

  /** `from`: the first one's number. `takesPart`: called before each of the `changes`; whether this rank takes part from there on. */
  async function replayed(
    rounds: readonly Source[],
    from: number,
    changes: readonly number[],
    takesPart: (n: number) => Promise<boolean>,
  ): Promise<RoundsResult> {
    const atOnce = Math.max(streams.length, ep.layers.length);
    const buffers = rounds.map((source) => place(source));
    const captured = rounds.slice(0, atOnce).map((source) => place(source));
    for (const i of captured.keys()) move(from + i, stream);
    stream.beginCapture();
    enqueue(captured, from);
    const graph = stream.endCapture();
    let goesOn = true;
    const taken: boolean[] = [];
    const ended = () =>
      goesOn
        ? ep.synchronize(stream)
        : ep.synchronize(stream).then(() => Promise.reject(notTold()), requireOut);
    for (let n = 0; n < buffers.length; n += atOnce) {
      // A rank that is out replays all the same: that must come to nothing, here and elsewhere.
      if (changes.includes(from + n)) {
        if (!goesOn) await ended();
        goesOn = await takesPart(from + n);
      }
      const batch = buffers.slice(n, n + atOnce);
      for (const [i, round] of batch.entries()) {
        bring(captured[i]!, round);
        move(from + n + i, stream);
      }
      graph.launch(stream);
      for (const [i, { out }] of batch.entries()) copy(out, captured[i]!.out);
      taken.push(...batch.map(() => goesOn));
    }
    await ended();
    graph.dispose();
    const out = await collect(buffers);
    return { out: out.map((bits, n) => (taken[n] ? bits : undefined)), received: [] };
  }

  /**
   * Two rounds in flight, of which the second has a stream of its own: one is sent before the experts of the one before it
   * are enqueued. Every third ends in whole phases.
   */
  function interleave(buffers: readonly Buffers[], from: number): void {
    for (const one of streams.slice(1)) follow(one, stream);
    const sent = [ep.dispatchSend(buffers[0]!.inputs, on(0), layerAt(from))];
    for (const [n, { out }] of buffers.entries()) {
      const next = buffers[n + 1];
      if (next !== undefined) {
        // The tables of both rounds are written on one stream.
        if (moves(from + n + 1)) {
          follow(on(n + 1), on(n));
          move(from + n + 1, on(n + 1));
          follow(on(n), on(n + 1));
        }
        sent.push(ep.dispatchSend(next.inputs, on(n + 1), layerAt(from + n + 1)));
      }
      const received = ep.dispatchRecv(sent[n]!, on(n));
      const own = experts[n % streams.length]!;
      own.run(on(n));
      if (n % 3 === 2) ep.combine(out, on(n), own.made);
      else ep.combineRecv(ep.combineSend(received, on(n), own.made), out, on(n));
    }
    for (const one of streams.slice(1)) follow(stream, one);
  }

  function follow(later: Stream, earlier: Stream): void {
    const event = device.createEvent();
    earlier.record(event);
    later.wait(event);
    event.dispose();
  }

  function bring({ inputs: to, ...old }: Buffers, { inputs, out }: Buffers): void {
    const { topkIds, topkWeights, payloads } = inputs;
    copy(to.topkIds, topkIds);
    if (ep.shape.output.adds) copy(old.out, out);
    if (topkWeights) copy(to.topkWeights!, topkWeights);
    for (const [name, rows] of Object.entries(payloads)) copy(to.payloads[name]!, rows);
  }

  /** Where phases are split, other work lies between the halves and behind them. */
  function dispatch({ inputs }: Buffers, n: number): void {
    if (!ep.split) {
      ep.dispatch(inputs, stream, layerAt(n));
      return;
    }
    const sent = ep.dispatchSend(inputs, stream, layerAt(n));
    other.between(stream);
    ep.dispatchRecv(sent, stream);
    other.behind(stream);
  }

  function combine(out: OwnedTensor): void {
    if (!ep.split) {
      ep.combine(out, stream, experts[0]!.made);
      return;
    }
    const sent = ep.combineSend(ep.received, stream, experts[0]!.made);
    other.between(stream);
    ep.combineRecv(sent, out, stream);
    // Other work follows every second receive. Behind the others the next send comes at once, and begins before the receive has ended.
    combined += 1;
    if (combined % 2 === 1) other.behind(stream);
  }

  function copy(to: OwnedTensor, from: OwnedTensor): void {
    if (from.bytes > 0) stream.copy(to.data, from.data, from.bytes);
  }

  function place({ tokens, topkIds, topkWeights, payloads }: Source): Buffers {
    const { shape, received } = ep;
    const { dtype, hidden, adds } = shape.output;
    const put = (bits: Bits, dtype: Dtype, columns: number, name: string): OwnedTensor =>
      tensorFrom(device, stream, bits, dtype, [tokens, columns], name);
    return {
      inputs: {
        topkIds: put(topkIds, 'i32', shape.topK, 'topkIds'),
        ...(received.weights &&
          topkWeights && { topkWeights: put(topkWeights, 'f32', shape.topK, 'topkWeights') }),
        payloads: Object.fromEntries(
          Object.entries(layerOf(shape).payloads!).map(([name, { dtype, length }]) => [
            name,
            put(bitsOf(dtype, payloads[name]!), dtype, length, name),
          ]),
        ),
      },
      out: adds
        ? put(bitsOf(dtype, payloads[exampleInput]!), dtype, hidden, 'out')
        : emptyTensor(device, dtype, [tokens, hidden], 'out'),
    };
  }

  async function delivered(): Promise<Delivered> {
    const { experts, weights, counts, payloads } = ep.received;
    // Enqueued all at once: between dispatch and experts.
    const parts = {
      experts: readBits(experts, stream),
      weights: weights && readBits(weights, stream),
      counts: counts && readBits(counts, stream),
      payloads: Object.entries(payloads).map(async ([name, tensor]) => {
        return [name, bytesOf(await readBits(tensor, stream))] as const;
      }),
    };
    const [theWeights, theCounts] = [await parts.weights, await parts.counts];
    return {
      experts: (await parts.experts) as Int32Array,
      ...(theWeights && { weights: theWeights as Float32Array }),
      ...(theCounts && { counts: theCounts as Uint32Array }),
      payloads: Object.fromEntries(await Promise.all(parts.payloads)),
    };
  }

  async function collect(buffers: readonly Buffers[]): Promise<Bits[]> {
    const out = await Promise.all(buffers.map((round) => readBits(round.out, stream)));
    for (const { inputs, out: result } of buffers) {
      const { topkIds, topkWeights, payloads } = inputs;
      for (const tensor of [topkIds, topkWeights, ...Object.values(payloads), result]) tensor?.free();
    }
    return out;
  }

  function dispose(): void {
    for (const one of streams.slice(1)) one.dispose();
  }

  return { launched, replayed, dispose };
}

/** Compares what all ranks have after their rounds with the reference: `results[rank]`, `expected[round][rank]`. */
export function compareRounds(
  shape: Shape,
  rounds: readonly (readonly Source[])[],
  results: readonly RoundsResult[],
  expected: readonly (readonly Bits[])[],
): Comparison {
  return mergeComparisons(
    rounds.flatMap((sources, n) =>
      results.flatMap(({ out, received }, rank) => [
        // A rank that was left out has nothing, and nothing is expected of it.
        compareCombined(shape, rank, out[n] ?? expected[n]![rank]!.subarray(0, 0), expected[n]![rank]!),
        ...(received[n] === undefined ? [] : [compareReceived(shape, sources, rank, received[n])]),
      ]),
    ),
  );
}
