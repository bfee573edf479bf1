/**
 * Weights on their way to ranks of other nodes: from host memory to host memory, by an engine of each rank that is there only while
 * weights move. What travels inside a node goes by windows (moving-weights.ts).
 */
import type { Stream } from '../gpu/index.js';
import type { FabricConnection, FabricRegions, World } from '../net/world/index.js';

/** One part of an expert's weights: where it lies on this rank, and where in an expert's bytes. */
export interface Part {
  readonly own: number;
  readonly offset: number;
  readonly bytes: number;
}

/** The longest write; a provider may carry less. */
const longest = 2 ** 20;
/** The immediate of every write. A meeting lies between the writes of two experts, so they are not told apart. */
const tag = 1;

type Engine = Awaited<ReturnType<World['openEngine']>>['engine'];

export class Courier {
  readonly #engine: Engine;
  readonly #fabric: FabricConnection;

  private constructor(engine: Engine, fabric: FabricConnection) {
    this.#engine = engine;
    this.#fabric = fabric;
  }

  /** Calls `work` with one, or with null where none is needed. Every rank calls it. @throws UnavailableError where there is no network. */
  static async during(
    world: World,
    needed: boolean,
    work: (courier: Courier | null) => Promise<void>,
  ): Promise<void> {
    if (!needed) return work(null);
    const { engine, fabric } = await world.openEngine();
    try {
      await work(new Courier(engine, fabric));
    } finally {
      fabric.close();
      await engine.close();
    }
  }

  /** Host memory for one expert that this rank gives, and for as many as come at once. Every rank calls it. */
  async room(bytes: number, most: number): Promise<Room> {
    const region = this.#engine.allocate((1 + most) * bytes);
    return new Room(this.#engine, this.#fabric, region, await this.#fabric.share(region), bytes);
  }
}

export class Room {
  readonly #engine: Engine;
  readonly #fabric: FabricConnection;
  readonly #region: ReturnType<Engine['allocate']>;
  readonly #remotes: FabricRegions['remotes'];
  readonly #bytes: number;

  constructor(
    engine: Engine,
    fabric: FabricConnection,
    region: ReturnType<Engine['allocate']>,
    { remotes }: FabricRegions,
    bytes: number,
  ) {
    this.#engine = engine;
    this.#fabric = fabric;
    this.#region = region;
    this.#remotes = remotes;
    this.#bytes = bytes;
  }

  /** Gives an expert to others, each of which keeps it in one of its slots. When it resolves, all that was written has left. */
  async give(
    parts: readonly Part[],
    takers: readonly { readonly rank: number; readonly slot: number }[],
    stream: Stream,
  ): Promise<void> {
    const bytes = new Uint8Array(this.#region.buffer);
    for (const { own, offset, bytes: length } of parts) bytes.set(await stream.copyOut(own, length), offset);
    const counter = this.#engine.counter();
    for (const { rank, slot } of takers)
      for (const { from, length } of this.#pieces())
        this.#engine.write({
          source: this.#region,
          sourceOffset: from,
          target: this.#remotes[rank]!,
          targetOffset: (1 + slot) * this.#bytes + from,
          bytes: length,
          immediate: tag,
          counter,
        });
    await this.#named(counter.wait());
  }

  /** Waits until slots have come from these ranks, and copies each to its place. */
  async take(
    slots: readonly { readonly from: number; readonly parts: readonly Part[] }[],
    stream: Stream,
  ): Promise<void> {
    if (slots.length === 0) return;
    const from = [...new Set(slots.map((slot) => this.#fabric.peers[slot.from]!))];
    await this.#named(this.#engine.immediate(tag).wait(slots.length * this.#pieces().length, { from }));
    for (const [slot, { parts }] of slots.entries())
      for (const { own, offset, bytes } of parts)
        stream.copyIn(own, new Uint8Array(this.#region.buffer, (1 + slot) * this.#bytes + offset, bytes));
  }

  close(): void {
    this.#region.close();
  }

  /** The writes of one expert. */
  #pieces(): { readonly from: number; readonly length: number }[] {
    const most = Math.min(longest, this.#engine.devices[0]!.maxWriteBytes);
    return Array.from({ length: Math.ceil(this.#bytes / most) }, (_, i) => ({
      from: i * most,
      length: Math.min(most, this.#bytes - i * most),
    }));
  }

  /** A peer that is lost is named by its rank. */
  async #named(waiting: Promise<unknown>): Promise<void> {
    try {
      await waiting;
    } catch (error) {
      throw this.#fabric.toRankLost(error);
    }
  }
}
