/**
 * What a layer has to itself on its device, however many layers share the windows of an ExpertParallel: where its experts live,
 * and how many routes each of them got.
 */
import { HeddleError } from '../../base/errors.js';
import type { Memory, Stream } from '../../gpu/index.js';
import type { World } from '../../net/world/index.js';
import type { View } from '../families/index.js';
import { type Layer, type Placement, placeTable, requireSamePlaces, sharing } from '../layer/index.js';
import type { LoadedPlan } from './loaded-plan.js';
import { bytesOf } from './tensor.js';
import { everywhere, type Undo, undoAll, undoing } from './undoing.js';

/** Routes by expert, of all ranks together, since the layer was created. */
export interface Statistics {
  /** [expert]: routes that went to one of its places. */
  readonly routed: readonly number[];
  /** [expert]: routes that went nowhere, for the expert lived nowhere. */
  readonly dropped: readonly number[];
}

/** What one layer brings to each of its rounds. Rounds in flight take turns with memory of their own. */
interface Turn {
  readonly memory: Memory | null;
  /** As kernels take them. */
  readonly placing: readonly number[];
  /** The counts when they were last read. They wrap; totals do not. */
  readonly seen: Uint32Array;
}

/** One of the layers whose rounds take turns in the windows of an ExpertParallel: what `addLayer` gives. */
export class LayerTable {
  static #made = 0;
  /** No other layer of this process has it. */
  readonly number = LayerTable.#made++;
  readonly #world: World;
  readonly #layer: Layer;
  readonly #turns: readonly Turn[];
  readonly #undo: Undo;
  #placement: Placement | null;
  readonly #totals: Float64Array;
  /** Forwards that have begun; and how many rounds of the last one are still to come. */
  #forwards = 0;
  #toCome = 0;

  private constructor(
    world: World,
    layer: Layer,
    rounds: readonly LoadedPlan[],
    first: Placement | null,
    undo: Undo,
  ) {
    const { placing, ofLayer } = rounds[0]!.plan;
    this.#world = world;
    this.#layer = layer;
    this.#placement = first;
    this.#undo = undo;
    const counts = 2 * (first?.experts ?? 0);
    this.#totals = new Float64Array(counts);
    this.#turns = rounds.map((loaded) => {
      const memory = ofLayer && world.device.allocate(ofLayer.bytes, ofLayer.purpose);
      undo.push(() => memory?.free());
      const at = ({ offset }: View): number => memory!.address + offset;
      const addresses =
        placing === null ? [] : [at(placing.table), loaded.tensor(placing.places).data, at(placing.counts)];
      return { memory, placing: addresses, seen: new Uint32Array(counts) };
    });
  }

  /** Begins with a placement, and counts of 0; where one rank has no room, all throw. `rounds`: those in flight, whose turns it takes part in. */
  static async create(
    world: World,
    layer: Layer,
    rounds: readonly LoadedPlan[],
    first: Placement | null,
  ): Promise<LayerTable> {
    if (first === null) return new LayerTable(world, layer, rounds, first, []);
    return undoing((undo) =>
      everywhere(world, 'creating a layer', async () => {
        const made = new LayerTable(world, layer, rounds, first, undo);
        const stream = world.device.createStream();
        for (const { memory } of made.#turns) stream.fill(memory!.address, memory!.bytes, 0);
        made.place(first, stream);
        await stream.synchronize();
        stream.dispose();
        return made;
      }),
    );
  }

  /** Where experts live for rounds that are dispatched from now on; null where they were not placed. */
  get placement(): Placement | null {
    return this.#placement;
  }

  /** Forwards of this layer that have begun: each round is one, unless `cut` says otherwise. */
  get forwards(): number {
    return this.#forwards;
  }

  /** The next rounds are so many parts of one forward. */
  cut(rounds: number): void {
    this.#forwards += 1;
    this.#toCome = rounds;
  }

  /** Counts a round that begins. Returns the number of its forward. */
  count(): number {
    if (this.#toCome === 0) this.cut(1);
    this.#toCome -= 1;
    return this.#forwards;
  }

  /** The next forward is this one, from the start. */
  goBack(forward: number): void {
    this.#forwards = forward - 1;
    this.#toCome = 0;
  }

  /** The addresses that a round of this turn brings. */
  placing(turn: number): readonly number[] {
    return this.#turns[turn]!.placing;
  }

  /** Changes where experts live, in order on the stream: as ExpertParallel.place says. */
  place(placement: Placement, stream: Stream): void {
    const now = this.#requirePlaced('place');
    requireSamePlaces(placement, now);
    const bytes = bytesOf(placeTable(placement, sourceOf(this.#world, this.#layer)));
    for (const { placing } of this.#turns) stream.copyIn(placing[0]!, bytes);
    this.#placement = placement;
  }

  /** Routes by expert, of all ranks and all rounds of this layer that are before this on their streams. Every rank calls it. */
  async statistics(stream: Stream): Promise<Statistics> {
    const { experts } = this.#requirePlaced('statistics');
    const totals = this.#totals;
    const bytes = totals.length * Uint32Array.BYTES_PER_ELEMENT;
    const read = await Promise.all(this.#turns.map(({ placing }) => stream.copyOut(placing[2]!, bytes)));
    for (const [i, { seen }] of this.#turns.entries()) {
      const now = new Uint32Array(read[i]!.slice().buffer);
      for (const [n, count] of now.entries()) totals[n]! += (count - seen[n]!) >>> 0;
      seen.set(now);
    }
    const mine = new Uint8Array(totals.slice().buffer);
    const sums = new Float64Array(totals.length);
    for (const bytes of await this.#world.allGather(mine, 'gathering statistics'))
      for (const [n, count] of new Float64Array(bytes.slice().buffer).entries()) sums[n]! += count;
    return { routed: [...sums.subarray(0, experts)], dropped: [...sums.subarray(experts)] };
  }

  /** Frees the memory. No round of the layer may be under way. */
  free(): Promise<void> {
    return undoAll(this.#undo);
  }

  #requirePlaced(call: string): Placement {
    if (this.#placement !== null) return this.#placement;
    throw new HeddleError(
      'HEDDLE_NOT_PLACED',
      `${call} needs experts that are placed; create the ExpertParallel with a placement`,
    );
  }
}

/** Which source a rank is to `placeTable`. Where nodes differ in size, all ranks count as one. */
function sourceOf({ rank, topology }: World, layer: Layer) {
  const { groups, replicas } = sharing(layer);
  const { members, nodes } = topology;
  const equal = members.every(({ length }) => length === members[0]!.length);
  return { source: Math.floor(rank / replicas), sources: groups, nodes: equal ? nodes : 1 };
}
