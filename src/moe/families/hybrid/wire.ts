/**
 * The memory that networks reach: kernels pack messages into it and read those that have come, the proxy moves them. Each
 * rank has its own, all with this layout; nobody else's kernels see it.
 *
 * The writer of each section, and why the next round may write it again:
 *
 * | section | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | dispatchReady, combineReady | dispatchSend; combineSend of its own rank | its proxy | they only grow: epochs |
 * | dispatchRows, combineRows | likewise, before those | likewise, behind those | as `dispatchOut` and `combineOut`: they are read no later |
 * | dispatchCame, combineCame | its proxy | the watchers of dispatchRecv; combineRecv | likewise; waits are ≥ |
 * | dispatchOut | dispatchSend of its own rank | its proxy, and writes, however late | a dispatchSend is behind this rank's combineRecv, which awaited a message of combine from every node, which was sent behind the dispatchRecv that had awaited the writes |
 * | dispatchIn | the writes of the ranks that it carries | dispatchRecv of its own rank | their dispatchSend is behind their combineRecv, which awaited a message of this rank's combineSend, which is behind its dispatchRecv |
 * | combineOut | combineSend of its own rank | its proxy, and writes, however late | a combineSend is behind this rank's dispatchRecv, which awaited a message of every node's dispatchSend, which is behind the combineRecv that had awaited the writes |
 * | combineIn | the writes of its carriers | combineRecv of its own rank | their combineSend is behind their dispatchRecv, which awaited a message of this rank's dispatchSend, which is behind its combineRecv |
 *
 * NICs reach the messages only, which may lie in the GPU's memory: the proxy finds what it must know in the words before them, and
 * in tags.
 *
 * The last four rest on chunk 0, which travels in every round, both ways, between every two ranks of a rail; where ranks are left out, between each rank and those that carry its tokens (rails.ts).
 */
import { field, layout } from '../../../lang/index.js';
import { combineMessage, dispatchMessage } from './messages.js';
import { linesOf } from './rails.js';
import { chunksOf, type HybridShape, hopsOf } from './shape.js';

/** Dimensions of what lies there for each message: by hop what is of this rank's own tokens, by line what is of those that it carries. */
export const messageRooms = (shape: HybridShape) => {
  const chunks = chunksOf(shape);
  return { own: [hopsOf(shape), chunks], carried: [linesOf(shape) * hopsOf(shape), chunks] } as const;
};

export function hybridWire(shape: HybridShape) {
  const { own, carried } = messageRooms(shape);
  const [dispatched, combined] = [dispatchMessage(shape).vectors, combineMessage(shape).vectors];
  const byHop = field('u32', own, ['hop', 'chunk']);
  const byLine = field('u32', carried, ['line', 'chunk']);
  return layout('hybrid wire', {
    /** The round whose message may leave. */
    dispatchReady: byHop,
    combineReady: byLine,
    /** How many rows are in it. */
    dispatchRows: byHop,
    combineRows: byLine,
    /** The round whose message has come. */
    dispatchCame: byLine,
    combineCame: byHop,
    dispatchOut: field('v16', [...own, dispatched], ['hop', 'chunk', 'vector']),
    dispatchIn: field('v16', [...carried, dispatched], ['line', 'chunk', 'vector']),
    combineOut: field('v16', [...carried, combined], ['line', 'chunk', 'vector']),
    combineIn: field('v16', [...own, combined], ['hop', 'chunk', 'vector']),
  });
}

/** Words of the wire that count rounds: they begin with every bit set, as those of the window. */
export const wireRoundWords = ['dispatchReady', 'combineReady', 'dispatchCame', 'combineCame'] as const;
