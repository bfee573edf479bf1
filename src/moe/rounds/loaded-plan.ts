/** A plan on one rank: its memory, its kernels loaded and bound to that memory. */
import type { Device, Event, Fill, Memory, Stream, WireMemory } from '../../gpu/index.js';
import { byteSize, type Field } from '../../lang/index.js';
import type { RunningProxy, SharedWindow, Wires, World } from '../../net/world/index.js';
import {
  type BufferPlan,
  type LoadedStep,
  loadStep,
  numberOfRound,
  type Operation,
  type Phase,
  type Plan,
  phases,
  type Round,
  readFailure,
  type View,
  type WindowPlan,
  type WirePlan,
} from '../families/index.js';
import { type Tensor, wrap } from './tensor.js';
import { everywhere, type Undo, undoAll, undoing } from './undoing.js';

/** The memory of a plan on this rank. `wire`: null where no row crosses a network. */
interface RankMemory {
  readonly windows: ReadonlyMap<WindowPlan, SharedWindow>;
  readonly buffers: ReadonlyMap<BufferPlan, Memory>;
  readonly wire: WireMemory | null;
}

export class LoadedPlan {
  readonly #proxy: RunningProxy | null;
  readonly #undo: Undo;
  /** For the copies beside dispatch; null where dispatch stores all rows. */
  readonly #beside: { readonly stream: Stream; readonly begins: Event; readonly ends: Event } | null;

