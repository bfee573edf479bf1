import type { Memory, Stream, Window } from '../../../src/gpu/index.js';
import { isPtx, type KernelModule, type MachineOptions, SimMachine } from '../../../src/gpu/sim/index.js';

/** One rank of a machine with what a test needs of it. */
export interface Rank {
  readonly rank: number;
  readonly device: ReturnType<SimMachine['device']>;
  readonly stream: Stream;
}

/** The first ranks of a machine, each with a stream. */
export const ranksOn = (machine: SimMachine, count: number): Rank[] =>
  Array.from({ length: count }, (_, rank) => {
    const device = machine.device(rank);
    return { rank, device, stream: device.createStream() };
  });

/** A machine, its ranks, and the first of them. */
export function machineOf(options: MachineOptions): { machine: SimMachine; ranks: Rank[]; rank: Rank } {
  const machine = SimMachine.create(options);
  const ranks = ranksOn(machine, options.ranks);
  return { machine, ranks, rank: ranks[0]! };
}

/** Seeds of so many schedules, of either kind in turn. */
export const schedules = (count: number) =>
  Array.from({ length: count }, (_, n) => {
    return { seed: `${n}`, schedule: n % 2 === 0 ? 'random' : 'priority' } as const;
  });

export function upload(to: Rank, data: ArrayBufferView, purpose = 'input'): Memory {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const memory = to.device.allocate(bytes.byteLength, purpose);
  to.stream.copyIn(memory.address, bytes);
  return memory;
}

export async function download(from: Rank, memory: { address: number; bytes: number }): Promise<ArrayBuffer> {
  const bytes = await from.stream.copyOut(memory.address, memory.bytes);
  return bytes.slice().buffer as ArrayBuffer;
}

/** Windows of all ranks, as each of them sees them. */
export async function windowsOf(
  ranks: readonly Rank[],
  bytes: number,
  purpose = 'window',
): Promise<Window[]> {
  const memories = ranks.map(({ device }) => device.allocateWindow(bytes, purpose));
  return Promise.all(
    ranks.map(async ({ rank, device }) => {
      const opened = await Promise.all(memories.map(({ handle }) => device.openWindow(handle)));
      return { rank, bytes, bases: opened.map(({ address }) => address) };
    }),
  );
}

export type Arguments = Readonly<Record<string, number | bigint | Memory | Window>>;

/** Enqueues a kernel. */
export async function launch(
  on: Rank,
  module: KernelModule,
  shape: { grid?: number; block?: number; programmatic?: boolean },
  args: Arguments,
  stream: Stream = on.stream,
): Promise<void> {
  const program = await (isPtx(module) ? on.device.load(module) : on.device.load(module));
  const launcher = program.launcher({
    grid: shape.grid ?? 1,
    block: shape.block ?? 32,
    rank: on.rank,
    programmatic: shape.programmatic ?? false,
  });
  for (const [name, value] of Object.entries(args)) {
    if (typeof value === 'object' && 'bases' in value) launcher.setWindow(name, value);
    else launcher.set(name, typeof value === 'object' ? value.address : value);
  }
  launcher.launch(stream);
}
