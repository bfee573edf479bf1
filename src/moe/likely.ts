/** Why a rank that lives may seem lost: a mistake of the program that no call can see. */
import type { Operation } from './families/index.js';
import { firstOf, type Layer, sharing } from './layer/index.js';
import type { Track } from './rounds/track.js';

/** The mistake to look for where a kernel gave up waiting and the circle has heard of no loss. */
export function likelyMistake(
  layer: Layer,
  rank: number,
  { operation, peer }: { readonly operation: Operation; readonly peer: number },
  tracks: readonly Track[],
): { readonly likely: string } | undefined {
  if (tracks.some(({ changedStreams }) => changedStreams)) {
    return {
      likely:
        'this rank enqueued a round on more than one stream, and the likely cause is that nothing orders its halves there: ' +
        'record an event on the one stream and let the other wait for it (stream.record, stream.wait)',
    };
  }
  const first = firstOf(layer, rank);
  const { replicas } = sharing(layer);
  // In dispatch the ranks of a group meet however many tokens they bring.
  if (operation !== 'combine' || replicas === 1 || firstOf(layer, peer) !== first) return undefined;
  const brought = tracks.map(({ round }) => round.tokens).join(' and ');
  return {
    likely:
      `ranks ${first} to ${first + replicas - 1} are a group, and the likely cause is that they brought different numbers ` +
      `of tokens to a round: this rank last brought ${brought}`,
  };
}
