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
import { type FieldSpec, field, layout } from '../../lang/index.js';
import {
  combineRowBytes,
  dtypes,
  expertsOf,
  type Layer,
  outputRowBytes,
  type RowDtype,
} from '../../layer/index.js';
import { failureWords } from '../common/failure.js';
import { type Unit, unitBytes, widestUnit } from '../common/units.js';
import type { CombineTuning, DispatchTuning, Spread } from './knobs.js';

/** What the kernels of one ExpertParallel are specialised to. */
export interface OneSidedShape extends Layer {
  readonly dispatch: DispatchTuning;
  readonly combine: CombineTuning;
  /** Where combine applies the router weights: how the launch is spread that does it. */
  readonly weigh: Spread | null;
}

/** Most experts any rank owns: the first own one more where they do not divide. */
export const localExperts = (shape: Pick<Layer, 'experts' | 'ranks'>): number => expertsOf(shape, 0).count;

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
    payloads: shape.payloads.map(({ rowBytes }): FieldSpec<Unit> => {
      const unit = widestUnit(rowBytes);
      return field(unit, (slots * rowBytes) / unitBytes[unit]);
    }),
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
export const combineGrid = ({ combine }: { readonly combine: CombineTuning }): number =>
  combine.blocks + (combine.way === 'push' ? 1 : 0);

/** The type of `output`: a weighted sum that will be quantised stays f32, so that it is rounded only once. */
export const partialDtype = ({ output }: Pick<Layer, 'output'>): RowDtype =>
  output.weighting === 'combine' && output.wire === 'e4m3' ? 'f32' : output.dtype;

export const partialRowBytes = (shape: Pick<Layer, 'output'>): number =>
  shape.output.hidden * dtypes[partialDtype(shape)].size;

/** A row as it travels: as e4m3 its elements, then a scale for every block, to whole vectors. */
export const returnedRowBytes = (shape: Pick<Layer, 'output'>): number =>
  shape.output.wire === 'e4m3' ? Math.ceil(combineRowBytes(shape) / 16) * 16 : outputRowBytes(shape);
