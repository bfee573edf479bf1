/** The events of a world, as one rank of it sees them: told to listeners, and to the file that HEDDLE_EVENTS names. */
import { openSync, writeSync } from 'node:fs';
import { requireFunction } from '../../base/errors.js';
import { naming } from '../../base/files/index.js';
import { getOrMake } from '../../base/maps.js';

/** What happened to a world. */
export type WorldEvent = {
  readonly rank: number;
  readonly ranks: number;
  readonly time: Date;
} & WhatHappened;

export type WhatHappened =
  /** Ranks do not take part any more, and how that was noticed. The listener's own may be one of them. */
  | { readonly kind: 'lost'; readonly lost: readonly number[]; readonly why: string }
  /** Rounds leave these ranks out from now on: all of them, also those of before. */
  | { readonly kind: 'masked'; readonly masked: readonly number[] }
  /** These ranks take part again, or have taken places that were empty. */
  | { readonly kind: 'joined'; readonly joined: readonly number[] }
  /** Weights of so many experts have come to this rank. */
  | { readonly kind: 'moved'; readonly experts: number; readonly bytes: number; readonly ms: number }
  /** A layer has gone over to another placement, in so many steps. */
  | { readonly kind: 'relocated'; readonly steps: number; readonly ms: number };

type Listener = (event: WorldEvent) => void;

/** The listeners of a rank, and its file. */
export class WorldEvents {
  readonly #listeners = new Set<Listener>();
  readonly #file = eventsFile();

  /** Returns what removes the listener. */
  listen(listener: Listener): () => void {
    requireFunction('listener', listener, 'what hears of events: (event) => { … }');
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(world: { readonly rank: number; readonly ranks: number }, what: WhatHappened): void {
    const event = { rank: world.rank, ranks: world.ranks, time: new Date(), ...what };
    // One write of a file that is open for appending: lines of several processes do not mix.
    if (this.#file !== null) writeSync(this.#file, `${JSON.stringify(recordOf(event))}\n`);
    // Each listener runs in a microtask of its own, so one that throws does not disturb the world.
    for (const listener of this.#listeners) queueMicrotask(() => listener(event));
  }
}

/** Open until the process ends, once for all ranks of it. */
const opened = new Map<string, number>();

function eventsFile(): number | null {
  const { HEDDLE_EVENTS: path } = process.env;
  if (path === undefined || path === '') return null;
  return getOrMake(opened, path, () => naming(path, 'written', () => openSync(path, 'a')));
}

/** As OpenTelemetry's data model for logs names it. */
function recordOf({ kind, time, rank, ranks, ...attributes }: WorldEvent): object {
  const serious = kind === 'lost' || kind === 'masked';
  return {
    timeUnixNano: `${time.getTime()}000000`,
    ...(serious ? { severityNumber: 13, severityText: 'WARN' } : { severityNumber: 9, severityText: 'INFO' }),
    eventName: `heddle.world.${kind}`,
    attributes: Object.fromEntries([
      ...[
        ['process.pid', process.pid],
        ['heddle.rank', rank],
        ['heddle.ranks', ranks],
      ],
      ...Object.entries(attributes).map(([name, value]) => [`heddle.${name}`, value]),
    ]),
  };
}
