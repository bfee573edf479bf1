/**
 * How bytes and signals get to a peer: all that the kernels of this family ask of a network. They are made with a
 * transport, and know nothing else about it.
 */
import { constant, type DeviceFunction, device, pointer, windowOf } from '../../../lang/index.js';
import type { Unit } from '../common/parts.js';
import type { PortableWindow } from './window.js';

/** Which word of which peer is raised, and to what. Places in a peer's window are told by its address: `put` and `signal` reach it, loads and stores need not. */
export const signalParams = (window: PortableWindow) =>
  ({
    /** This rank's window. */
    mine: windowOf(window),
    peer: 'u32',
    /** In the peer's window. Its lower half counts. */
    signal: pointer('u64'),
    /** With `adds` a number that is added to the word. Without, the number of a round, which replaces the word. */
    value: 'u32',
    adds: constant<boolean>(),
  }) as const;

export const putParams = (window: PortableWindow, unit: Unit) =>
  ({ ...signalParams(window), to: pointer(unit), from: pointer(unit), count: 'u32' }) as const;

export const awaitParams = { signal: pointer('u64'), value: 'u32', limit: 'u32' } as const;

export interface Transport {
  /**
   * A warp's, all lanes with the same arguments: `count` elements go to the peer, and behind them the signal, which
   * whoever awaits it sees only after them. The message includes what the warp wrote before its own barrier. The source, in the
   * window or in the caller's rows, may be read until the peer has seen the signal, which may wait for `settle`.
   */
  put(window: PortableWindow, unit: Unit): DeviceFunction<ReturnType<typeof putParams>, 'void'>;
  /**
   * One thread's, behind a barrier with all who put: raises the signal where puts have not. One call may stand for many puts
   * to the same signal, with the sum of what they add; several lanes settle several signals at once.
   */
  settle(window: PortableWindow): DeviceFunction<ReturnType<typeof signalParams>, 'void'>;
  /** One thread's: what happened before it on this rank is seen by whoever awaits it. */
  signal(window: PortableWindow): DeviceFunction<ReturnType<typeof signalParams>, 'void'>;
  /**
   * Waits until a word of this rank's window has reached `value`, which counts around; what was put before is then there.
   * False when `limit`, in microseconds, has run out.
   */
  readonly awaitSignal: DeviceFunction<typeof awaitParams, 'bool'>;
}

/** Vectors that a lane loads before it stores the first. */
const inFlight = 8;

const signalByStore = (window: PortableWindow) =>
  device({ params: signalParams(window) }, (g, { signal, value, adds }) => {
    const word = signal.as('u32');
    if (adds) g.atomicAdd(word, value, { order: 'release', scope: 'sys' });
    else g.store(word, value, { order: 'release', scope: 'sys' });
  });

/** Ranks that map each other's windows: puts are the warps' stores, and a release behind them vouches for all of them. */
export const windows: Transport = {
  put: (window, unit) =>
    device(
      { params: putParams(window, unit), using: { UNIT: unit, IN_FLIGHT: inFlight } },
      (g, { to, from, count }, u) => {
        for (let base = g.laneId; base < count; base += 32 * u.IN_FLIGHT) {
          const some = g.registers(u.UNIT, u.IN_FLIGHT);
          for (const d of g.unroll(u.IN_FLIGHT)) {
            if (base + d * 32 < count) some[d] = g.load(from.at(base + d * 32));
          }
          for (const d of g.unroll(u.IN_FLIGHT)) {
            if (base + d * 32 < count) g.store(to.at(base + d * 32), some[d]!);
          }
        }
      },
    ),
  settle: signalByStore,
  signal: signalByStore,
  awaitSignal: device({ params: awaitParams, returns: 'bool' }, (g, { signal, value, limit }) =>
    g.awaitEpoch(signal.as('u32'), value, { order: 'acquire', scope: 'sys', limit }),
  ),
};
