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

/** Calls `work` with a way between nodes, or with null where none is needed. Every rank calls it. @throws UnavailableError where there is no network. */
export async function withCourier(
  world: World,
  needed: boolean,
  work: (courier: Courier | null) => Promise<void>,
): Promise<void> {
  if (!needed) return work(null);
  const { engine, fabric } = await world.openEngine();
  try {
    await work(async (bytes, most) => {
      const region = engine.allocate((1 + most) * bytes);
      return roomOf(engine, fabric, region, (await fabric.share(region)).remotes, bytes);
    });
  } finally {
    fabric.close();
    await engine.close();
  }
}

/** Makes host memory for one expert that this rank gives, and for as many as come at once. Every rank calls it. */
export type Courier = (bytes: number, most: number) => Promise<Room>;

type Engine = Awaited<ReturnType<World['openEngine']>>['engine'];

function roomOf(
  engine: Engine,
  fabric: FabricConnection,
  region: ReturnType<Engine['allocate']>,
  remotes: FabricRegions['remotes'],
  bytes: number,
) {
  const most = Math.min(longest, engine.devices[0]!.maxWriteBytes);
  /** Where the writes of one expert begin. */
  const pieces = Array.from({ length: Math.ceil(bytes / most) }, (_, i) => i * most);
  /** A peer that is lost is named by its rank. */
  const named = (waiting: Promise<unknown>) =>
    waiting.catch((error: unknown) => {
      throw fabric.toRankLost(error);
    });
  return {
    /** Gives an expert to others, each of which keeps it in one of its slots. When it resolves, all that was written has left. */
    async give(
      parts: readonly Part[],
      takers: readonly { readonly rank: number; readonly slot: number }[],
      stream: Stream,
    ): Promise<void> {
      const room = new Uint8Array(region.buffer);
      for (const { own, offset, bytes: length } of parts) room.set(await stream.copyOut(own, length), offset);
      const counter = engine.counter();
      for (const { rank, slot } of takers)
        for (const from of pieces)
          engine.write({
            source: region,
            sourceOffset: from,
            target: remotes[rank]!,
            targetOffset: (1 + slot) * bytes + from,
            bytes: Math.min(most, bytes - from),
            immediate: tag,
            counter,
          });
      await named(counter.wait());
    },
    /** Waits until slots have come from these ranks, and copies each to its place. */
    async take(
      slots: readonly { readonly from: number; readonly parts: readonly Part[] }[],
      stream: Stream,
    ): Promise<void> {
      if (slots.length === 0) return;
      const from = [...new Set(slots.map((slot) => fabric.peers[slot.from]!))];
      await named(engine.immediate(tag).wait(slots.length * pieces.length, { from }));
      for (const [slot, { parts }] of slots.entries())
        for (const { own, offset, bytes: length } of parts)
          stream.copyIn(own, new Uint8Array(region.buffer, (1 + slot) * bytes + offset, length));
    },
    close: () => region.close(),
  };
}
export type Room = ReturnType<typeof roomOf>;
