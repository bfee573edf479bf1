/**
 * The window of the one-sided family: one piece of memory a rank, the same layout everywhere, which every rank of
 * the node can address. Offsets exist only here.
 *
 * The writer of each section, and why the next round may write it again:
 *
 * | section | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | dispatches, combines, dispatchRecvs, combineRecvs | its own rank | its own rank | one block owns each word, and launches of a stream follow each other. A launch may read it before `awaitPrevious`: another phase lies between, which has awaited the end of the launch that wrote it |
 * | dispatched, combined, released | each source its word | the owner's dispatch / combine | they only grow; waits are ≥ |
 * | experts, weights, payloads | dispatch of every source; the owner's host copies its own rows, behind the launch before dispatch and ahead of that behind it | the owner's experts | where combine pulls, a source dispatches after its combine, whose head waited for the owner's combine, which is behind the owner's experts. Where it pushes, the source's combine, or its receive, awaited `released` |
 * | counts | the owner's dispatch, or the receive of a split one | the owner's experts | the owner's combine zeroes them between |
 * | present | dispatch of every source | the owner's pushing combine | rounds take turns with two halves: a source writes a half again behind the dispatch between, whose tail waited for the owner's, which is behind its combine |
 * | brought | dispatch of every source | the owner's dispatch and pushing combine; its own words its later dispatches | rounds take turns with four entries, so a source writes one again three dispatches later |
 * | reached | the owner's dispatch, or the receive of a split one | the owner's experts | its next dispatch is behind them on the stream |
 * | output | the owner's experts, or weigh behind them | the sources' pulling combine, the owner's pushing one | the owner's next experts run behind its next dispatch, whose tail waited for the sources' dispatch, which is behind their combine |
 * | returned | the pushing combine of expert ranks | the source's combine | a peer's next pushing combine is behind its next dispatch, whose tail waited for the source's dispatch, which is behind the source's combine |
 * | sums | the combine of the other ranks of its group | the owner's combine | as `returned`: the group's next combine is behind its next dispatch, whose tail waited for the owner's, which is behind its combine |
 * | failure | its own rank | its own host | the host clears it by a mask |
 * | waited, waiters | its own rank | its own host | rounds take turns with many entries, each written by one thread, of a launch that the phases between have awaited |
 * | masked | its own host | its own rank | the host writes it while no rank has a kernel |
 *
 * So dispatch and combine alternate: a round is dispatch, experts, combine. Where ranks are left out, or come back, every rank's window
 * begins anew while no rank has a kernel: a rank that comes back finds all windows as they were before the first round, and brings such a one.
 */
import { field, layout } from '../../../lang/index.js';
import {
  combineRowBytes,
  formatOf,
  type Layer,
  outputRowBytes,
  sharing,
  sourceWeighs,
} from '../../layer/index.js';
import { receivedSections, slotShape, unitsOfPart } from '../common/received.js';
import { hostSections } from '../common/waits.js';
import type { Weighing } from '../common/weigh.js';
import type { CombineTuning, DispatchTuning } from './knobs.js';
import { teamSize } from './team.js';

/** The shape to which the kernels of one ExpertParallel are specialised. */
export interface OneSidedShape extends Weighing {
  readonly dispatch: DispatchTuning;
  readonly combine: CombineTuning;
  /** Sends and receives are launches of their own. */
  readonly split: boolean;
  /** Bytes of shared memory that a pulling combine may take for rows. */
  readonly room: number;
  /** The host copies the rows that stay at home: dispatch does not store them. */
  readonly copied: boolean;
}

