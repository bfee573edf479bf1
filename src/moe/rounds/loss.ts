/** The meaning of a loss: who was lost, as all ranks are told; and why a rank that lives may seem lost. */
import type { Circle } from '../../net/world/index.js';
import type { Operation } from '../families/index.js';
import { firstOf, type Layer, sharing } from '../layer/index.js';
import type { RoundInFlight } from './in-flight.js';

/** Where all is well but for the loss, the circle answers in a fraction of it. */
const patienceMs = 1000;

/**
 * Waits until the circle has said whom it lost, but not for long. A rank's own proxy may blame a rank that only left because it was told of a loss
 * before this rank was, and has left because of it. The circle has heard of that first, if that one's proxy told it.
 */
export function verdictOf({ signal }: Circle): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, patienceMs);
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

/**
 * The likely mistake of the program when a kernel gave up waiting but the circle has heard of no loss. No call can
 * see such a mistake.
 */
export function likelyMistake(
  layer: Layer,
  rank: number,
  { operation, peer }: { readonly operation: Operation; readonly peer: number },
  rounds: readonly Pick<RoundInFlight, 'changedStreams' | 'brings'>[],
): { readonly likely: string } | undefined {
  if (rounds.some(({ changedStreams }) => changedStreams)) {
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
  const brought = rounds.map(({ brings }) => brings.tokens).join(' and ');
  return {
    likely:
      `ranks ${first} to ${first + replicas - 1} are a group, and the likely cause is that they brought different numbers ` +
      `of tokens to a round: this rank last brought ${brought}`,
  };
}
