/**
 * Tokens travel between nodes in chunks, a message for each chunk, remote node and phase, always at the same place.
 *
 * - dispatch: header, the chunk's ids [token][k], weights likewise, then the rows of those of its tokens that go to the node
 * - combine: header, then one row for each of those tokens, summed over the node's ranks
 *
 * Rows follow each other in the order of the tokens, so a message ends where its last row does. Chunk 0 always travels, as
 * it says how many tokens there are; the others do where they have tokens, even if none of them goes to the node.
 */
import { formatOf, type Layer, outputRowBytes, stretchesOf } from '../../layer/index.js';
import type { HybridShape } from './shape.js';

/** The words of a header, one vector. `tokens`: the sender's share of its group's. `mask`: a bit for each token of the chunk that has rows there; `rows`: how many. */
export const header = { epoch: 0, tokens: 1, mask: 2, rows: 3 } as const;
const headerVectors = 1;

const vectorsOf = (bytes: number): number => Math.ceil(bytes / 16);

/** Where things are in a message of dispatch, in vectors. */
export function dispatchMessage({ payloads, topK, weights, dispatch: { chunk } }: HybridShape) {
  const routes = vectorsOf(chunk * topK * 4);
  const ids = headerVectors;
  // Where there are no weights nobody reads any: their place must lie in the message all the same, which may end with the ids.
  const weightsAt = weights ? ids + routes : ids;
  const rows = weightsAt + routes;
  const payloadsAt: number[] = [];
  let row = 0;
  for (const { rowBytes } of payloads) {
    payloadsAt.push(row);
    row += vectorsOf(rowBytes);
  }
  return { ids, weights: weightsAt, rows, row, payloads: payloadsAt, vectors: rows + chunk * row };
}

/** Where things are in a message of combine, in vectors. */
export function combineMessage(shape: HybridShape) {
  const row = homeVectors(shape);
  return { rows: headerVectors, row, vectors: headerVectors + shape.dispatch.chunk * row };
}

/** A row as it travels home. */
const homeVectors = (layer: Pick<Layer, 'output'>): number =>
  formatOf(layer.output).rounding === null ? vectorsOf(outputRowBytes(layer)) : stretchesOf(layer.output).ALL;

/**
 * Which message has come, in the 31 bits that a network brings with it: the lower three of its round lead. The sender is named by its
 * node where that says all, else by its rank.
 */
export const tagOf = (phase: number, sender: number, chunk: number): number =>
  (phase << 27) | (sender << 20) | chunk;
export const inRound = (tag: number, epoch: number): number => tag | ((epoch & 7) << 28);
/** How many rounds a tag's is behind `epoch`: it is close. */
export const roundsAfter = (epoch: number, tag: number): number => ((tag >>> 28) - epoch) & 7;
/** Which message it is, of whatever round: what `tagOf` gave. */
export const withoutRound = (tag: number): number => tag & 0xfff_ffff;
export const senderOfTag = (tag: number): number => (tag >>> 20) & 0x7f;
