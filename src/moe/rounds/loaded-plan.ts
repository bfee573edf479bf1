/** A plan on one rank: its memory, its kernels loaded and bound to that memory. */
import type { Fill, Memory, Stream } from '../../gpu/index.js';
import { byteSize, type Field } from '../../lang/index.js';
import type { SharedWindow, World } from '../../net/world/index.js';
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

export class LoadedPlan {
  readonly #windows: ReadonlyMap<WindowPlan, SharedWindow>;
  readonly #buffers: ReadonlyMap<BufferPlan, Memory>;

  private constructor(
    readonly plan: Plan,
    readonly steps: Readonly<Record<Phase, readonly LoadedStep[]>>,
    windows: ReadonlyMap<WindowPlan, SharedWindow>,
    buffers: ReadonlyMap<BufferPlan, Memory>,
    /** Null where no row crosses a network. */
    readonly wire: Wire | null,
  ) {
    this.#windows = windows;
    this.#buffers = buffers;
  }

  /** Every rank of the world calls it with its plan of the same layer. */
  static async load(world: World, plan: Plan, waitMs: number): Promise<LoadedPlan> {
    const { device } = world;
    const windows = new Map<WindowPlan, SharedWindow>();
    for (const of of plan.windows) {
      const fills = fillsOf(of.allOnes);
      const window = await (of.symmetric
        ? world.createSymmetricWindow(of.layout.bytes, of.purpose, fills)
        : world.createWindow(of.layout.bytes, of.purpose, fills));
      for (const field of of.unwritten) window.own.poison(field.offset, bytesOf(field));
      windows.set(of, window);
    }
    if (windows.size > 0) await world.barrier('preparing windows');
    const buffers = new Map(plan.buffers.map((of) => [of, device.allocate(of.bytes, of.purpose)]));
    const wire = plan.wire && (await layWire(world, plan.wire, waitMs));

    const memory = {
      rank: world.topology.localRank,
      limit: 1000 * waitMs,
      window: (of: WindowPlan | WirePlan) => (of.kind === 'wire' ? wire!.window : windows.get(of)!),
      address: (of: BufferPlan) => buffers.get(of)!.address,
    };
    const loaded = await Promise.all(
      phases.map(async (phase) => {
        const steps = await Promise.all(plan.phases[phase].map((step) => loadStep(step, device, memory)));
        return [phase, steps] as const;
      }),
    );
    const steps = Object.fromEntries(loaded) as Record<Phase, LoadedStep[]>;
    return new LoadedPlan(plan, steps, windows, buffers, wire);
  }

  /** Nothing is launched before every step has taken what the round brings, which a step may refuse. */
  run(phases: readonly Phase[], round: Round, stream: Stream): void {
    for (const phase of phases) for (const step of this.steps[phase]) step.take(round);
    for (const phase of phases) for (const step of this.steps[phase]) step.launch(stream);
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
    for (const [plan, { own }] of this.#windows)
      for (const { offset, bytes, value } of beginningOf(plan))
        stream.fill(own.address + offset, bytes, value);
    if (this.wire === null) return;
    // The host writes its own memory itself. Nor do proxies run.
    const { address, front, placement, raw } = this.wire.memory;
    for (const { offset, bytes, value } of beginningOf(this.wire.plan)) {
      if (placement === 'host' || offset < front) raw.fill(value, offset, offset + bytes);
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
    return this.wire?.proxy.error ?? null;
  }

  /** Frees the memory. No rank may still use it. */
  async close(): Promise<void> {
    await this.wire?.proxy.stop();
    this.wire?.memory.free();
    for (const buffer of this.#buffers.values()) buffer.free();
    for (const window of this.#windows.values()) window.close();
  }

  #address(of: WindowPlan | BufferPlan): number {
    return of.kind === 'window' ? this.#windows.get(of)!.own.address : this.#buffers.get(of)!.address;
  }
}

/** Memory that the network reaches, the plan of it, and the proxy that sees to it. */
async function layWire(world: World, plan: WirePlan, waitMs: number) {
  const { front, purpose, program, allOnes = [] } = plan;
  const { bytes } = plan.layout;
  const { placement } = await world.wires();
  const memory = world.device.allocateWire({ bytes, front, placement }, purpose, fillsOf(allOnes));
  const { address } = memory;
  // The network has half of the time of kernels, so it names a silent rank before kernels give up. A kernel might
  // name a rank that itself waits for the silent one.
  const proxy = await world.startProxy({ ...program, memory, timeoutMs: Math.ceil(waitMs / 2) });
  return { plan, memory, window: { rank: 0, bases: [address], bytes }, proxy };
}
export type Wire = Readonly<Awaited<ReturnType<typeof layWire>>>;

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
