/** Where the experts of an ExpertParallel live now, on its device; and how many routes each of them got. */
import type { Stream } from '../../gpu/index.js';
import type { World } from '../../net/world/index.js';
import { type Layer, type Placement, placeTable, requireSamePlaces, sharing } from '../layer/index.js';
import type { LoadedPlan } from './loaded-plan.js';
import { bytesOf } from './tensor.js';

/** Routes by expert, of all ranks together, since the ExpertParallel was created. */
export interface Statistics {
  /** [expert]: routes that went to one of its places. */
  readonly routed: readonly number[];
  /** [expert]: routes that went nowhere, for the expert lived nowhere. */
  readonly dropped: readonly number[];
}

export interface Placing {
  readonly placement: Placement;
  /** Writes the table of each round in flight, in order on the stream. */
  place(placement: Placement, stream: Stream): void;
  statistics(stream: Stream): Promise<Statistics>;
}

/** Begins with a placement, and counts of 0. */
export async function placingOf(
  world: World,
  layer: Layer,
  rounds: readonly LoadedPlan[],
  first: Placement,
): Promise<Placing> {
  let placement = first;
  const parts = rounds.map((loaded) => {
    const { table, counts } = loaded.plan.placing!;
    return { table: loaded.tensor(table), counts: loaded.tensor(counts) };
  });
  /** For each round in flight, its counts when they were last read. They wrap; `totals` do not. */
  const seen = rounds.map(() => new Uint32Array(2 * first.experts));
  const totals = new Float64Array(2 * first.experts);
  const placing: Placing = {
    get placement() {
      return placement;
    },
    place(next, stream) {
      requireSamePlaces(next, placement);
      const bytes = bytesOf(placeTable(next, sourceOf(world, layer)));
      for (const { table } of parts) stream.copyIn(table.data, bytes);
      placement = next;
    },
    async statistics(stream) {
      const read = await Promise.all(parts.map(({ counts }) => stream.copyOut(counts.data, counts.bytes)));
      for (const [i, bytes] of read.entries()) {
        const now = new Uint32Array(bytes.slice().buffer);
        for (const [n, count] of now.entries()) totals[n]! += (count - seen[i]![n]!) >>> 0;
        seen[i]!.set(now);
      }
      const mine = new Uint8Array(totals.slice().buffer);
      const sums = new Float64Array(totals.length);
      for (const bytes of await world.allGather(mine, 'gathering statistics'))
        for (const [n, count] of new Float64Array(bytes.slice().buffer).entries()) sums[n]! += count;
      const { experts } = placement;
      return { routed: [...sums.subarray(0, experts)], dropped: [...sums.subarray(experts)] };
    },
  };
  const stream = world.device.createStream();
  for (const { counts } of parts) stream.fill(counts.data, counts.bytes, 0);
  placing.place(first, stream);
  await stream.synchronize();
  stream.dispose();
  return placing;
}

/** Which source a rank is to `placeTable`. Where nodes differ in size, all ranks count as one. */
function sourceOf({ rank, topology }: World, layer: Layer) {
  const { groups, replicas } = sharing(layer);
  const { members, nodes } = topology;
  const equal = members.every(({ length }) => length === members[0]!.length);
  return { source: Math.floor(rank / replicas), sources: groups, nodes: equal ? nodes : 1 };
}
