/**
 * The window of the hybrid family: the same layout on every rank, reached by the ranks of its own node. Data that crosses the
 * network lies elsewhere (wire.ts).
 *
 * The writer of each section, and why the next round may write it again:
 *
 * | section | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | begun, finished | dispatchSend; combineRecv of its own rank | the launches behind it | launches of a stream follow each other |
 * | dispatched, combined | each rank of the node its words | the owner's dispatchRecv; combineSend | they only grow; waits are ≥ |
 * | dispatchLanded, combineLanded | the watcher of dispatchRecv; combineRecv | the other blocks of the launch | likewise |
 * | tokens, came | dispatchRecv of its own rank: the watcher; who forwards | the launch, combineSend | launches of a stream follow each other |
 * | sent | dispatchSend of its own rank | its combineRecv | likewise |
 * | packed | combineSend of its own rank | the same | launches of a stream follow each other; who packs the last piece zeroes it |
 * | routes | dispatchRecv of its own rank | its combineSend | likewise |
 * | experts, weights, payloads | dispatchSend and dispatchRecv of every rank of the node | the owner's experts, weigh | whoever stores is behind its own combineSend, which awaited that the experts of all ranks of the node are done |
 * | counts | the owner's dispatchRecv | the owner's experts | the owner's combineRecv zeroes them between |
 * | output | the owner's experts, or weigh behind them | combineSend and combineRecv of every rank of the node | the owner's next experts are behind its next dispatchRecv, which awaited that of every rank of the node, which is behind its combineRecv |
 * | handed | combineRecv of the group's other ranks | the owner's combineRecv | they only grow; waits are ≥ |
 * | sums | likewise | likewise | who hands on is behind its own combineSend, which awaited that of every rank of the node, which is behind its combineRecv |
 * | failure | its own rank | its own host | the host clears it by a mask |
 * | masked | its own host | all launches | no rank has a kernel while it is written |
 * | waited, waiters | its own rank | its own host | rounds take turns with many entries, each written by one thread of one launch of a round |
 */
import { field, layout } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { receivedSections, rowsOf } from '../common/received.js';
import { hostSections } from '../common/waits.js';
import { linesOf } from './rails.js';
import { type HybridShape, hopsOf } from './shape.js';
import { messageRooms } from './wire.js';

export function hybridWindow(shape: HybridShape) {
  const { topK, maxTokens, localRanks, dispatch, combine } = shape;
  const { turns, replicas } = sharing(shape);
  const handedOn = replicas > 1 ? maxTokens : 0;
  const { unit, units } = rowsOf(shape, shape.output.dtype);
  const { own, carried } = messageRooms(shape);
  const lines = linesOf(shape) * hopsOf(shape);
  return layout('hybrid window', {
    /** The round that this rank has begun last, and the one whose sums it has made last. */
    begun: field('u32', [1]),
    finished: field('u32', [1]),
    /** [block][rank of the node]: the round for which the rank's block has forwarded all that is its. */
    dispatched: field('u32', [dispatch.blocks, localRanks]),
    /** [block][rank of the node]: the round for which the rank's block has vouched that its experts are done. */
    combined: field('u32', [combine.blocks, localRanks]),
    /** [line][chunk], [hop][chunk]: the round whose message has come; the watcher passes on what it sees in the wire. */
    dispatchLanded: field('u32', carried),
    combineLanded: field('u32', own),
    /** [line]: how many tokens its rank takes of its group's. */
    tokens: field('u32', [lines]),
    /** [line][chunk], [hop][chunk]: which tokens came from there, and which were sent there. */
    came: field('u32', carried),
    sent: field('u32', own),
    /** [line][chunk]: how many pieces of the message that goes home are packed; 0 between rounds. */
    packed: field('u32', carried),
    /** [line][turn][k]: the ids of tokens that came from there. */
    routes: field('i32', [lines, turns, topK]),
    /** [token][part]: the round whose sum its member has handed on; and the sums. */
    handed: field('u32', [handedOn, combine.parts]),
    sums: field(unit, [handedOn, units]),
    ...hostSections(shape),
    ...receivedSections(shape),
  });
}

/** Words that count rounds: they begin with every bit set, so that the first round wraps them. */
export const roundWords = [
  ...(['begun', 'finished', 'dispatched', 'combined', 'dispatchLanded', 'combineLanded', 'handed'] as const),
] as const;