  private constructor(
    readonly world: World,
    readonly plan: Plan,
    readonly steps: Readonly<Record<Phase, readonly LoadedStep[]>>,
    readonly memory: RankMemory,
    proxy: RunningProxy | null,
    undo: Undo,
  ) {
    this.#proxy = proxy;
    this.#undo = undo;
    const event = () => world.device.createEvent();
    this.#beside = plan.copied
      ? { stream: world.device.createStream(), begins: event(), ends: event() }
      : null;
    for (const one of Object.values(this.#beside ?? {})) undo.push(() => one.dispose());
  }

  /** Every rank of the world calls it with its plan of the same layer. Where one cannot load it, all throw, and nothing is left. */
  static load(world: World, plan: Plan, waitMs: number): Promise<LoadedPlan> {
    return undoing(async (undo) => {
      const windows = new Map<WindowPlan, SharedWindow>();
      for (const of of plan.windows) {
        const fills = fillsOf(of.allOnes);
        const window = await (of.symmetric
          ? world.createSymmetricWindow(of.layout.bytes, of.purpose, fills)
          : world.createWindow(of.layout.bytes, of.purpose, fills));
        undo.push(() => window.close());
        for (const field of of.unwritten) window.own.poison(field.offset, bytesOf(field));
        windows.set(of, window);
      }
      const wires = plan.wire && (await world.wires());
      const { memory, steps } = await everywhere(world, 'preparing windows', async () => {
        const memory = { windows, ...allocate(world.device, plan, wires, undo) };
        return { memory, steps: await loadSteps(world, plan, memory, 1000 * waitMs) };
      });
      // The network has half of the time of kernels, so it names a silent rank before kernels give up. A kernel might
      // name a rank that itself waits for the silent one.
      const wire = memory.wire && { ...plan.wire!.program, memory: memory.wire };
      const proxy = wire && (await world.startProxy({ ...wire, timeoutMs: Math.ceil(waitMs / 2) }));
      if (proxy !== null) undo.push(() => proxy.stop());
      return new LoadedPlan(world, plan, steps, memory, proxy, undo);
    });
  }

  /** Nothing is launched before every step has taken what the round brings, which a step may refuse. */
  run(phases: readonly Phase[], round: Round, stream: Stream): void {
    for (const phase of phases) for (const step of this.steps[phase]) step.take(round);
    const beside = phases.includes('dispatchSend') ? this.#beside : null;
    if (beside !== null) stream.record(beside.begins);
    for (const phase of phases) for (const step of this.steps[phase]) step.launch(stream);
    if (beside === null) return;
    // Behind what is on the stream before: the rows are made, and experts have read the slots. What follows on it is behind the copies.
    beside.stream.wait(beside.begins);
    for (const [p, view] of Object.values(this.plan.received.payloads).entries()) {
      const [, slots, bytes] = view.shape as readonly [number, number, number];
      const own = this.tensor(view).data + this.world.rank * slots * bytes;
      if (round.tokens > 0) beside.stream.copy(own, round.rows[p]!, round.tokens * bytes);
    }
    beside.stream.record(beside.ends);
    stream.wait(beside.ends);
  }

  tensor({ in: memory, offset, dtype, shape }: View): Tensor {
    return wrap(this.#address(memory) + offset, dtype, shape);
  }

  /** The record that a kernel wrote when it gave up waiting; null where none did. */
  async failure(
    stream: Stream,
  ): Promise<{ readonly operation: Operation; readonly peer: number; readonly epoch: number } | null> {
    const { data, bytes: length } = this.tensor(this.plan.failure);
    const bytes = await stream.copyOut(data, length);
    return readFailure(new Uint32Array(bytes.buffer, bytes.byteOffset, length / 4));
  }

  /** Rounds that have come to their last launch: those that went well, and all. */
  async rounds(stream: Stream): Promise<{ readonly done: number; readonly run: number }> {
    const failure = await this.failure(stream);
    const { data } = this.tensor(this.plan.masks!.rounds);
    const [word] = new Uint32Array((await stream.copyOut(data, 4)).slice().buffer);
    const run = numberOfRound(word!);
    return { done: failure === null ? run : Math.min(run, failure.epoch - 1), run };
  }

  /** The windows are as they were before the first round; what kernels write before they read it stays. No rank's kernels run. */
  beginAnew(stream: Stream): void {
    const { windows, wire } = this.memory;
    for (const [plan, { own }] of windows)
      for (const { offset, bytes, value } of beginningOf(plan))
        stream.fill(own.address + offset, bytes, value);
    if (wire === null) return;
    // The host writes its own memory itself. Nor do proxies run.
    const { address, front, side, raw } = wire;
    for (const { offset, bytes, value } of beginningOf(this.plan.wire!)) {
      if (side === 'host' || offset < front) raw.fill(value, offset, offset + bytes);
      else stream.fill(address + offset, bytes, value);
    }
  }

  /** Rounds leave out these ranks from here on. No kernel of this rank runs. */
  leaveOut(ranks: readonly number[], stream: Stream): void {
    const words = new Uint32Array(4);
    for (const rank of ranks) words[rank >>> 5]! |= 1 << (rank & 31);
    stream.copyIn(this.tensor(this.plan.masks!.masked).data, new Uint8Array(words.buffer));
  }

  /** Why the rank's proxy moves nothing any more. */
  get stopped(): Error | null {
    return this.#proxy?.error ?? null;
  }

  /** Frees the memory. No rank may still use it. */
  close(): Promise<void> {
    return undoAll(this.#undo);
  }

  #address(of: WindowPlan | BufferPlan): number {
    const { windows, buffers } = this.memory;
    return of.kind === 'window' ? windows.get(of)!.own.address : buffers.get(of)!.address;
  }
}

/** Allocates the memory that is this rank's alone. */
function allocate(device: Device, { buffers, wire }: Plan, wires: Wires | null, undo: Undo) {
  const noted = <M extends { free(): void }>(memory: M): M => {
    undo.push(() => memory.free());
    return memory;
  };
  const made = new Map(buffers.map((of) => [of, noted(device.allocate(of.bytes, of.purpose))]));
  if (wire === null) return { buffers: made, wire };
  const { front, purpose, layout, allOnes = [] } = wire;
  const shape = { bytes: layout.bytes, front, side: wires!.side };
  return { buffers: made, wire: noted(device.allocateWire(shape, purpose, fillsOf(allOnes))) };
}

async function loadSteps({ device, topology }: World, plan: Plan, memory: RankMemory, limit: number) {
  const { windows, buffers, wire } = memory;
  const at = {
    ...{ rank: topology.localRank, limit },
    window: (of: WindowPlan | WirePlan) =>
      of.kind === 'wire' ? { rank: 0, bases: [wire!.address], bytes: wire!.bytes } : windows.get(of)!,
    address: (of: BufferPlan) => buffers.get(of)!.address,
  };
  const loaded = phases.map(async (phase) => {
    const steps = await Promise.all(plan.phases[phase].map((step) => loadStep(step, device, at)));
    return [phase, steps] as const;
  });
  return Object.fromEntries(await Promise.all(loaded)) as Record<Phase, LoadedStep[]>;
}

/** The contents of memory before the first round, but for what kernels write before they read it. */
const beginningOf = ({ layout, allOnes = [], unwritten = [] }: Beginning): Fill[] => {
  // An empty field begins where the next one does.
  const isIn = (fields: readonly Field[], { offset }: Field) =>
    fields.some((field) => field.length > 0 && field.offset === offset);
  const set = layout.fields.filter(
    (field) => field.length > 0 && (isIn(allOnes, field) || !isIn(unwritten, field)),
  );
  return set.map((field) => ({
    ...{ offset: field.offset, bytes: bytesOf(field), value: isIn(allOnes, field) ? 0xff : 0 },
  }));
};

type Beginning = Pick<WindowPlan, 'layout'> & Partial<Pick<WindowPlan, 'allOnes' | 'unwritten'>>;

const fillsOf = (allOnes: readonly Field[]): Fill[] =>
  allOnes
    .filter(({ length }) => length > 0)
    .map((field) => ({ offset: field.offset, bytes: bytesOf(field), value: 0xff }));

const bytesOf = ({ type, length }: Field): number => byteSize[type] * length;
