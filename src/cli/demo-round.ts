/** One rank's round of `heddle demo`: all that a user of Heddle has to write, and a clock beside it. */

import { ExpertParallel, emptyTensor, readBits, tensorFrom } from '../moe/index.js';
import { bitsOf, type Shape, type Source } from '../moe/layer/index.js';
import type { World } from '../net/world/index.js';
import { ExampleExperts, layerOf } from '../verify/testing/index.js';
import type { KernelSpan } from './print-demo.js';

export async function runRank(
  world: World,
  shape: Shape,
  { tokens, topkIds, topkWeights, payloads }: Source,
) {
  const { dtype, hidden } = shape.output;
  const { device } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, layerOf(shape));
  const experts = await ExampleExperts.create(world, ep, stream);
  const x = tensorFrom(device, stream, bitsOf(dtype, payloads.x!), dtype, [tokens, hidden]);
  const out = emptyTensor(device, dtype, [tokens, hidden]);

  const clock = new KernelClock(world, stream);
  ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x } }, stream);
  clock.ended('dispatch');
  experts.run(stream);
  clock.ended('experts');
  ep.combine(out, stream);
  clock.ended('combine');
  await ep.synchronize(stream);

  const result = { out: await readBits(out, stream), spans: clock.spans() };
  await ep.dispose();
  return result;
}

/** When kernels began and ended on a GPU. The simulated machine knows by itself, and events would hold it up. */
class KernelClock {
  readonly #events: {
    readonly name: string;
    readonly event: ReturnType<World['device']['createEvent']>;
  }[] = [];
  readonly #world: World;
  readonly #stream: ReturnType<World['device']['createStream']>;

  constructor(world: World, stream: ReturnType<World['device']['createStream']>) {
    this.#world = world;
    this.#stream = stream;
    this.ended('');
  }

  ended(name: string): void {
    const { device } = this.#world;
    if (device.kind === 'sim') return;
    const event = device.createEvent();
    this.#stream.record(event);
    this.#events.push({ name, event });
  }

  /** In microseconds since this rank began. */
  spans(): KernelSpan[] {
    const [zero, ...ends] = this.#events;
    if (zero === undefined) return [];
    let start = 0;
    return ends.map(({ name, event }) => {
      const end = event.elapsedSince(zero.event) * 1000;
      const span = { rank: this.#world.rank, stream: 0, kernel: name, start, end };
      start = end;
      return span;
    });
  }
}
