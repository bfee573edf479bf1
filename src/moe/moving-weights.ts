/**
 * The weights of a rank's places, and their way from rank to rank while rounds run. Only places where no expert lives are
 * written, and only what is whole may be placed: so no round sees half of an expert.
 */
import { setTimeout } from 'node:timers/promises';
import { ArgumentError, integerFrom, requireMembers } from '../base/errors.js';
import type { Stream } from '../gpu/index.js';
import type { SharedWindow, World } from '../net/world/index.js';
import { type Placement, rankOfPlace, requireSamePlaces, stepsTo } from './layer/index.js';
import { type Courier, type Part, type Room, withCourier } from './moving-between-nodes.js';
import type { Tensor } from './rounds/tensor.js';

export interface MoveOptions {
  /**
   * The most bytes a second that weights take of any rank, to it or from it, on average over each expert: from 10^6 on, the same on all
   * ranks. Default: as many as the links carry.
   */
  readonly bytesPerSecond?: number;
}

/** Infinity where nothing was asked for. */
function rateOf(options: MoveOptions): number {
  requireMembers('options', options, { bytesPerSecond: integerFrom(1e6, Number.MAX_SAFE_INTEGER) });
  return options.bytesPerSecond ?? Number.POSITIVE_INFINITY;
}

/** An expert on its way from one place to another, and from which rank to which. */
interface Fill {
  readonly from: number;
  readonly to: number;
  readonly giver: number;
  readonly taker: number;
  /** They are on different nodes. */
  readonly isFar: boolean;
}

export class MovingWeights {
  readonly #world: World;
  /** [places of this rank, …], each. */
  readonly #weights: readonly Tensor[];
  readonly #room: number;
  /** [place]: the expert whose weights are there, whole; −1 for none. All ranks say the same of all places. */
  readonly #held: number[];
  readonly end: () => void;

  constructor(world: World, weights: readonly Tensor[], { places, ranks }: Placement) {
    this.#world = world;
    this.#weights = weights;
    this.#room = places.length / ranks;
    this.#held = [...places];
    this.end = world.replicate({
      // A rank that stood still in a move may have missed its end, and a new process has what it was created with: each knows its own.
      state: () => this.#held.slice(world.rank * this.#room, (world.rank + 1) * this.#room),
      takeOver: async (states) => {
        for (const [rank, held] of (states as (readonly number[] | undefined)[]).entries())
          this.#held.splice(rank * this.#room, held?.length ?? 0, ...(held ?? []));
      },
    });
  }

  /** Requires that the weights of all placed experts are where the placement has them. */
  requireHeld({ places }: Placement): void {
    for (const [place, expert] of places.entries()) {
      if (expert === -1 || expert === this.#held[place]) continue;
      const held =
        this.#held[place] === -1 ? 'no weights are' : `the weights of expert ${this.#held[place]} are`;
      const possible = `an expert whose weights are in that place, where ${held}: move them first`;
      throw new ArgumentError(`placement.places[${place}]`, expert, possible);
    }
  }

  /**
   * Brings the weights that `next` wants and `now` has elsewhere. Rounds before this on the stream, of any rank, may still
   * read places that are empty by now: all ranks wait for the end of theirs before they come to the first meeting, behind which alone
   * places are written.
   */
  async move(now: Placement, next: Placement, stream: Stream, options: MoveOptions = {}): Promise<void> {
    const rate = rateOf(options);
    requireSamePlaces(next, now);
    const fills = this.#fillsOf(now, next);
    await withCourier(this.#world, fills.some(isFar), (courier) =>
      this.#move(fills, next, stream, { courier, rate }),
    );
  }

  async #move(
    fills: readonly Fill[],
    next: Placement,
    stream: Stream,
    { courier, rate }: { readonly courier: Courier | null; readonly rate: number },
  ): Promise<void> {
    const { device, rank } = this.#world;
    if (fills.length === 0) return;
    this.#world.requireWhole();
    const started = performance.now();
    for (const { to } of fills) this.#held[to] = -1;
    const bytes = this.#bytesOf();
    const window = await this.#world.createWindow(bytes, 'weights that move');
    const batches = batchesOf(fills);
    const most = Math.max(...batches.map((some) => comingTo(rank, some).length));
    const room = courier && (await courier(bytes, most));
    const beside = device.createStream();
    await stream.synchronize();
    for (const some of batches) {
      const since = performance.now();
      await this.#carry(some, window, room, beside);
      // All ranks come to the same time.
      const left = (1000 * bytes * mostOfARank(some)) / rate - (performance.now() - since);
      if (left > 0) await setTimeout(left);
    }
    beside.dispose();
    room?.close();
    window.close();
    for (const { to } of fills) this.#held[to] = next.places[to]!;
    const experts = fills.filter(({ taker }) => taker === rank).length;
    const ms = performance.now() - started;
    this.#world.tell({ kind: 'moved', experts, bytes: experts * bytes, ms });
  }

