import { field, section, type TypedLayout } from '../../../lang/index.js';
import type { View, WindowPlan, WirePlan } from '../family.js';
import { numberOfRound } from './rounds.js';

/**
 * What a launch leaves behind when it gave up waiting for a peer: four words of its own window, read by its own host.
 * Once set they stay: the host clears them by renewing the world.
 */
const words = 4;
export const failureField = field('u32', [words]);

/** Where they are, in a window with such a layout. */
export const failureView = (
  window: WindowPlan | WirePlan,
  layout: TypedLayout<{ readonly failure: typeof failureField }>,
): View => ({
  in: window,
  offset: section(layout, 'failure').offset,
  dtype: 'u32',
  shape: [words],
});

/** What a failed wait was doing: the first word, 0 for none. Then the rank that did not come, the epoch, the block. */
export const operations = { dispatch: 1, combine: 2 } as const;
export type Operation = keyof typeof operations;

/** Reads the words; null where nothing failed. */
export function readFailure(
  words: Uint32Array,
): { readonly operation: Operation; readonly peer: number; readonly epoch: number } | null {
  const [code, peer = 0, epoch = 0] = words;
  const operation = (Object.keys(operations) as Operation[]).find((name) => operations[name] === code);
  return operation === undefined ? null : { operation, peer, epoch: numberOfRound(epoch) };
}
