/**
 * The rows that a dispatch sends to each peer, counted so that the receiver knows by one word a source when all has come.
 *
 * Routes travel in chunks of 32 tokens, to every peer, as one message of ids and one of weights. Rows travel to the ranks
 * that own one of their token's experts. A row's message adds 1 to the peer's `arrived`; a chunk's adds 1 as well, and
 * one for every message of the rows that do not come. So a round adds the same to every word, whatever the routes, and
 * nothing is counted in advance, or zeroed: n rounds have come when the word has grown by n times that.
 *
 * Ranks of a group send the rows of their share, and take turns with the chunks. For a chunk of another's turn a rank adds
 * the same without a message.
 */
import { type Layer, sharing } from '../../layer/index.js';
import { partsOf } from '../common/parts.js';
import type { PortableTuning } from './knobs.js';

export const chunkTokens = 32;

export const chunksOf = ({ maxTokens }: Pick<Layer, 'maxTokens'>): number =>
  Math.ceil(maxTokens / chunkTokens);

/** Messages that bring a token's rows, and all that a source sends in a round if every row comes. */
export function messagesOf(shape: Layer & PortableTuning) {
  const { payloads, dispatch, weights } = shape;
  const ofToken = payloads.reduce((sum, _, p) => {
    const { rowUnits, partUnits } = partsOf(shape, p, dispatch.parts);
    return sum + Math.ceil(rowUnits / partUnits);
  }, 0);
  return { ofToken, ofRound: sharing(shape).turns * ofToken + chunksOf(shape) * (weights ? 2 : 1) };
}
