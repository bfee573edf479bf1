/**
 * A whole Mixture-of-Experts layer: router, dispatch, experts, combine, shared expert. `forward` only enqueues, so that it
 * can be captured as a graph; what overlaps is said by streams and by the order of launches, never by a wait of the host.
 */

import { ArgumentError, DisposedError, HeddleError, requireInteger, requireObject } from '../base/errors.js';
import { requireStream, type Stream } from '../gpu/index.js';
import { World } from '../net/world/index.js';
import { type Placement, requireSamePlaces } from './layer/index.js';
import { buffersInside, keeping, LayerBuffers } from './layer-buffers.js';
import { LayerRound } from './layer-round.js';
import { modelMemory } from './moe-memory.js';
import {
  type LayerPlan,
  type MoeLayerOptions,
  type MoeLayerSizes,
  requireLayerWeights,
  type SharingOptions,
  setPlanOf,
  sharingPlanOf,
} from './moe-options.js';
import { type MoveOptions, MovingWeights } from './moving-weights.js';
import type { LayerTable, Statistics } from './rounds/layer-table.js';
import { type MemoryUse, memoryFor } from './rounds/memory.js';
import { requireVectors, type Tensor, wrap } from './rounds/tensor.js';
import { everywhere, type Undo, undoAll, undoing } from './rounds/undoing.js';
import type { Waits } from './rounds/waits.js';
import { routerShapeOf } from './router/index.js';

/** A layer over buffers that it shares with others. */
export interface SharingLayerOptions extends SharingOptions {
  readonly buffers: LayerBuffers;
}

/** How a forward goes through the buffers. */
export interface ForwardOptions {
  /**
   * Into how many parts the tokens are cut, a round each: the same number on every rank, whatever it brings. Default 1. More tokens than
   * `maxTokens` need more.
   */
  readonly chunks?: number;
}

interface Inside {
  readonly buffers: LayerBuffers;
  readonly plan: LayerPlan;
  readonly table: LayerTable;
  /** For each lane of the buffers. */
  readonly rounds: readonly LayerRound[];
}

let insideOf: (layer: MoeLayer) => Inside;

/** The inside of a layer, for measuring its parts. */
export const layerInside = (layer: MoeLayer): Inside => insideOf(layer);

export class MoeLayer {
  static {
    insideOf = (layer) => layer.#inside;
  }

  /** The family of kernels that carries rows, and why it was chosen. */
  readonly family: string;
  readonly why: string;
  /** What the layer shares with others, or has to itself. */
  readonly buffers: LayerBuffers;
  readonly #inside: Inside;
  readonly #undo: Undo;
  /** Null where experts were not placed. */
  readonly #moving: MovingWeights | null;
  #disposed = false;

  private constructor(inside: Inside, { experts }: MoeLayerOptions | SharingLayerOptions, undo: Undo) {
    const { buffers, table } = inside;
    this.family = buffers.family;
    this.why = buffers.why;
    this.buffers = buffers;
    this.#inside = inside;
    this.#undo = undo;
    const { gateUp, down, gateUpScales, downScales, gateUpBias, downBias } = experts;
    const all = [gateUp, down, gateUpScales, downScales, gateUpBias, downBias].filter(
      (tensor) => tensor !== undefined,
    );
    this.#moving = table.placement && new MovingWeights(buffersInside(buffers).world, all, table.placement);
  }

  /**
   * Checks the weights and binds them to buffers: those that are given, or its own. Every rank of the world calls it with the same options,
   * and creates layers in the same order. Where one rank cannot have what it needs, all throw, and nothing is left.
   */
  static async create(world: World, options: MoeLayerOptions | SharingLayerOptions): Promise<MoeLayer> {
    if (!(world instanceof World))
      throw new ArgumentError('world', world, 'what World.local or World.join gives');
    requireObject('options', options);
    const { buffers: given } = options;
    if (given !== undefined && !(given instanceof LayerBuffers))
      throw new ArgumentError('buffers', given, 'what LayerBuffers.create gives');
    const plan =
      given === undefined
        ? setPlanOf(options as MoeLayerOptions)
        : sharingPlanOf(buffersInside(given).plan, options as SharingLayerOptions);
    requireLayerWeights(plan, options, world);
    routerShapeOf(plan.model, options.router);
    return undoing(async (undo) => {
      const keep = keeping(undo);
      const buffers = given ?? keep(await LayerBuffers.create(world, ofBuffers(options as MoeLayerOptions)));
      const inside = buffersInside(buffers);
      const { ep, lanes } = inside;
      // It meets the other ranks, so it is no part of the step below, which must not.
      const table = await ep.addLayer(options.placement);
      undo.push(() => ep.removeLayer(table));
      const rounds = await everywhere(world, 'creating an MoeLayer', async () => {
        const made: LayerRound[] = [];
        for (const lane of lanes)
          made.push(await LayerRound.create(inside, lane, table, plan, options, keep));
        return made;
      });
      return new MoeLayer({ buffers, plan, table, rounds }, options, undo);
    });
  }

