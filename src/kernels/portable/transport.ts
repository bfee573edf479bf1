/**
 * How bytes and signals get to a peer: all that the kernels of this family ask of a network. They are made with a
 * transport, and know nothing else about it.
 */
import {
  constant,
  type DeviceFunction,
  device,
  peers,
  pointer,
  type WindowParam,
  windowOf,
} from '../../lang/index.js';
import type { Unit } from '../common/units.js';
import type { PortableWindow } from './window.js';

/** A word in the peer's window, and what becomes of it: `value` is added to it, or takes its place. Its lower half counts. */
export const signalParams = {
  peer: 'u32',
  signal: pointer('u64'),
  value: 'u32',
  adds: constant<boolean>(),
} as const;

export const putParams = (unit: Unit) =>
  ({ ...signalParams, to: pointer(unit), from: pointer(unit), count: 'u32' }) as const;

const awaitParams = { signal: pointer('u64'), value: 'u32', limit: 'u32' } as const;

const atParams = (window: PortableWindow) => ({ win: peers(window), peer: 'u32' }) as const;

export interface Transport {
  readonly name: string;
  /** The peer's window, in whatever addresses `put` and `signal` take: they reach it, loads and stores need not. */
  at(
    window: PortableWindow,
  ): DeviceFunction<ReturnType<typeof atParams>, WindowParam<PortableWindow['spec']>>;
  /**
   * A warp's, all lanes with the same arguments: `count` elements go to the peer, and behind them the signal, which
   * whoever awaits it sees only after them. What the warp wrote before a barrier of its own is sent. The source may be read until
   * the peer has seen the signal.
   */
  put(unit: Unit): DeviceFunction<ReturnType<typeof putParams>, 'void'>;
  /** One thread's: what happened before it on this rank is seen by whoever awaits it. */
  readonly signal: DeviceFunction<typeof signalParams, 'void'>;
  /**
   * Waits until a word of this rank's window has reached `value`, which counts around; what was put before is then there.
   * False when `limit`, in microseconds, has run out.
   */
  readonly awaitSignal: DeviceFunction<typeof awaitParams, 'bool'>;
}

/** Vectors that a lane loads before it stores the first. */
const inFlight = 8;

const signalByStore = device({ name: 'signal', params: signalParams }, (g, { signal, value, adds }) => {
  if (adds) g.atomicAdd(signal, g.u64(value), { order: 'release', scope: 'sys' });
  else g.store(signal, g.u64(value), { order: 'release', scope: 'sys' });
});

/** Ranks that map each other's windows: a put is the warp's stores, and one release behind them. */
export const windows: Transport = {
  name: 'windows',
  at: (window) =>
    device({ name: 'window_at', params: atParams(window), returns: windowOf(window) }, (_, { win, peer }) =>
      win.at(peer),
    ),
  put: (unit) =>
    device(
      {
        name: 'put',
        params: putParams(unit),
        using: { UNIT: unit, IN_FLIGHT: inFlight, signalByStore },
      },
      (g, { to, from, count, peer, signal, value, adds }, u) => {
        for (let base = g.laneId; base < count; base += 32 * u.IN_FLIGHT) {
          const some = g.registers(u.UNIT, u.IN_FLIGHT);
          for (const d of g.unroll(u.IN_FLIGHT)) {
            if (base + d * 32 < count) some[d] = g.load(from.at(base + d * 32));
          }
          for (const d of g.unroll(u.IN_FLIGHT)) {
            if (base + d * 32 < count) g.store(to.at(base + d * 32), some[d]!);
          }
        }
        g.warp.barrier(); // the release below is for all lanes' stores
        if (g.laneId === 0) u.signalByStore({ peer, signal, value, adds });
      },
    ),
  signal: signalByStore,
  awaitSignal: device(
    { name: 'await_signal', params: awaitParams, returns: 'bool' },
    (g, { signal, value, limit }) => g.awaitEpoch(signal, value, { order: 'acquire', scope: 'sys', limit }),
  ),
};
