/** How long launches wait, and what they leave behind when a peer did not come. */
import { device, field, list, pointer, type TypedLayout, windowOf } from '../../../lang/index.js';
import type { Layer } from '../../layer/index.js';

/**
 * How long a launch may wait: not at all behind one that gave up. So all that is enqueued ends within the time of one
 * wait, however many waits it holds, and `failure` stays what went wrong first.
 */
export const patienceOf = device(
  { params: { failure: pointer('u32'), limit: 'u32' }, returns: 'u32' },
  (g, { failure, limit }) => {
    const failed = g.load(failure.at(0), { order: 'relaxed', scope: 'gpu' });
    return failed === 0 ? limit : g.u32(0);
  },
);

/**
 * Records whom a wait gave up on, for this rank alone. Several threads may fail at once, of this block or of all: each word
 * is whole, and any of them is worth reporting.
 */
export const recordFailure = (operation: Operation, whose: 'cta' | 'gpu' = 'gpu') =>
  device(
    {
      params: { failure: pointer('u32'), peer: 'u32', epoch: 'u32' },
      using: { OPERATION: operations[operation], WHOSE: whose },
    },
    (g, { failure, peer, epoch }, { OPERATION, WHOSE }) => {
      g.store(failure.at(0), OPERATION, { order: 'relaxed', scope: 'gpu' });
      g.store(failure.at(1), peer, { order: 'relaxed', scope: WHOSE });
      g.store(failure.at(2), epoch, { order: 'relaxed', scope: WHOSE });
      g.store(failure.at(3), g.blockIdx.x, { order: 'relaxed', scope: WHOSE });
    },
  );

/**
 * A launch leaves a record behind when it gave up waiting for a peer: four words of its own window, read by its own host.
 * Once set they stay: the host clears them by a mask.
 */
export const failureWords = 4;
export const failureField = field('u32', [failureWords]);

/** Rounds whose waits are remembered: those of every layer, where a model's take turns. */
export const notedWaits = 1024;

/** The sections of a window that a rank and its own host share. Where nobody asks for masks, or for waits, they are empty. */
export const hostSections = ({ masks, waits, ranks }: Layer) => ({
  failure: failureField,
  /** A bit for each rank that rounds leave out. */
  masked: field('v16', [masks ? 1 : 0]),
  /**
   * [dispatch, combine][round, modulo their number][peer]: nanoseconds that this rank waited for the peer; every bit is set before
   * the first round.
   */
  waited: field('u64', [waits ? 2 : 0, notedWaits, ranks]),
  /** [round, modulo their number]: its epoch, and the number of its layer. */
  waiters: field('u32', [waits ? notedWaits : 0, 2]),
});

/** The number of the round's layer, where waits are counted. */
export const layerParam = ({ waits }: Layer) => list('u32', waits ? 1 : 0);

/**
 * What a wait for a peer leaves: `failed`, where it was in vain; and how long it took, by `now` before it and `noteWait` behind it, of
 * one thread of a round for each peer. Nothing on the device reads what that notes, and the launch that wrote there before it is many
 * rounds back. Dispatch notes whose round it is, by `noteLayer`.
 * Where nobody asks for times, nothing of this is compiled.
 */
export function waiting(
  layer: Layer,
  window: TypedLayout<Pick<ReturnType<typeof hostSections>, 'waited' | 'waiters'>>,
  operation: Operation,
) {
  const { waits = false } = layer;
  const now = device({ params: {}, returns: 'u64', using: { WAITS: waits } }, (g, _, { WAITS }) => {
    let time = g.u64(0);
    if (WAITS) time = g.clock();
    return time;
  });
  const noteWait = device(
    {
      params: { mine: windowOf(window), peer: 'u32', epoch: 'u32', since: 'u64' },
      using: { WAITS: waits, PHASE: operations[operation] - 1, NOTED: notedWaits },
    },
    (g, { mine, peer, epoch, since }, { WAITS, PHASE, NOTED }) => {
      if (WAITS) g.store(mine.waited.at(PHASE, epoch % NOTED, peer), g.clock() - since);
    },
  );
  /** All threads of a launch call it. */
  const noteLayer = device(
    {
      params: { mine: windowOf(window), layer: layerParam(layer), epoch: 'u32' },
      using: { NOTED: notedWaits },
    },
    (g, { mine, layer, epoch }, { NOTED }) => {
      if (layer.length > 0) {
        const round = epoch % NOTED;
        if (g.blockIdx.x === 0 && g.threadIdx.x < 2)
          g.store(mine.waiters.at(round, g.threadIdx.x), g.threadIdx.x === 0 ? epoch : layer[0]!);
      }
    },
  );
  return { now, noteWait, noteLayer, failed: recordFailure(operation) };
}

/** The operation of a wait that failed: the first word, 0 for none. Then the rank that did not come, the epoch, the block. */
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

/**
 * The epoch before that of the first round, with which everything that counts rounds begins: every bit is set, so all counters
 * wrap in the first round, and none waits for its 2^32nd to show whether it may.
 */
export const initialEpoch = 0xffff_ffff;

/** For people, who count rounds from 1. */
export const numberOfRound = (epoch: number): number => (epoch - initialEpoch) >>> 0;