  /** Goes from one placement to another, step by step. `place` makes the ranks' rounds go by the next. */
  async relocate(
    now: Placement,
    next: Placement,
    place: (placement: Placement) => void,
    stream: Stream,
    options: MoveOptions = {},
  ): Promise<void> {
    const rate = rateOf(options);
    const steps = stepsTo(next, now);
    // Where all weights lie already, nothing moves.
    if (steps.some(({ emptied, filled }) => this.#fillsOf(emptied, filled).length > 0))
      this.#world.requireWhole();
    const started = performance.now();
    const far = steps.some(({ emptied, filled }) => this.#fillsOf(emptied, filled, []).some(isFar));
    if (steps.length > 0)
      await withCourier(this.#world, far, async (courier) => {
        for (const { emptied, filled } of steps) {
          place(emptied);
          await this.#move(this.#fillsOf(emptied, filled), filled, stream, { courier, rate });
          place(filled);
        }
      });
    this.#world.tell({ kind: 'relocated', steps: steps.length, ms: performance.now() - started });
  }

  /** The weights that must move. They come from the same node where the expert lives there, too. */
  #fillsOf(now: Placement, next: Placement, held: readonly number[] = this.#held): Fill[] {
    const { members } = this.#world.topology;
    const rankOf = (place: number) => rankOfPlace(next, place);
    const nodeOf = (place: number) => members.findIndex((ranks) => ranks.includes(rankOf(place)));
    return [...next.places.entries()].flatMap(([to, expert]): Fill[] => {
      if (expert === -1 || expert === held[to] || expert === now.places[to]) return [];
      const argument = `placement.places[${to}]`;
      if (now.places[to] !== -1)
        throw new ArgumentError(argument, expert, `${now.places[to]} or −1: only empty places are filled`);
      const all = [...now.places.keys()].filter((place) => now.places[place] === expert);
      const from = all.find((place) => nodeOf(place) === nodeOf(to)) ?? all[0];
      if (from === undefined) throw new ArgumentError(argument, expert, 'an expert that lives somewhere');
      const ends = { from, to, giver: rankOf(from), taker: rankOf(to) };
      return [{ ...ends, isFar: nodeOf(from) !== nodeOf(to) }];
    });
  }

  /**
   * Each rank brings its expert into its window, and to the ranks of other nodes that want it; when all have, the others of its node
   * take it from there. The host's barriers order all of it: behind the first windows and slots are full, behind the second they
   * may be filled again.
   */
  async #carry(
    fills: readonly Fill[],
    window: SharedWindow,
    room: Room | null,
    stream: Stream,
  ): Promise<void> {
    const { rank } = this.#world;
    const given = fills.find(({ giver }) => giver === rank);
    if (given !== undefined) {
      const parts = this.#parts(given.from);
      for (const { own, offset, bytes } of parts) stream.copy(window.own.address + offset, own, bytes);
      const takers = fills
        .filter((fill) => fill.from === given.from && fill.isFar)
        .map((fill) => ({ rank: fill.taker, slot: comingTo(fill.taker, fills).indexOf(fill) }));
      if (takers.length > 0) await room!.give(parts, takers, stream);
    }
    await stream.synchronize();
    await this.#world.barrier('moving weights');
    const coming = comingTo(rank, fills).map(({ giver, to }) => ({ from: giver, parts: this.#parts(to) }));
    await room?.take(coming, stream);
    for (const { to, giver, taker, isFar } of fills) {
      if (taker !== rank || isFar) continue;
      const base = window.bases[window.ranks.indexOf(giver)]!;
      for (const { own, offset, bytes } of this.#parts(to)) stream.copy(own, base + offset, bytes);
    }
    await stream.synchronize();
    await this.#world.barrier('moving weights');
  }

  /** Where the parts of a place of this rank are, and where in a window. */
  #parts(place: number): Part[] {
    return this.#weights.map(({ data, bytes: all }, i) => {
      const bytes = all / this.#room;
      return { own: data + (place % this.#room) * bytes, offset: this.#bytesOf(i), bytes };
    });
  }

  /** The bytes of the first `parts` of one place's weights. */
  #bytesOf(parts = this.#weights.length): number {
    return this.#weights.slice(0, parts).reduce((sum, { bytes }) => sum + bytes / this.#room, 0);
  }
}

const isFar = (fill: Fill): boolean => fill.isFar;

/** Weights that come to a rank from other nodes, each in a slot of its own. */
const comingTo = (rank: number, fills: readonly Fill[]): Fill[] =>
  fills.filter(({ taker, isFar }) => isFar && taker === rank);

/** Batches in which each rank gives one expert at most, to all places that want it. */
function batchesOf(fills: readonly Fill[]): Fill[][] {
  const batches: Fill[][] = [];
  const sent = new Map<number, number[]>();
  for (const fill of fills) {
    const own = sent.get(fill.giver) ?? [];
    if (!own.includes(fill.from)) own.push(fill.from);
    sent.set(fill.giver, own);
    const n = own.indexOf(fill.from);
    batches[n] = [...(batches[n] ?? []), fill];
  }
  return batches;
}

/** The most of these experts that any rank gives, or takes; to each of several others counts. */
function mostOfARank(fills: readonly Fill[]): number {
  const ends = fills.flatMap(({ giver, taker }) => [`from ${giver}`, `to ${taker}`]);
  return Math.max(...ends.map((end) => ends.filter((other) => other === end).length));
}
