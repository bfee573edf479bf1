/**
 * A world: a group of ranks, and the device of this one. Everything above takes a world and asks nothing about how
 * the ranks came together or what their devices are.
 */
import { CudaDevice, countGpus, describeGpu } from '../cuda/index.js';
import { type Device, type Fill, requireFills, type Window, type WindowMemory } from '../device/index.js';
import {
  ArgumentError,
  HeddleError,
  requireFunction,
  requireInteger,
  requireObject,
  requireText,
  UnavailableError,
} from '../errors/index.js';
import { type MachineOptions, SimMachine } from '../sim/index.js';
import { ordinalFor, requireOwnGpus } from './gpus.js';
import type { Group, GroupOptions } from './group.js';
import { LocalGroup } from './local-group.js';
import { type JoinOptions, ProcessGroup } from './process-group.js';

/** `auto`: GPUs where there are enough of them, else the simulator. */
export type DeviceChoice = 'auto' | 'sim' | 'cuda';

/** What `World.local` makes. */
export interface LocalWorldOptions extends GroupOptions {
  /** How many, 1 or more. */
  readonly ranks: number;
  /** Default `auto`. */
  readonly device?: DeviceChoice;
  /** How the simulated machine runs; or one that exists, to look into it afterwards. */
  readonly sim?: Omit<MachineOptions, 'ranks'> | SimMachine;
}

/** How `World.join` finds the others; all of it comes from the environment unless it is said here. */
export interface JoinWorldOptions extends JoinOptions {
  /** `cuda` (default): ranks of different processes share memory only on GPUs. */
  readonly device?: 'cuda';
}

/** The windows of all ranks of the node, mapped here. */
export interface SharedWindow extends Window {
  /** This rank's own part. */
  readonly own: WindowMemory;
  /** Unmaps the peers' parts and frees this rank's. Every rank must be done with it. */
  close(): void;
}

/** One rank's view of the world that it is in. */
export class World {
  /** This one, from 0. */
  readonly rank: number;
  /** How many there are. */
  readonly ranks: number;

  private constructor(
    /** How the ranks meet and learn of losses. */
    readonly group: Group,
    /** This rank's GPU. */
    readonly device: Device,
    private readonly machine: SimMachine | null,
  ) {
    this.rank = group.rank;
    this.ranks = group.ranks;
  }

  /**
   * All ranks in this process: runs `program` once for each, and resolves with what they returned, by rank. When one
   * throws, the others see it lost, and the first error is thrown here once all have ended.
   */
  static async local<T>(options: LocalWorldOptions, program: (world: World) => Promise<T>): Promise<T[]> {
    requireObject('options', options);
    requireFunction('program', program, 'what a rank does: async (world) => { … }');
    const ranks = requireInteger('ranks', options.ranks, 1, 1024);
    const machine = chooseMachine(ranks, options);
    const devices: Device[] = [];
    const oneRank = async (group: LocalGroup): Promise<T> => {
      machine?.hostEntered(group.rank);
      try {
        const device = machine?.device(group.rank) ?? CudaDevice.open(group.rank);
        devices.push(device);
        return await program(new World(group, device, machine));
      } finally {
        machine?.hostLeft(group.rank);
      }
    };
    let results: T[];
    try {
      results = await LocalGroup.run(ranks, oneRank, options);
    } catch (error) {
      await freeAll(devices).catch(() => {}); // what went wrong first says more
      throw error;
    }
    await freeAll(devices);
    return results;
  }

  /**
   * This process as one rank of a world of processes, one GPU each; rank, size and address come from the launcher's
   * environment (docs/worlds.md).
   */
  static async join(options: JoinWorldOptions = {}): Promise<World> {
    const gpus = countGpus();
    const group = await ProcessGroup.join(options);
    try {
      const ordinal = ordinalFor(group.rank, group.localRank, gpus);
      const { uuid } = describeGpu(ordinal);
      const uuids = await group.allGather(Buffer.from(uuid), 'choosing GPUs');
      requireOwnGpus(uuids.map((bytes) => Buffer.from(bytes).toString()));
      return new World(group, CudaDevice.open(ordinal), null);
    } catch (error) {
      group.abandon(error instanceof Error ? error.message : String(error));
      await group.dispose();
      throw error;
    }
  }

  /** Waits for every rank. */
  async barrier(operation = 'barrier'): Promise<void> {
    await this.meeting(this.group.barrier(operation));
  }

  /** Gives every rank the bytes of all ranks. */
  async allGather(bytes: Uint8Array, operation: string): Promise<Uint8Array[]> {
    return this.meeting(this.group.allGather(bytes, operation));
  }

