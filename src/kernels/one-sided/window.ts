/**
 * The window of the one-sided family: one piece of memory a rank, the same layout everywhere, which every rank of
 * the node can address. Offsets exist only here.
 *
 * Who writes what, and why it may be written again in the next round:
 *
 * | section | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | dispatches, combines | its own rank | its own rank | one block owns each word, and launches of a stream follow each other. Read before `awaitPrevious` where another phase lies between: that one awaited the launch that wrote it |
 * | dispatched, combined, released | each source its word | the owner's dispatch / combine | they only grow; waits are ≥ |
 * | experts, weights, payloads, counts | dispatch of every source | the owner's experts | combine pulls: a source dispatches after its combine, whose head waited for the owner's combine, which is behind the owner's experts. It pushes: a source's dispatch waits for `released` |
 * | present | dispatch of every source | the owner's pushing combine | rounds take turns with two halves: a source writes a half again behind the dispatch between, whose tail waited for the owner's, which is behind its combine |
 * | output | the owner's experts, or weigh behind them | the sources' pulling combine, the owner's pushing one | the owner's next experts run behind its next dispatch, whose tail waited for the sources' dispatch, which is behind their combine |
 * | returned | the pushing combine of expert ranks | the source's combine | a peer's next pushing combine is behind its next dispatch, whose tail waited for the source's dispatch, which is behind the source's combine |
 * | failure | its own rank | its own host | the host clears it by recreating the world |
 *
 * So dispatch and combine alternate: a round is dispatch, experts, combine.
 */
import { type FieldSpec, field, layout, type MemoryName } from '../../lang/index.js';

/** The element that moves a row: the widest whose size divides the row's bytes and every address involved. */
export type Unit = Extract<MemoryName, 'v16' | 'u64' | 'u32' | 'u16' | 'u8'>;
export const unitBytes: Readonly<Record<Unit, number>> = { v16: 16, u64: 8, u32: 4, u16: 2, u8: 1 };

/** The widest unit that divides both `bytes` and `alignment`. */
export function widestUnit(bytes: number, alignment = 16): Unit {
  const units: Unit[] = ['v16', 'u64', 'u32', 'u16'];
  return units.find((unit) => bytes % unitBytes[unit] === 0 && alignment % unitBytes[unit] === 0) ?? 'u8';
}

export type RowDtype = 'bf16' | 'f16' | 'f32';
export const dtypeBytes: Readonly<Record<RowDtype, number>> = { bf16: 2, f16: 2, f32: 4 };

/** What the kernels of one ExpertParallel are specialised to. */
export interface OneSidedShape {
  readonly ranks: number;
  readonly experts: number;
  readonly topK: number;
  /** Tokens a rank may bring to a round: the number of slots for each source. */
  readonly maxTokens: number;
  /** The rows that travel with a token, and the unit that moves each. */
  readonly payloads: readonly { readonly rowBytes: number; readonly unit: Unit }[];
  /** The rows that come back. */
  readonly output: OutputRows;
  /** Router weights travel beside the expert ids. */
  readonly weights: boolean;
  /** Routes are counted per local expert during dispatch. */
  readonly counts: boolean;
  readonly dispatch: DispatchTuning;
  readonly combine: CombineTuning;
  /** Where combine applies the router weights; spread as combine if left out. */
  readonly weigh?: LaunchTuning;
}

export interface OutputRows {
  readonly dtype: RowDtype;
  readonly hidden: number;
  /** Who applies the router weights: the experts (default), or the launch of weigh.ts before combine. */
  readonly weighting?: 'experts' | 'combine';
  /** How partial rows travel: as `dtype` (default), or as combine-e4m3.ts has it. */
  readonly transport?: 'rows' | 'e4m3';
}

/** How a kernel is spread over the GPU. Block b of one rank meets block b of the others: the same on all ranks. */
export interface LaunchTuning {
  readonly blocks: number;
  /** A multiple of 32, and at least as many as there are ranks. */
  readonly threads: number;
  /** Pieces that a row is cut into, each a block's. More spread one token's bytes over more of the GPU. */
  readonly parts: number;
}

/** Of `inFlight`. */
export const mostInFlight = 8;

export interface DispatchTuning extends LaunchTuning {
  /** Rows go through registers, or through shared memory by bulk copies: those of whole vectors (bulk.ts). */
  readonly way: 'store' | 'bulk';
  /** Storing: vectors of a row that each thread loads before it stores the first. */
  readonly inFlight: number;
}

