/** The work that ranks enqueue, as a timeline: ranks, streams, calls and the kernels that each launches, between events. */
import type { Timeline } from '../../base/timeline.js';
import { type Device, type Event, listenToRanges, type RangeListener, type Stream } from '../../gpu/index.js';
import type { Timing } from './timing.js';

/** A call or a launch of one rank; µs since all ranks began together. */
export interface Span {
  readonly rank: number;
  /** The stream's number, by first use. */
  readonly track: number;
  readonly name: string;
  /** How many other calls this one is nested in. */
  readonly depth: number;
  readonly start: number;
  readonly end: number;
}

interface Range extends Pick<Span, 'name' | 'depth'> {
  readonly stream: Stream;
  readonly start: Event;
  readonly end: Event;
}

/** Events around every range, and when the GPU came to them. */
export class Clock implements RangeListener {
  readonly #device: Device;
  readonly #zero: Event;
  readonly #ranges: Range[] = [];
  readonly #open: Range[] = [];

  constructor(device: Device) {
    this.#device = device;
    this.#zero = device.createEvent();
  }

  enter(name: string, stream: Stream): void {
    const start = this.#device.createEvent();
    stream.record(start);
    const range = { name, stream, depth: this.#open.length, start, end: this.#device.createEvent() };
    this.#ranges.push(range);
    this.#open.push(range);
  }

  leave(): void {
    const { stream, end } = this.#open.pop()!;
    stream.record(end);
  }

  /** Times what `enqueue` enqueues, from this point of `stream` on. */
  watch(stream: Stream, enqueue: () => void): void {
    stream.record(this.#zero);
    listenToRanges(this, enqueue);
  }

  /** The result, once the streams have come to the end of it. */
  stop(rank: number): Span[] {
    const streams = [...new Set(this.#ranges.map(({ stream }) => stream))];
    const at = (event: Event): number => event.elapsedSince(this.#zero) * 1000;
    const spans = this.#ranges.map(({ name, stream, depth, start, end }): Span => {
      return { rank, track: streams.indexOf(stream), name, depth, start: at(start), end: at(end) };
    });
    for (const { start, end } of this.#ranges) for (const event of [start, end]) event.dispose();
    this.#zero.dispose();
    return spans;
  }
}

/** Every rank calls it, and gets the spans of all. Launches are enqueued one by one: a graph has no such events. */
export async function trace(timing: Timing, enqueue: () => void): Promise<readonly Span[]> {
  const { world, stream, options } = timing;
  enqueue(); // caches of instructions
  const clock = new Clock(world.device);
  await timing.aligned(() => clock.watch(stream, enqueue), 10 * options.pause);
  const mine = new TextEncoder().encode(JSON.stringify(clock.stop(world.rank)));
  const all = await world.allGather(mine, 'spans');
  return all.flatMap((bytes) => JSON.parse(new TextDecoder().decode(bytes)) as Span[]);
}

/** Streams are tracks, launches lie in their calls, and arrows go from a kernel that sends to those of other ranks that receive. */
export function timelineOf(spans: readonly Span[]): Timeline {
  const slices = spans.map((span) => ({ ...span, category: 'work' }));
  const named = new Map(slices.map(({ rank, track }) => [`${rank} ${track}`, { rank, track }]));
  return {
    tracks: [...named.values()].map((track) => ({ ...track, name: `stream ${track.track}` })),
    slices,
    arrows: slices.flatMap((from) => {
      const receive = from.name.replace(/_send$/, '_recv');
      if (receive === from.name) return [];
      const others = slices.filter(
        (to) => to.name === receive && to.track === from.track && to.rank !== from.rank,
      );
      return others.map((to) => ({ name: 'rows', from, to }));
    }),
  };
}