export function oneSidedWindow(shape: OneSidedShape) {
  const { ranks, maxTokens, topK, dispatch, combine } = shape;
  const { turns } = sharing(shape);
  const pushed = pushes(shape);
  return layout('one-sided window', {
    /** Rounds that block b of dispatch has finished, and that block b of combine has begun. */
    dispatches: field('u32', [dispatch.blocks]),
    combines: field('u32', [combineGrid(shape)]),
    /** Rounds that block b of a split phase's receive has begun. */
    dispatchRecvs: field('u32', [dispatchRecvSpread(shape).blocks]),
    combineRecvs: field('u32', [combineGrid(shape)]),
    /** [block][source]: the epoch up to which the source's block has sent its share. */
    dispatched: field('u32', [dispatch.blocks, ranks]),
    /** [block][rank]: the epoch for which the rank's block has vouched that its experts are done. */
    combined: field('u32', [combine.blocks, ranks]),
    /** [rank]: the round whose slots that rank's experts have read. Used where combine pushes. */
    released: field('u32', [ranks]),
    ...hostSections(shape),
    /** [epoch & 1][source][token]: whether the slot holds a token, for a pushing combine; bit k: route k is here, where all routes return. */
    present: field('u32', [pushed ? 2 : 0, ...slotShape(shape)]),
    /** [epoch & 3][source]: how many tokens it brought, where there may be much to pass over. */
    brought: field('u32', [passesOver(shape) ? 4 : 0, ranks]),
    /** The most tokens that any source brought to this round. */
    reached: field('u32', [passesOver(shape) ? 1 : 0]),
    ...receivedSections(shape, !sumsRoutes(shape) && !sourceWeighs(shape)),
    /** [expert rank][turn][row]: partial rows of this rank's share that came back, where combine pushes; [k][turn][row] where all routes do. */
    returned: field('v16', [!pushed ? 0 : sourceWeighs(shape) ? topK : ranks, turns, returnedVectors(shape)]),
    /** [token][row]: the sums that the other ranks of the group made. */
    sums: field('v16', [sharesSums(shape) ? maxTokens : 0, Math.ceil(outputRowBytes(shape) / 16)]),
  });
}

/** Words that count rounds: they begin with every bit set, so that the first round wraps them. */
export const roundWords = [
  ...(['dispatches', 'combines', 'dispatchRecvs', 'combineRecvs'] as const),
  ...(['dispatched', 'combined', 'released'] as const),
  // Nobody knows yet what earlier rounds brought, so it may have been everything.
  'brought',
] as const;

export const pushes = ({ combine }: Pick<OneSidedShape, 'combine'>): boolean => combine.way === 'push';

/** Whether the pushing combine itself makes the rows that travel, of the rows that experts left for the routes of a plan. */
export const sumsRoutes = (shape: Pick<OneSidedShape, 'combine' | 'output'>): boolean =>
  shape.output.weighting === 'plan' && pushes(shape) && travelsAsItLies(shape);

/**
 * Whether a team of a pushing combine has so many pieces of rows that it asks how many tokens came, and passes over those that did not. With
 * fewer it is done sooner than it has the answer.
 */
export const passesOver = (shape: OneSidedShape): boolean => {
  const { blocks, parts, teams } = shape.combine;
  return pushes(shape) && sharing(shape).turns * parts > 4 * blocks * teams;
};

/** Whether this rank's own rows come back as the others' do: those that combine makes on their way, and those of routes. */
export const ownReturn = (shape: Pick<OneSidedShape, 'combine' | 'output'>): boolean =>
  sumsRoutes(shape) || sourceWeighs(shape) || !travelsAsItLies(shape);

/** Whether ranks hand each other sums. Where combine pulls, each rank of a group makes all of them by itself. */
export const sharesSums = (shape: OneSidedShape): boolean => pushes(shape) && sharing(shape).replicas > 1;

/**
 * Loads that each thread keeps in flight: as many as its share of a part of a row needs, at most `inFlight`, and no
 * more than fill a quarter of its registers (896 or 1024 threads with eight vectors each spilled).
 */
export const depth = (units: number, launch: DispatchTuning | CombineTuning): number =>
  Math.min(launch.inFlight, Math.ceil(units / teamSize(launch)), Math.floor(4096 / launch.threads));

export const combineGrid = (shape: Pick<OneSidedShape, 'combine'>): number =>
  shape.combine.blocks + (pushes(shape) ? 1 : 0);

/** How the receive of a split dispatch is launched: waiting needs one block, counting routes many. */
export const dispatchRecvSpread = ({ dispatch, counts, ranks }: OneSidedShape) => ({
  blocks: counts ? dispatch.blocks : 1,
  threads: Math.ceil(Math.min(1024, ranks * (counts ? 1 : dispatch.blocks)) / 32) * 32,
});

/** Whether combine carries a row without rounding it. Then peers may pull it from where the experts left it, and this rank's own need not move. */
export const travelsAsItLies = ({ output }: Pick<Layer, 'output'>): boolean =>
  formatOf(output).rounding === null;

/** Vectors of a row as it travels back: rounded, its elements, then its scales. */
export const returnedVectors = (shape: Pick<Layer, 'output'>): number =>
  Math.ceil(combineRowBytes(shape) / 16);

/** Vectors of the caller's tensor in a part of a row. */
export const partVectors = ({ output, combine }: OneSidedShape): number =>
  unitsOfPart({ output }, outputRowBytes({ output }) / 16, combine.parts);
