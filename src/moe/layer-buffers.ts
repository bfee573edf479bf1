/**
 * What the layers of a model share: the windows that carry rows, and the memory that a layer's round fills and uses up. Rounds
 * of layers follow each other, so one set is enough for any number of them.
 *
 * | memory | read last in a round | written next by | behind it because |
 * | --- | --- | --- | --- |
 * | windows, ids and weights of routes, places | combine | dispatch of the next round in the lane | rounds of one layer reuse them in the same way: a family's table at its window |
 * | logits | the choice of experts | the next layer's `router_logits` | that launch is not programmatic: it begins when all before it has ended |
 * | ids and weights of routes | dispatch; ids without places, and weights of an invariant layer, also by combine | the next layer's choice of experts | it is behind that `router_logits` |
 * | the plan | combine, also the one of a peer that pulls | the next layer's plan | it is behind a dispatch whose receive awaited the peers' next dispatch, which they enqueue behind their combine |
 * | rows that experts made | as the plan | the next layer's second product | as the plan |
 * | rows between products | the second product | the next layer's first product | it is behind the plan; what begins ahead of `awaitPrevious` reads weights only |
 * | rows of the shared expert | its second product | the next layer's first | it is on the caller's stream, or behind it, and that stream has awaited the one before |
 */
import { ArgumentError, DisposedError } from '../base/errors.js';
import { type Event, requireStream, type Stream } from '../gpu/index.js';
import { World } from '../net/world/index.js';
import { expertsShapeOf } from './experts/experts-options.js';
import { ExpertsPlan } from './experts/experts-plan.js';
import { layerMemory } from './moe-memory.js';
import { type LayerBuffersOptions, type LayerPlan, setPlanOf } from './moe-options.js';
import { ExpertParallel } from './rounds/expert-parallel.js';
import type { Received } from './rounds/in-flight.js';
import { type MemoryUse, memoryFor } from './rounds/memory.js';
import { layerOf } from './rounds/options.js';
import { Scratch } from './rounds/scratch.js';
import { everywhere, type Undo, undoAll, undoing } from './rounds/undoing.js';

/** What one round in flight fills. */
export interface Lane {
  readonly received: Received;
  readonly plan: ExpertsPlan;
  readonly scratch: Scratch;
  /** That of the shared expert, which runs beside the others. */
  readonly sharedScratch: Scratch;
  /** Where the shared expert of few tokens runs: beside the others; null where it runs on the caller's stream. */
  readonly beside: Beside | null;
}

/** A stream beside the caller's, and the events by which the two wait for each other. */
export interface Beside {
  readonly stream: Stream;
  readonly begun: Event;
  readonly done: Event;
}

export interface BuffersInside {
  readonly world: World;
  readonly plan: LayerPlan;
  readonly ep: ExpertParallel;
  /** As many as rounds may be in flight. */
  readonly lanes: readonly Lane[];
  /** Where every other chunk of a forward runs; null with one round in flight. */
  readonly second: Beside | null;
}

let insideOf: (buffers: LayerBuffers) => BuffersInside;
export const buffersInside = (buffers: LayerBuffers): BuffersInside => insideOf(buffers);

export class LayerBuffers {
  static {
    insideOf = (buffers) => buffers.#inside;
  }

  /** The family of kernels that carries rows, and why it was chosen. */
  readonly family: string;
  readonly why: string;
  /** The memory of this rank that the set takes; layers add their tables of places. */
  readonly memory: MemoryUse;
  readonly #inside: BuffersInside;
  readonly #undo: Undo;
  #disposed = false;

  private constructor(inside: BuffersInside, undo: Undo) {
    const { ep, plan, world } = inside;
    this.family = ep.family;
    this.why = ep.why;
    this.memory = layerMemory(plan, world, ep.memory);
    this.#inside = inside;
    this.#undo = undo;
  }

  /**
   * Creates the windows and compiles what needs no weights. Every rank of the world calls it with the same options. Where one rank cannot
   * have what it needs, all throw, and nothing is left.
   */
  static async create(world: World, options: LayerBuffersOptions): Promise<LayerBuffers> {
    if (!(world instanceof World))
      throw new ArgumentError('world', world, 'what World.local or World.join gives');
    const plan = setPlanOf(options);
    // Refused now, and not when there are windows.
    expertsShapeOf(layerOf(world.ranks, plan.carrier), world.rank, plan.planned(world.ranks));
    return undoing(async (undo) => {
      const keep = keeping(undo);
      const ep = keep(await ExpertParallel.create(world, plan.carrier));
      // Each MoeLayer adds its own.
      ep.removeLayer(ep.layers[0]!);
      const made = await everywhere(world, 'creating LayerBuffers', async () => {
        const lanes: Lane[] = [];
        for (const received of ep.views) lanes.push(await laneOf(world, ep, received, plan, keep));
        const second = lanes.length === 1 ? null : besideOf(world, keep);
        return { lanes, second };
      });
      return new LayerBuffers({ world, plan, ep, ...made }, undo);
    });
  }

  /** The memory of each rank that `create` would take, whether or not there is a GPU here. */
  static memory(options: LayerBuffersOptions & { readonly ranks: number }): MemoryUse {
    const plan = setPlanOf(options);
    const { ranks } = options;
    return layerMemory(plan, { ranks, rank: 0 }, memoryFor({ ...plan.carrier, ranks }));
  }

  /**
   * Waits until everything on the stream is done, of whichever layers: as that of ExpertParallel. With `onLoss: 'mask'` it throws
   * RepeatRoundsError, once, where ranks were left out.
   */
  async synchronize(stream: Stream): Promise<void> {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('these LayerBuffers');
    await this.#inside.ep.synchronize(stream);
  }

  /** Frees all memory, when every rank has come here. Layers that use it are disposed of before. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    await undoAll(this.#undo);
  }
}

/** Takes a part, so that it is disposed of with the others; returns it. */
export type Keep = <T extends { dispose(): unknown }>(part: T) => T;

export const keeping =
  (undo: Undo): Keep =>
  (part) => {
    undo.push(() => part.dispose());
    return part;
  };

async function laneOf(
  world: World,
  ep: ExpertParallel,
  received: Received,
  { model, overlap, planned }: LayerPlan,
  keep: Keep,
): Promise<Lane> {
  const of = { world, shape: ep.shape, received };
  const plan = keep(await ExpertsPlan.create(of, planned(world.ranks)));
  const scratch = keep(new Scratch(world.device));
  const sharedScratch = keep(new Scratch(world.device));
  const beside = model.sharedInner !== undefined && overlap ? besideOf(world, keep) : null;
  return { received, plan, scratch, sharedScratch, beside };
}

function besideOf({ device }: World, keep: Keep): Beside {
  return {
    stream: keep(device.createStream()),
    begun: keep(device.createEvent()),
    done: keep(device.createEvent()),
  };
}