  /**
   * The memory of each rank that `create` would take, whether or not there is a GPU here. `layers`: that of a model of so many layers over
   * one set of buffers, with their weights. `nodes`: equal ones that the ranks form, default 1.
   */
  static memory(
    options: MoeLayerSizes & { readonly ranks: number; readonly nodes?: number; readonly layers?: number },
  ): MemoryUse {
    const plan = setPlanOf(options);
    const { ranks, nodes = 1, layers } = options;
    const carrier = memoryFor({ ...plan.carrier, ranks, nodes });
    return modelMemory(plan, { ranks, rank: 0 }, carrier, layers);
  }

  /** Forwards of this layer that have begun. Where some are to be repeated, it goes back to the last that counts. */
  get forwards(): number {
    return this.#inside.table.forwards;
  }

  /** The memory of this rank that the layer's buffers take; its weights are the caller's. */
  get memory(): MemoryUse {
    return this.buffers.memory;
  }

  /**
   * out = Σ weight · expert(x) over each token's experts, and what the shared expert makes of it. Both are bf16
   * [tokens, hidden], and do not overlap. Every rank calls it, with as many tokens as it likes.
   */
  forward(x: Tensor, out: Tensor, stream: Stream, { chunks = 1 }: ForwardOptions = {}): void {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this MoeLayer');
    const { plan, table } = this.#inside;
    const { hidden } = plan.model;
    requireInteger('chunks', chunks, 1, mostChunks);
    requireVectors('x', x, ['bf16'], [[0, Infinity], hidden]);
    const [tokens = 0] = x.shape;
    const fewest = Math.ceil(tokens / plan.maxTokens);
    if (fewest > chunks) {
      const possible = `at least ${fewest}, the same number on every rank: ${tokens} tokens are more than maxTokens, ${plan.maxTokens} a round`;
      throw new ArgumentError('chunks', chunks, possible);
    }
    requireVectors('out', out, ['bf16'], [tokens, hidden]);
    // Some rows of `out` are written while others of `x` are still to be read.
    if (x.data < out.data + out.bytes && out.data < x.data + x.bytes)
      throw new ArgumentError('out.data', out.data, 'memory that does not overlap x');
    const { forwards } = table;
    table.cut(chunks);
    try {
      this.#run(chunksOf(x, out, chunks), stream);
    } catch (error) {
      table.goBack(forwards + 1);
      throw error;
    }
  }

  /**
   * Brings the weights that a placement wants, into places where no expert lives now. Forwards run on meanwhile. Every rank
   * calls it; when it resolves, all have their weights, and `place` may follow. `stream`: that of the forwards.
   */
  async move(placement: Placement, stream: Stream, options?: MoveOptions): Promise<void> {
    requireStream('stream', stream);
    const { moving, now } = this.#requirePlaced('move');
    await moving.move(now, placement, stream, options);
  }

  /**
   * Changes where experts live, for forwards that are enqueued behind this: as that of ExpertParallel. Refused where the weights of an
   * expert are not in its new place.
   */
  place(placement: Placement, stream: Stream): void {
    requireStream('stream', stream);
    const { moving, now } = this.#requirePlaced('place');
    requireSamePlaces(placement, now);
    moving.requireHeld(placement);
    this.#inside.table.place(placement, stream);
  }

  /**
   * Goes over to a placement while forwards run on, by `place` and `move`, in as many steps as it takes. Every rank calls
   * it, wherever it is in its forwards: each goes by a step from its next forward on, and until then all that it needs is where it was.
   */
  async relocate(placement: Placement, stream: Stream, options?: MoveOptions): Promise<void> {
    requireStream('stream', stream);
    const { moving, now } = this.#requirePlaced('relocate');
    await moving.relocate(now, placement, (next) => this.place(next, stream), stream, options);
  }