export interface CombineTuning extends LaunchTuning {
  readonly way: 'pull' | 'push';
  /** Pushing: as in dispatch. */
  readonly inFlight: number;
  /** Pushing: pieces that a block pushes before it adds up its first. */
  readonly ahead: number;
}

/** Most experts any rank owns: ranks with a remainder own one more. */
export const localExperts = (shape: { experts: number; ranks: number }): number =>
  Math.ceil(shape.experts / shape.ranks);

/** What a failed wait was doing: `failure.operation`. */
export const operations = { dispatch: 1, combine: 2 } as const;

/** `failure` is [operation (0: none), the rank that did not come, the epoch waited for, block]. */
export const failureWords = 4;

export function oneSidedWindow(shape: OneSidedShape) {
  const { ranks, maxTokens, topK, dispatch, combine } = shape;
  const slots = ranks * maxTokens;
  return layout('one-sided window', {
    /** Rounds that block b of dispatch has finished, and that block b of combine has begun. */
    dispatches: field('u32', dispatch.blocks),
    combines: field('u32', combineGrid(shape)),
    /** [block][source]: the epoch up to which the source's block has sent its share. */
    dispatched: field('u32', dispatch.blocks * ranks),
    /** [block][rank]: the epoch for which the rank's block has vouched that its experts are done. */
    combined: field('u32', combine.blocks * ranks),
    /** [rank]: the round whose slots that rank's experts have read. Used where combine pushes. */
    released: field('u32', ranks),
    failure: field('u32', failureWords),
    counts: field('u32', localExperts(shape)),
    /** [source][token][k]: the expert id where this rank owns it, else -1. */
    experts: field('i32', slots * topK),
    /** [epoch & 1][source][token]: whether the slot holds a token, for a pushing combine. */
    present: field('u32', combine.way === 'push' ? 2 * slots : 0),
    weights: field('f32', shape.weights ? slots * topK : 0),
    /** [source][token][row], one section a payload. */
    payloads: shape.payloads.map(
      ({ rowBytes, unit }): FieldSpec<Unit> => field(unit, (slots * rowBytes) / unitBytes[unit]),
    ),
    /** [source][token][row]: what this rank's experts made of each slot: the row that travels, before it does. */
    output: field('u8', slots * partialRowBytes(shape)),
    /** [expert rank][token][row]: partial rows that came back, where combine pushes. */
    returned: field('u8', combine.way === 'push' ? slots * returnedRowBytes(shape) : 0),
  });
}
export type OneSidedWindow = ReturnType<typeof oneSidedWindow>;

/**
 * Loads that each thread of a block keeps in flight: as many as its part of a row needs, at most `inFlight`, and no
 * more than fill a quarter of its registers (896 or 1024 threads with eight vectors each spilled).
 */
export const depth = (units: number, { threads, inFlight }: DispatchTuning | CombineTuning): number =>
  Math.min(inFlight, Math.ceil(units / threads), Math.floor(4096 / threads));

/** Blocks of a combine launch: a pushing one has one more, which only releases the slots. */
export const combineGrid = ({ combine }: Pick<OneSidedShape, 'combine'>): number =>
  combine.blocks + (combine.way === 'push' ? 1 : 0);

/** A row that the experts leave, and one that combine returns. */
export const outputRowBytes = (shape: Pick<OneSidedShape, 'output'>): number =>
  shape.output.hidden * dtypeBytes[shape.output.dtype];

/** The type of `output`: a weighted sum that will be quantised stays f32, so that it is rounded only once. */
export const partialDtype = ({ output }: Pick<OneSidedShape, 'output'>): RowDtype =>
  output.weighting === 'combine' && output.transport === 'e4m3' ? 'f32' : output.dtype;

export const partialRowBytes = (shape: Pick<OneSidedShape, 'output'>): number =>
  shape.output.hidden * dtypeBytes[partialDtype(shape)];

/** Elements that share a scale where rows travel as e4m3. */
export const scaleBlock = 128;

/** A row as it travels: as e4m3 its elements, then a scale for every block, to whole vectors. */
export function returnedRowBytes(shape: Pick<OneSidedShape, 'output'>): number {
  const { hidden, transport } = shape.output;
  if (transport !== 'e4m3') return outputRowBytes(shape);
  return Math.ceil((hidden + 4 * Math.ceil(hidden / scaleBlock)) / 16) * 16;
}
