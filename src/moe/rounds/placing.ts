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

export class Placing {
  readonly #world: World;
  readonly #layer: Layer;
  readonly #rounds: readonly LoadedPlan[];
  #placement: Placement;
  /** For each round in flight, its counts when they were last read. They wrap; `#totals` do not. */
  readonly #seen: readonly Uint32Array[];
  readonly #totals: Float64Array;

  private constructor(world: World, layer: Layer, rounds: readonly LoadedPlan[], placement: Placement) {
    this.#world = world;
    this.#layer = layer;
    this.#rounds = rounds;
    this.#placement = placement;
    this.#seen = rounds.map(() => new Uint32Array(2 * placement.experts));
    this.#totals = new Float64Array(2 * placement.experts);
  }

  /** Begins with a placement, and counts of 0. */
  static async create(
    world: World,
    layer: Layer,
    rounds: readonly LoadedPlan[],
    placement: Placement,
  ): Promise<Placing> {
    const placing = new Placing(world, layer, rounds, placement);
    const stream = world.device.createStream();
    for (const { counts } of placing.#parts) stream.fill(counts.data, counts.bytes, 0);
    placing.place(placement, stream);
    await stream.synchronize();
    stream.dispose();
    return placing;
  }

  get placement(): Placement {
    return this.#placement;
  }

  /** Writes the table of each round in flight, in order on the stream. */
  place(placement: Placement, stream: Stream): void {
    requireSamePlaces(placement, this.#placement);
    const bytes = bytesOf(placeTable(placement, sourceOf(this.#world, this.#layer)));
    for (const { table } of this.#parts) stream.copyIn(table.data, bytes);
    this.#placement = placement;
  }

  async statistics(stream: Stream): Promise<Statistics> {
    const read = await Promise.all(
      this.#parts.map(({ counts }) => stream.copyOut(counts.data, counts.bytes)),
    );
    for (const [i, bytes] of read.entries()) {
      const seen = this.#seen[i]!;
      const now = new Uint32Array(bytes.slice().buffer);
      for (const [n, count] of now.entries()) this.#totals[n]! += (count - seen[n]!) >>> 0;
      seen.set(now);
    }
    const all = await this.#world.allGather(bytesOf64(this.#totals), 'gathering statistics');
    const sums = new Float64Array(this.#totals.length);
    for (const bytes of all)
      for (const [n, count] of new Float64Array(bytes.slice().buffer).entries()) sums[n]! += count;
    const { experts } = this.#placement;
    return { routed: [...sums.subarray(0, experts)], dropped: [...sums.subarray(experts)] };
  }

  get #parts() {
    return this.#rounds.map((loaded) => {
      const { table, counts } = loaded.plan.placing!;
      return { table: loaded.tensor(table), counts: loaded.tensor(counts) };
    });
  }
}

const bytesOf64 = (of: Float64Array): Uint8Array => new Uint8Array(of.slice().buffer);

/** Which source a rank is to `placeTable`. Where nodes differ in size, all ranks count as one. */
function sourceOf({ rank, topology }: World, layer: Layer) {
  const { groups, replicas } = sharing(layer);
  const { members, nodes } = topology;
  const equal = members.every(({ length }) => length === members[0]!.length);
  return { source: Math.floor(rank / replicas), sources: groups, nodes: equal ? nodes : 1 };
}
