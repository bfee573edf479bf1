/** The options of an ExpertParallel, and the layer for which its kernels are made. */
import {
  ArgumentError,
  integerFrom,
  oneOf,
  onlyGiven,
  requireFlag,
  requireInteger,
  requireObject,
  requireOneOf,
  type Table,
} from '../../base/errors.js';
import type { Device } from '../../gpu/index.js';
import type { World } from '../../net/world/index.js';
import { type PlanTarget, type TransportName, type Tuning, transports } from '../families/index.js';
import {
  type Dtype,
  dtypes,
  type Layer,
  limits,
  type Output,
  type Placement,
  placed,
  type RowDtype,
  type RowFormatName,
  requirePlacement,
  requireShape,
  rowFormatNames,
  type ScaledFormatName,
  type Shape,
  scaleBlock,
  scaledFormatNames,
  scaledFormats,
  weightings,
} from '../layer/index.js';

/** One row of a payload: `length` elements of `dtype`. */
export interface Row {
  readonly dtype: Dtype;
  readonly length: number;
  /** Dispatch rounds the row as it sends it; see `fp8` and `mxfp8`. */
  readonly rounds?: ScaledFormatName;
}

/**
 * `row('bf16', 7168)`: a row of 7168 bf16. For formats Heddle has no name for, count bytes: `row('u8', bytes)` takes tensors of
 * any type.
 */
export const row = <D extends Dtype>(dtype: D, length: number): Row & { readonly dtype: D } => ({
  dtype,
  length,
});

/**
 * `x: fp8('bf16', 7168)`: a payload that dispatch takes as bf16 and carries as e4m3, with an f32 for every 128 elements, which divide
 * its length. `received.payloads` has the e4m3 as `x`, and the scales as `xScales` (docs/semantics.md#payloads-that-dispatch-rounds).
 */
export const fp8 = (
  dtype: 'bf16',
  length: number,
): Row & { readonly dtype: 'bf16'; readonly rounds: 'e4m3' } => ({ dtype, length, rounds: 'e4m3' });

/** `x: mxfp8('bf16', 7168)`: likewise with a ue8m0, the byte that is an exponent, for every 32 elements. 128 divide the length. */
export const mxfp8 = (
  dtype: 'bf16',
  length: number,
): Row & { readonly dtype: 'bf16'; readonly rounds: 'mxfp8' } => ({ dtype, length, rounds: 'mxfp8' });

/** The name under which the scales of a payload arrive that dispatch rounds. */
export const scalesName = <N extends string>(name: N): `${N}Scales` => `${name}Scales`;

/** The names of the scales that arrive beside the payloads that dispatch rounds. */
export type ScalesOf<R> = {
  readonly [N in keyof R & string]: R[N] extends { readonly rounds: ScaledFormatName } ? `${N}Scales` : never;
}[keyof R & string];

/** The rows that travel, by name: of one that dispatch rounds, the e4m3 and their scales. */
export const rowsThatTravel = (rows: Readonly<Record<string, Row>>): readonly (readonly [string, Row])[] =>
  Object.entries(rows).flatMap(([name, { dtype, length, rounds }]) => {
    if (rounds === undefined) return [[name, { dtype, length }] as const];
    const { scale, block } = scaledFormats[rounds];
    return [[name, row('e4m3', length)] as const, [scalesName(name), row(scale, length / block)] as const];
  });