  /** Routes by expert: as that of ExpertParallel. */
  async statistics(stream: Stream): Promise<Statistics> {
    requireStream('stream', stream);
    this.#requirePlaced('statistics');
    return this.#inside.table.statistics(stream);
  }

  /** How long the ranks' kernels waited for each other in this layer's rounds (`waits: true`): as that of ExpertParallel. */
  async waits(stream: Stream): Promise<Waits> {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this MoeLayer');
    return buffersInside(this.buffers).ep.waits(stream, this.#inside.table);
  }

  /** As that of the layer's buffers. */
  async synchronize(stream: Stream): Promise<void> {
    await this.buffers.synchronize(stream);
  }

  /** Frees what the layer allocated. Where its buffers are its own, that is when every rank has come here. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#moving?.end();
    await undoAll(this.#undo);
  }

  #requirePlaced(call: string): { readonly moving: MovingWeights; readonly now: Placement } {
    if (this.#disposed) throw new DisposedError('this MoeLayer');
    const now = this.#inside.table.placement;
    if (this.#moving !== null && now !== null) return { moving: this.#moving, now };
    throw new HeddleError(
      'HEDDLE_NOT_PLACED',
      `${call} needs experts that are placed; create the MoeLayer with a placement`,
    );
  }

  /**
   * Chunk after chunk, in the lanes by turns. With two lanes every other chunk has a stream of its own. Kernels that wait for peers may
   * fill a GPU, and two of them, in different orders on two ranks, would wait for each other's sends. So each of them waits for the
   * one before it, in an order that is the same everywhere: dispatch 0, dispatch 1, combine 0, dispatch 2, combine 1 …
   */
  #run(chunks: readonly Chunk[], stream: Stream): void {
    const { rounds } = this.#inside;
    const { ep, second } = buffersInside(this.buffers);
    const first = ep.turn;
    const roundOf = (n: number): LayerRound => rounds[(first + n) % rounds.length]!;
    const other = chunks.length > 1 ? second : null;
    const on = (n: number): Stream => (n % 2 === 1 && other !== null ? other.stream : stream);
    let last = 0;
    /** Enqueues what waits for peers in chunk n, behind the last that did. */
    const inOrder = (n: number, enqueue: () => void): void => {
      if (on(n) !== on(last)) on(n).wait(other![last % 2 === 0 ? 'begun' : 'done']);
      enqueue();
      if (other !== null) on(n).record(other[n % 2 === 0 ? 'begun' : 'done']);
      last = n;
    };
    const begin = (n: number): void => {
      const { x, out } = chunks[n]!;
      roundOf(n).shared?.begin(x, out, on(n));
      roundOf(n).begin(x, on(n));
    };
    const receive = (n: number): void => inOrder(n, () => roundOf(n).receive(on(n)));
    const ahead = Math.min(rounds.length, chunks.length);
    if (other !== null) {
      stream.record(other.begun);
      other.stream.wait(other.begun);
    }
    for (let n = 0; n < ahead; n++) begin(n);
    for (let n = 0; n < ahead; n++) receive(n);
    for (const [n, { out }] of chunks.entries()) {
      roundOf(n).runExperts(on(n));
      roundOf(n).shared?.end(on(n));
      inOrder(n, () => roundOf(n).finish(out, on(n)));
      if (n + ahead >= chunks.length) continue;
      begin(n + ahead);
      receive(n + ahead);
    }
    if (other !== null) {
      other.stream.record(other.done);
      stream.wait(other.done);
    }
  }
}

/** The most chunks of a forward. */
const mostChunks = 2 ** 16;

interface Chunk {
  readonly x: Tensor;
  readonly out: Tensor;
}

/** Cuts tokens into parts that differ by a token at most. */
function chunksOf(x: Tensor, out: Tensor, chunks: number): Chunk[] {
  const tokens = x.shape[0]!;
  return Array.from({ length: chunks }, (_, n) => {
    const [start, end] = [n, n + 1].map((i) => Math.floor((i * tokens) / chunks)) as [number, number];
    return { x: rowsOf(x, start, end), out: rowsOf(out, start, end) };
  });
}

function ofBuffers({ sharedExperts: _, router: __, buffers: ___, ...options }: MoeLayerOptions) {
  return options;
}

function rowsOf({ data, dtype, shape: [, columns = 0] }: Tensor, start: number, end: number): Tensor {
  return wrap(data + start * columns * 2, dtype, [end - start, columns]);
}
