/** One forward of a layer as a timeline: ranks, streams, and the rows that go from a send to the receives. */
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

/** Chrome's trace format, which Perfetto opens: ranks are processes, streams threads, arrows go from send to receive. */
export function chromeTrace(spans: readonly Span[]): { readonly traceEvents: readonly object[] } {
  const ranks = [...new Set(spans.map(({ rank }) => rank))];
  const batches = [...new Set(spans.map(({ batch }) => batch))];
  const names = ranks.flatMap((pid) => [
    { ph: 'M', name: 'process_name', pid, args: { name: `rank ${pid}` } },
    ...batches.map((tid) => ({ ph: 'M', name: 'thread_name', pid, tid, args: { name: `stream ${tid}` } })),
  ]);
  const works = spans.map(({ rank, batch, work, start, end }) => ({
    ...{ ph: 'X', name: work, cat: 'layer', pid: rank, tid: batch, ts: start, dur: end - start },
  }));
  const arrows = spans.flatMap((from, n) => {
    if (!(from.work in sends)) return [];
    const receive = sends[from.work as keyof typeof sends];
    const others = spans.filter(
      (to) => to.work === receive && to.batch === from.batch && to.rank !== from.rank,
    );
    // Shortly before its end a moment is inside a span; at its end it would be in the next.
    const at = ({ rank, batch, start, end }: Span) => ({
      ...{ name: 'rows', cat: 'rows', pid: rank, tid: batch, ts: end - (end - start) / 1000 },
    });
    return others.flatMap((to) => {
      const id = n * ranks.length + to.rank;
      return [
        { ph: 's', id, ...at(from) },
        { ph: 'f', bp: 'e', id, ...at(to) },
      ];
    });
  });
  return { traceEvents: [...names, ...works, ...arrows] };
}