/** The options that are fixed when an ExpertParallel is created, for payloads of these names. The same on all ranks. */
export interface ExpertParallelOptions<P extends string = string> {
  /** Experts of all ranks together. */
  readonly experts: number;
  /** Routes of a token: 1 to 32, no more than there are experts. */
  readonly topK: number;
  /** The most tokens that this rank, or any other, brings to one round. A multiple of `replicas`. */
  readonly maxTokens: number;
  /**
   * So many consecutive ranks are a group that holds the same tokens: the tensor-parallel ranks of one data-parallel
   * group. Each sends its share of them, and each gets all sums. The ranks of a group must bring the same to every
   * round, which nothing checks before a rank waits in vain. Divides the ranks. Default 1.
   */
  readonly replicas?: number;
  /**
   * The rows that travel with a token to its experts, up to 8 rows: `{ x: row('bf16', 7168) }`; or `fp8('bf16', 7168)` and
   * `mxfp8('bf16', 7168)`, which dispatch rounds: those are two with their scales. Without any, `{}`, ids and weights do.
   */
  readonly payloads: Readonly<Record<P, Row>>;
  /** The row that comes back: one row a token, `row('bf16', 7168)`. */
  readonly output: Row & { readonly dtype: RowDtype };
  /**
   * The side that multiplies by the router weights. Default 'experts': they leave one finished row a slot. With 'plan' they leave
   * one unweighted row a route; combine weights and adds them up where they are, before anything travels. Its third argument says
   * where the rows are: what `made` of an ExpertsPlan gives, or rows in any order of the caller's. With 'source' every one of these rows
   * travels, and the rank that brought the token weighs and adds them up: a token's bits are the same wherever its experts live.
   */
  readonly weighting?: (typeof weightings)[number];
  /**
   * How rows come back. Default 'rows': as they are. 'e4m3' sends 8-bit floats with a scale for every 128 elements,
   * 'mxfp8' likewise with one for every 32: about half the bytes of bf16. Each rank's row then changes by at most 1/17 of the
   * largest magnitude among those that share a scale (docs/semantics.md). Rows must be a multiple of 16 elements long.
   */
  readonly combineFormat?: RowFormatName;
  /**
   * Combine adds each sum, once it is rounded, to what `out` holds: such as a shared expert's rows, or a residual. Default false: it
   * overwrites `out`. A round that is repeated adds again.
   */
  readonly adds?: boolean;
  /** Router weights travel to the experts, as `received.weights`. Default true. */
  readonly weights?: boolean;
  /** Routes are counted per local expert, as `received.counts`. Default false. */
  readonly counts?: boolean;
  /**
   * Where experts live, each in one place or in several; `place` changes it between rounds. Default: each in one place, dealt out in
   * order. Ids in `topkIds` name experts as ever. Ids that arrive name places: `ep.shape.experts` counts those, and every rank has as many.
   */
  readonly placement?: Placement;
  /**
   * Dispatch and combine may also be called as a send and a receive each, with other work between them. Default false:
   * each is one launch.
   */
  readonly split?: boolean;
  /**
   * How many rounds may be in flight: with 2, the next dispatch may begin before the last round is combined, on a stream of
   * its own. Takes twice the memory. Default 1.
   */
  readonly rounds?: 1 | 2;
  /** The most multiprocessors that any launch takes, 2 or more. Default: as many as are fastest. */
  readonly sms?: number;
  /**
   * How long a kernel waits for a peer before it gives up, in ms. A network has half of it for each write. Default 10,000, and
   * 120,000 where GPUs are simulated, which takes its time.
   */
  readonly waitMs?: number;
  /**
   * The fate of the layer when ranks are lost. Default 'throw': its rounds are over, and so is the world. With 'mask' it
   * goes on itself, windows and captured graphs as they are: `world.mask` leaves the ranks out, and so does `synchronize` of its own
   * accord (docs/worlds.md#masks). Where families cannot, `create` says so: NVSHMEM, ranks that share tokens.
   */
  readonly onLoss?: 'throw' | 'mask';
  /** Kernels note how long they wait for each peer: `ep.waits` says who is slow. Default false. */
  readonly waits?: boolean;
  /** The family of kernels that carries the rows. Default: the first that can (`ep.family` says which). */
  readonly family?: string;
  /**
   * The transport of rows inside a node. 'windows', the default: ranks map each other's memory. 'nvshmem': NVSHMEM's puts, with a
   * process for each rank; the portable family alone goes by them.
   */
  readonly transport?: TransportName;
  /** How the family's kernels are spread over the device. Default: what suits the layer. All ranks must say the same. */
  readonly tuning?: Tuning;
}

export const parallelOptions: Table<ExpertParallelOptions> = {
  ...{ experts: true, topK: true, maxTokens: true, replicas: true, payloads: true, output: true },
  ...{ placement: true, family: true, tuning: true },
  weighting: oneOf(weightings),
  combineFormat: oneOf(rowFormatNames),
  ...{ adds: requireFlag, weights: requireFlag, counts: requireFlag, split: requireFlag, waits: requireFlag },
  rounds: integerFrom(1, 2),
  sms: integerFrom(1, 1024),
  waitMs: integerFrom(1, 4_000_000),
  onLoss: oneOf(['throw', 'mask']),
  transport: oneOf(transports),
};

