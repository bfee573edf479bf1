/** One forward of a layer as a timeline: ranks, streams, and the rows that go from a send to the receives. */
import type { Timeline } from '../../base/timeline.js';
import type { Event, Stream } from '../../gpu/index.js';
import { layerBatches, MoeLayer, type MoeLayerOptions, type Tensor, type Work } from '../../moe/index.js';
import type { World } from '../../net/world/index.js';
import type { Timing } from './timing.js';

/** A piece of work of one rank; µs since all ranks began together. */
export interface Span {
  readonly rank: number;
  /** The micro-batch, and so the stream. */
  readonly batch: number;
  readonly work: Work;
  readonly start: number;
  readonly end: number;
}

/** Marks behind each piece of work of a layer's forward, and when the GPU came to them. */
export class LayerClock {
  readonly #zero: Event;
  readonly #marks: { readonly batch: number; readonly work: Work; readonly event: Event }[] = [];
  readonly #world: World;
  readonly #layer: MoeLayer;

  constructor(world: World, layer: MoeLayer) {
    this.#world = world;
    this.#layer = layer;
    this.#zero = world.device.createEvent();
  }

  /** From here on, and for one forward. */
  start(stream: Stream): void {
    stream.record(this.#zero);
    for (const [batch, of] of layerBatches(this.#layer).entries()) {
      of.mark = (work, on) => {
        const event = this.#world.device.createEvent();
        on.record(event);
        this.#marks.push({ batch, work, event });
      };
    }
  }

  /** The result, once the streams have come to the end of it. */
  stop(): Span[] {
    for (const of of layerBatches(this.#layer)) of.mark = null;
    const ends = new Map<number, number>();
    const spans = this.#marks.map(({ batch, work, event }): Span => {
      const end = event.elapsedSince(this.#zero) * 1000;
      const start = ends.get(batch) ?? 0;
      ends.set(batch, end);
      return { rank: this.#world.rank, batch, work, start, end };
    });
    for (const { event } of this.#marks) event.dispose();
    this.#zero.dispose();
    return spans;
  }
}

/** Every rank calls it, and gets the spans of all. In two micro-batches, launched one by one: a graph has no such marks. */
export async function traceLayer(
  timing: Timing,
  options: MoeLayerOptions,
  { x, out }: { readonly x: Tensor; readonly out: Tensor },
): Promise<readonly Span[]> {
  const { world, stream } = timing;
  const microBatches = options.maxTokens < 2 ? 1 : 2;
  const layer = await MoeLayer.create(world, { ...options, microBatches });
  layer.forward(x, out, stream); // caches of instructions
  const clock = new LayerClock(world, layer);
  await timing.aligned(() => {
    clock.start(stream);
    layer.forward(x, out, stream);
  });
  const mine = clock.stop();
  await layer.dispose();
  const all = await world.allGather(new TextEncoder().encode(JSON.stringify(mine)), 'spans');
  return all.flatMap((bytes) => JSON.parse(new TextDecoder().decode(bytes)) as Span[]);
}

const sends = { 'dispatch send': 'dispatch receive', 'combine send': 'combine receive' } as const;

/** Streams are tracks, and arrows go from a send to the receives of other ranks. */
export function layerTimeline(spans: readonly Span[]): Timeline {
  const slices = spans.map(({ work, batch, ...span }) => {
    return { ...span, track: batch, name: work, category: 'layer' };
  });
  const named = new Map(slices.map(({ rank, track }) => [`${rank} ${track}`, { rank, track }]));
  return {
    tracks: [...named.values()].map((track) => ({ ...track, name: `stream ${track.track}` })),
    slices,
    arrows: slices.flatMap((from) => {
      const receive = sends[from.name as keyof typeof sends];
      const others = slices.filter(
        (to) => to.name === receive && to.track === from.track && to.rank !== from.rank,
      );
      return others.map((to) => ({ name: 'rows', from, to }));
    }),
  };
}
