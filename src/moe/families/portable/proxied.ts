/**
 * The transport by a proxy. The window lies in memory that the network reaches, and kernels see none but their own: a place
 * in a peer's is the same place in that. A put is a command for the proxy; what a rank puts to itself are stores.
 */
import { constant, device, section, windowOf } from '../../../lang/index.js';
import { unitBytes } from '../common/parts.js';
import { putParams, signalParams, type Transport, windows } from './transport.js';
import type { PortableWindow } from './window.js';

/** One thread's: what to write, and all that happened before, is handed to the proxy. */
const command = (window: PortableWindow) =>
  device(
    {
      params: {
        mine: windowOf(window),
        peer: 'u32',
        to: 'u32',
        from: 'u32',
        bytes: 'u32',
        signal: 'u32',
        value: 'u32',
        adds: constant<boolean>(),
      },
      using: { SLOTS: section(window, 'posted').length },
    },
    (g, { mine, peer, to, from, bytes, signal, value, adds }, u) => {
      const number = g.atomicAdd(mine.numbered.at(0), 1, { order: 'relaxed', scope: 'gpu' });
      const slot = number % u.SLOTS;
      g.store(mine.commands.at(slot, 0), g.pack('u32', [peer, to, from, bytes]));
      g.store(mine.commands.at(slot, 1), g.pack('u32', [signal, value, adds ? 1 : 0, 0]));
      g.store(mine.posted.at(slot), number + 1, { order: 'release', scope: 'sys' });
    },
  );

export const proxied: Transport = {
  put: (window, unit) =>
    device(
      {
        params: putParams(window, unit),
        using: { SIZE: unitBytes[unit], command: command(window), putHere: windows.put(window, unit) },
      },
      (g, { mine, peer, to, from, count, signal, value, adds }, u) => {
        if (peer === g.rank) {
          u.putHere({ mine, peer, to, from, count, signal, value, adds });
        } else {
          // One lane may write the command for bytes that all lanes wrote: the caller has a barrier between (transport.ts). Each
          // lane has awaited the writes of earlier launches itself.
          const start = mine.begun.at(0);
          if (g.laneId === 0)
            u.command({
              mine,
              peer,
              to: g.distance(to, start),
              from: g.distance(from, start),
              bytes: count * u.SIZE,
              signal: g.distance(signal, start),
              value,
              adds,
            });
        }
      },
    ),
  // The command has raised it, unless it was none.
  settle: (window) =>
    device(
      { params: signalParams(window), using: { settleHere: windows.settle(window) } },
      (g, { mine, peer, signal, value, adds }, u) => {
        if (peer === g.rank) u.settleHere({ mine, peer, signal, value, adds });
      },
    ),
  signal: (window) =>
    device(
      {
        params: signalParams(window),
        using: { command: command(window), signalHere: windows.signal(window) },
      },
      (g, { mine, peer, signal, value, adds }, u) => {
        if (peer === g.rank) u.signalHere({ mine, peer, signal, value, adds });
        else {
          const place = g.distance(signal, mine.begun.at(0));
          u.command({ mine, peer, to: 0, from: 0, bytes: 0, signal: place, value, adds });
        }
      },
    ),
  awaitSignal: windows.awaitSignal,
};
