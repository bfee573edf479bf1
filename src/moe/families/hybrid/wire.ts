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
 * | dispatchIn | the writes of the rail's ranks | dispatchRecv of its own rank | their dispatchSend is behind their combineRecv, which awaited a message of this rank's combineSend, which is behind its dispatchRecv |
 * | combineOut | combineSend of its own rank | its proxy, and writes, however late | a combineSend is behind this rank's dispatchRecv, which awaited a message of every node's dispatchSend, which is behind the combineRecv that had awaited the writes |
 * | combineIn | the writes of the rail's ranks | combineRecv of its own rank | their combineSend is behind their dispatchRecv, which awaited a message of this rank's dispatchSend, which is behind its combineRecv |
 *
 * NICs reach the messages only, which may lie in the GPU's memory: the proxy finds what it must know in the words before them, and
 * in tags.
 *
 * The last four rest on chunk 0, which travels in every round, both ways, between every two ranks of a rail.
 */
import { type Field, field, layout, section } from '../../../lang/index.js';
import { combineMessage, dispatchMessage } from './messages.js';
import { chunksOf, type HybridShape, hopsOf } from './shape.js';

export function hybridWire(shape: HybridShape) {
  const messages = [hopsOf(shape), chunksOf(shape)] as const;
  const words = field('u32', messages, ['hop', 'chunk']);
  const room = (vectors: number) => field('v16', [...messages, vectors], ['hop', 'chunk', 'vector']);
  const dispatched = room(dispatchMessage(shape).vectors);
  const combined = room(combineMessage(shape).vectors);
  return layout('hybrid wire', {
    /** The round whose message may leave. */
    dispatchReady: words,
    combineReady: words,
    /** How many rows are in it. */
    dispatchRows: words,
    combineRows: words,
    /** The round whose message has come. */
    dispatchCame: words,
    combineCame: words,
    dispatchOut: dispatched,
    dispatchIn: dispatched,
    combineOut: combined,
    combineIn: combined,
  });
}

/** Likewise those of the wire. */
export const wireRoundWords = (wire: HybridWire): Field[] =>
  (['dispatchReady', 'combineReady', 'dispatchCame', 'combineCame'] as const).map((name) =>
    section(wire, name),
  );

export type HybridWire = ReturnType<typeof hybridWire>;