/** The layer that options describe which are as their table says; all of it is known to make sense. */
export function layerOf(ranks: number, options: ExpertParallelOptions): Layer {
  requireObject('payloads', options.payloads, "rows by name: { x: row('bf16', 7168) }");
  for (const name of Object.keys(options.payloads)) requirePayload(name, options.payloads);
  const payloads = rowsThatTravel(options.payloads).map(([name, row]) => {
    const rounded = options.payloads[name]?.rounds;
    return { name, rowBytes: rowBytes(row), ...(rounded && { rounded }) };
  });
  requireRow('output', options.output, ['f32', 'bf16', 'f16']);
  if (options.output.rounds !== undefined) {
    const possible = `absent: combineFormat: '${options.output.rounds}' rounds rows that come back`;
    throw new ArgumentError('output.rounds', options.output.rounds, possible);
  }
  const { experts, topK, maxTokens, replicas = 1, weighting, adds } = options;
  if ((weighting ?? 'experts') !== 'experts' && options.weights === false)
    throw new ArgumentError('weights', false, `true or left out, because weighting is '${weighting}'`);
  const output: Output = {
    dtype: options.output.dtype,
    hidden: options.output.length,
    ...onlyGiven(options, 'weighting', 'combineFormat'),
    ...(adds && { adds }),
  };
  const shape = requireShape({ ranks, experts, topK, maxTokens, replicas, payloads, output });
  const { placement } = options;
  if (placement !== undefined) requireOwnPlacement(placement, shape);
  return {
    ...placed(shape, placement),
    weights: options.weights ?? true,
    counts: options.counts ?? false,
    ...(options.onLoss === 'mask' && { masks: true }),
    ...(options.waits && { waits: true }),
  };
}

/** Requires a placement of this layer's experts on its ranks. */
function requireOwnPlacement(placement: Placement, { experts, ranks }: Shape): void {
  requirePlacement('placement', placement);
  for (const [name, wanted] of Object.entries({ experts, ranks }) as ['experts' | 'ranks', number][])
    if (placement[name] !== wanted)
      throw new ArgumentError(`placement.${name}`, placement[name], `${wanted}, as many as the layer has`);
}

/** Milliseconds that a kernel waits for a peer. */
export const waitMsOf = ({ waitMs }: Pick<ExpertParallelOptions, 'waitMs'>, kind: Device['kind']): number =>
  waitMs ?? (kind === 'sim' ? 120_000 : 10_000);

/** Where the layer's plan will be carried out, and how. */
export const targetOf = (
  here: Omit<PlanTarget, 'split' | 'sms' | 'transport'>,
  { split = false, sms, transport = 'windows' }: Pick<ExpertParallelOptions, 'split' | 'sms' | 'transport'>,
): PlanTarget => ({ ...here, split, sms: sms ?? null, transport, copies: true });

export const rowBytes = ({ dtype, length }: Row): number => dtypes[dtype].size * length;

/** Requires a row as `row()` makes it, of one of these dtypes. */
function requireRow(argument: string, row: Row, allowed: readonly string[]): void {
  requireObject(argument, row, "a row: row('bf16', 7168)");
  requireOneOf(`${argument}.dtype`, row.dtype, allowed);
  requireInteger(`${argument}.length`, row.length, 1, limits.rowBytes / dtypes[row.dtype].size);
}

/** Requires a row as `row()`, `fp8()` or `mxfp8()` makes it, whose scales have a name of their own. */
function requirePayload(name: string, rows: Readonly<Record<string, Row>>): void {
  const argument = `payloads.${name}`;
  const row = rows[name]!;
  requireRow(argument, row, Object.keys(dtypes));
  const { rounds, length } = row;
  if (rounds === undefined) return;
  requireOneOf(`${argument}.rounds`, rounds, scaledFormatNames);
  requireOneOf(`${argument}.dtype`, row.dtype, ['bf16']);
  if (length % scaleBlock !== 0) {
    const possible = `a multiple of ${scaleBlock}, whose scales fill a word`;
    throw new ArgumentError(`${argument}.length`, length, possible);
  }
  const scales = scalesName(name);
  if (Object.hasOwn(rows, scales)) {
    const possible = `absent: scales of ${name} arrive by that name`;
    throw new ArgumentError(`payloads.${scales}`, rows[scales], possible);
  }
}

/** Requires that every rank brings the same values by the same names: ranks that disagree would write over each other. */
export async function requireSameEverywhere(world: World, mine: object): Promise<void> {
  const text = JSON.stringify(mine);
  const all = await world.allGather(new TextEncoder().encode(text), 'comparing shapes');
  for (const [rank, bytes] of all.entries()) {
    const theirs = new TextDecoder().decode(bytes);
    if (theirs === text || world.masked.includes(rank)) continue;
    const other = JSON.parse(theirs) as Record<string, unknown>;
    const own = mine as Record<string, unknown>;
    // What only one of the two has counts as well.
    for (const name in { ...own, ...other }) {
      const [value, wanted] = [JSON.stringify(own[name]), JSON.stringify(other[name])];
      if (value === wanted) continue;
      throw new ArgumentError(name, value, `the same on all ranks; rank ${rank} has ${wanted}`);
    }
  }
}
