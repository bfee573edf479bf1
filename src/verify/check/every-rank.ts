/** What a host does on every rank, in few words: memory by name and type, launches by the names of parameters, comparing. */
import { ArgumentError, requireFunction, requireInteger } from '../../base/errors.js';
import type { Stream, Tensor } from '../../gpu/index.js';
import type { PtxLaunchShape, SimDevice } from '../../gpu/sim/index.js';
import type { PtxKernel } from '../../lang/ptx/index.js';
import type { World } from '../../net/world/index.js';
import { type Addressed, bytesOf, decode, type ElementType, encode, numberOf } from './elements.js';
import { type OwnMachine, programOfRanks } from './own-module.js';
import { type CheckConfiguration, WrongResult } from './subject.js';

/** Elements of one type in the memory of a GPU. */
export interface Elements extends Addressed {
  readonly name: string;
  readonly type: ElementType;
  readonly count: number;
}

/** A parameter's value: a number, memory, the bytes of a struct, or a tensor, of which the kernel gets a map. */
export type ParameterValue = number | bigint | Addressed | Uint8Array | Tensor;

/** The host of one rank. */
export interface RankHost {
  readonly rank: number;
  readonly ranks: number;
  /** For what this interface lacks: events, further streams. */
  readonly device: SimDevice;
  /** The order of all that this host enqueues. */
  readonly stream: Stream;
  /** Memory of this GPU: with these values, or so many elements that nobody has written. */
  buffer(name: string, type: ElementType, values: number | readonly (number | bigint)[]): Elements;
  /** Memory of every GPU that all can address, by rank; it begins as zeros. All ranks ask for it. */
  windows(name: string, type: ElementType, count: number): Promise<readonly Elements[]>;
  /** Enqueues a copy of values into memory. */
  write(to: Addressed, type: ElementType, values: readonly (number | bigint)[]): void;
  /** Enqueues a launch, with the value of each parameter. */
  launch(
    kernel: PtxKernel,
    shape: Omit<PtxLaunchShape, 'rank'>,
    values: Readonly<Record<string, ParameterValue>>,
  ): void;
  /** The elements, once all that was enqueued before is done. */
  read(from: Elements): Promise<number[]>;
  /**
   * Compares each element with `expected` of its index, from which it may differ by `within`. The first wrong one is told once the program
   * has ended: others may wait for what it does next.
   */
  expect(from: Elements, expected: (index: number) => number, within?: number): Promise<void>;
  /** Waits for all that this rank has enqueued, and then for all ranks: what they did before comes before what is enqueued next. */
  meet(): Promise<void>;
}

/**
 * A way to launch kernels in PTX: `program` is the host of every rank, as a process each would run it. `heddle check --ptx` runs what a
 * host's default export gives of these.
 */
export function everyRank(
  name: string,
  machine: OwnMachine,
  program: (host: RankHost) => Promise<unknown>,
): CheckConfiguration {
  requireFunction('program', program);
  return programOfRanks(name, machine, async (world, sim) => {
    const wrong: WrongResult[] = [];
    const host = hostOf(world, sim.device(world.rank), wrong);
    await program(host);
    await host.stream.synchronize();
    if (wrong[0] !== undefined) throw wrong[0];
  });
}

function hostOf(world: World, device: SimDevice, wrong: WrongResult[]): RankHost {
  const { rank, ranks } = world;
  const stream = device.createStream();
  const host: RankHost = {
    ...{ rank, ranks, device, stream },
    buffer(name, type, values) {
      const count = typeof values === 'number' ? values : values.length;
      const { address } = device.allocate(bytesOf(type) * requireInteger(name, count, 1, 2 ** 32), name);
      if (typeof values !== 'number') host.write({ address }, type, values);
      return { name, type, count, address };
    },
    async windows(name, type, count) {
      const { bases } = await world.createWindow(
        bytesOf(type) * requireInteger(name, count, 1, 2 ** 32),
        name,
      );
      return bases.map((address) => ({ name, type, count, address }));
    },
    write: ({ address }, type, values) => stream.copyIn(address, encode(type, values)),
    launch(kernel, shape, values) {
      const launcher = device.program(kernel).launcher({ ...shape, rank });
      const lengths = new Map(kernel.params.map(({ name, bytes }) => [name, bytes]));
      for (const [name, value] of Object.entries(values)) {
        if (typeof value === 'object' && 'extents' in value) launcher.setTensor(name, value);
        else if (!(value instanceof Uint8Array)) launcher.set(name, numberOf(name, value));
        else if (value.length === (lengths.get(name) ?? value.length)) launcher.setBytes(name, value);
        else
          throw new ArgumentError(
            name,
            `${value.length} bytes`,
            `the ${lengths.get(name)} bytes that ${kernel.name} takes: compare the struct's fields with those in C++`,
          );
      }
      launcher.launch(stream);
    },
    read: async ({ address, type, count }) =>
      decode(type, await stream.copyOut(address, count * bytesOf(type))),
    async expect(from, expected, within = 0) {
      for (const [i, value] of (await host.read(from)).entries()) {
        const [wanted] = decode(from.type, encode(from.type, [expected(i)]));
        if (!(Object.is(value, wanted) || Math.abs(value - wanted!) <= within))
          wrong.push(new WrongResult(`rank ${rank}: ${from.name}[${i}] is ${value}, not ${wanted}`));
      }
    },
    async meet() {
      await stream.synchronize();
      await world.barrier('meet');
    },
  };
  return host;
}