  /**
   * Allocates a window on every rank and maps all of them here. Every rank calls it with the same size.
   * @throws where one rank cannot, on all ranks; nothing is left then.
   */
  async createWindow(bytes: number, purpose: string, fills: readonly Fill[] = []): Promise<SharedWindow> {
    const undo: (() => void)[] = [];
    const close = () => {
      for (const step of undo.splice(0).reverse()) step();
    };
    const { rank } = this;
    requireText('purpose', purpose);
    try {
      let own!: WindowMemory;
      const handles = await this.together(`exchanging the ${purpose}s`, async () => {
        requireFills(fills, requireInteger('bytes', bytes, 1, Number.MAX_SAFE_INTEGER));
        own = this.device.allocateWindow(bytes, purpose, fills);
        undo.push(() => own.free());
        return own.handle;
      });
      const open = async (handle: Uint8Array): Promise<number> => {
        const { address, close } = await this.device.openWindow(handle);
        undo.push(close);
        return address;
      };
      let bases: number[] = [];
      // A handle is good only while its owner holds it: nobody goes on, and perhaps frees, before all have mapped.
      await this.together(`mapping the ${purpose}s`, async () => {
        bases = await Promise.all(
          handles.map((handle, peer) => (peer === rank ? own.address : open(handle))),
        );
        return new Uint8Array(0);
      });
      return { own, rank, bases, bytes, close };
    } catch (error) {
      close();
      throw error;
    }
  }

  /**
   * Gives every rank what all ranks made in a step that each of them takes. Where one fails, all throw at once: that
   * one its own error, the others one that quotes it.
   */
  private async together(doing: string, step: () => Promise<Uint8Array>): Promise<Uint8Array[]> {
    const [done, failed] = [0, 1];
    const say = (what: number, bytes: Uint8Array) =>
      this.allGather(Buffer.concat([Buffer.of(what), bytes]), doing);
    let made: Uint8Array;
    try {
      made = await step();
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      await say(failed, Buffer.from(why)).catch(() => {}); // what went wrong first says more
      throw error;
    }
    const all = await say(done, made);
    const fallen = all.findIndex(([what]) => what === failed);
    if (fallen === -1) return all.map((bytes) => bytes.subarray(1));
    const why = Buffer.from(all[fallen]!.subarray(1)).toString();
    throw new HeddleError('HEDDLE_PEER_FAILED', `rank ${fallen} failed at ${doing}: ${why}`);
  }

  /** Frees the device and leaves the group. */
  async dispose(): Promise<void> {
    try {
      await this.device.dispose();
    } finally {
      await this.group.dispose();
    }
  }

  /** The simulated machine must know when a host waits for another host rather than for it. */
  private async meeting<T>(promise: Promise<T>): Promise<T> {
    const goOn = this.machine?.hostWaiting(this.rank);
    try {
      return await promise;
    } finally {
      goOn?.();
    }
  }
}

/**
 * Frees the devices of one process. A kernel of one may still write into the window of another, and would fault were
 * that gone: in a world that lost a rank, survivors' kernels wait for it until their time is over. So all end first.
 */
async function freeAll(devices: readonly Device[]): Promise<void> {
  await Promise.all(devices.map((device) => (device instanceof CudaDevice ? device.settle() : undefined)));
  await Promise.all(devices.map((device) => device.dispose()));
}

function chooseMachine(ranks: number, { device = 'auto', sim }: LocalWorldOptions): SimMachine | null {
  if (!['auto', 'sim', 'cuda'].includes(device))
    throw new ArgumentError('device', device, "'auto', 'sim' or 'cuda'");
  if (device === 'cuda') {
    const gpus = countGpus();
    if (ranks <= gpus) return null;
    throw new UnavailableError(
      `${ranks} ranks need as many GPUs, but this process sees ${gpus}`,
      `Start fewer ranks, make more GPUs visible (CUDA_VISIBLE_DEVICES), or simulate them: device: 'sim'`,
    );
  }
  if (device === 'auto' && sim === undefined && gpusHere() >= ranks) return null;
  if (sim !== undefined) requireObject('sim', sim);
  if (!(sim instanceof SimMachine)) return SimMachine.create({ ...sim, ranks });
  if (sim.ranks !== ranks)
    throw new ArgumentError('ranks', ranks, `${sim.ranks}, as many as the machine has GPUs`);
  return sim;
}

/** GPUs that this process may use; none where there is no driver. */
function gpusHere(): number {
  try {
    return countGpus();
  } catch (error) {
    if (error instanceof UnavailableError) return 0;
    throw error;
  }
}
