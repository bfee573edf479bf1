/**
 * A world: a circle of ranks, and the device of this one. Everything above takes a world and asks nothing about how
 * the ranks came together or what their devices are.
 */

import {
  ArgumentError,
  HeddleError,
  messageOf,
  RankLostError,
  RankMaskedError,
  RendezvousError,
  requireArray,
  requireFunction,
  requireInteger,
  requireKnown,
  requireObject,
  requireText,
  UnavailableError,
} from '../../base/errors.js';
import { CudaDevice, countGpus, describeGpu, gpusHere } from '../../gpu/cuda/index.js';
import {
  type Device,
  evenNodes,
  type Fill,
  maxSimulatedRanks,
  type Topology,
  topologyOf,
} from '../../gpu/index.js';
import type { MachineOptions, SimMachine } from '../../gpu/sim/index.js';
import type { TransferEngine } from '../fabric/index.js';
import { type Circle, type CircleOptions, notOut, passing, runEach } from './circle.js';
import type { JoinOptions } from './environment.js';
import { type WhatHappened, type WorldEvent, WorldEvents } from './events.js';
import type { TakesIn } from './exchange.js';
import { connectFabric, type FabricConnection } from './fabric.js';
import { LocalCircle } from './local-circle.js';
import {
  type FindTopology,
  findTopology,
  joinAndMeet,
  joinSimulated,
  ordinalFor,
  requireOwnGpus,
} from './nodes.js';
import { findPlace, OutsideCircle, ProcessCircle } from './process-circle.js';
import { type FabricOptions, openEngine } from './proxy/network.js';
import {
  inMachine,
  inThread,
  LastingProxy,
  type ProxyOptions,
  type ProxyStarter,
  type RunningProxy,
  requireProxyOptions,
} from './proxy/start.js';
import { findWires, simulatedWires, type Wires } from './proxy/wires.js';
import { tellLauncher } from './tell-launcher.js';
import {
  allocateSymmetric,
  joinNvshmem,
  type MappedWindow,
  mapWindows,
  type SharedWindow,
} from './windows.js';

/** `auto`: GPUs where there are enough of them, else the simulator. */
export type DeviceChoice = 'auto' | 'sim' | 'cuda';

/** The worlds that `World.local` makes. */
export interface LocalWorldOptions extends CircleOptions {
  /** How many, 1 or more. */
  readonly ranks: number;
  /** Equal nodes of consecutive ranks, default 1: windows span those of a node, as if no others were in reach. */
  readonly nodes?: number;
  /** Default `auto`. */
  readonly device?: DeviceChoice;
  /** How proxies reach each other where GPUs are real; simulated ones have a network of their own, and take of this `wires`. */
  readonly fabric?: FabricOptions;
  /** How the simulated machine runs; or one that exists, to look into it afterwards. */
  readonly sim?: Omit<MachineOptions, 'ranks'> | SimMachine;
}

/** How `World.join` finds the others; all of it comes from the environment unless it is said here. */
export interface JoinWorldOptions extends JoinOptions {
  /** `sim`: this process simulates the GPUs of its ranks, which are a node. Default: HEDDLE_DEVICE, else `cuda`. */
  readonly device?: 'cuda' | 'sim';
  /** How many ranks this process is, from its own on; simulated ones only. Default: HEDDLE_RANKS_HERE, else 1. */
  readonly ranksHere?: number;
  /** How proxies reach each other. */
  readonly fabric?: FabricOptions;
}

const knownLocally: Readonly<Record<keyof LocalWorldOptions, true>> = {
  ...{ ranks: true, nodes: true, device: true, fabric: true, sim: true, timeoutMs: true },
};
const knownToJoin: Readonly<Record<keyof JoinWorldOptions, true>> = {
  ...{ rank: true, ranks: true, localRank: true, node: true, address: true, rendezvous: true, world: true },
  ...{ newcomer: true, rejoin: true, secret: true, hosted: true, timeoutMs: true, lossTimeoutMs: true },
  ...{ environment: true, device: true, ranksHere: true, fabric: true },
};

/** Something that lives on when ranks are left out, such as a layer: what a mask asks of it, while no rank's device does anything. */
export interface Maskable extends Alike {
  /** How long its kernels wait for a rank, in ms. */
  readonly waitMs: number;
  /** Its rounds that went well on this rank. */
  count(): Promise<number>;
  /**
   * Its memory is as it was at first; from here on it leaves out these ranks of the world. Called again where more are lost
   * meanwhile; and on a rank that is out itself, of whose memory nothing else changes.
   */
  leaveOut(ranks: readonly number[]): Promise<void>;
  /** Every rank has: so many rounds went well on all of them. Rounds that this rank has begun beyond those do not count. */
  goOn(done: number): void;
  /** What is alike on all ranks from the beginning; of a rank that rejoins as well. */
  readonly shape: string;
}

/** Something that all ranks know alike, also where some rejoin. */
export interface Alike {
  /** This rank's part of it, as JSON has it. */
  state(): unknown;
  /** What all that take part now have said, by rank. `stayed`: one that has taken part all along, where this rank has not. */
  takeOver(states: readonly unknown[], stayed: number | null): Promise<void>;
}

/** What a rank says when others rejoin: of its world, and whether it has taken part all along. */
interface Standing {
  readonly out: boolean;
  readonly rank: number;
  /** Its nodes, and all that lives on in it. */
  readonly world: string;
  readonly origins: readonly number[];
  readonly states: readonly unknown[];
  /** Its own parts of them: `handle` in base64. */
  readonly windows: readonly { readonly name: string; readonly bytes: number; readonly handle: string }[];
}

/** Time that a layer's kernels may still wait after another rank's have given up, and for hosts to say so. */
const marginMs = 1000;

/** Newcomers have everything ready when they wait: this is for a few meetings. */
const newcomersMs = 5_000;

/** One rank's view of the world that it is in. */
export class World {
  /** A proxy around a world is none: it has nothing of what a world keeps for itself. */
  static [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === 'object' && value !== null && #host in value;
  }

  /** This one, from 0. */
  readonly rank: number;
  /** How many there are. */
  readonly ranks: number;
  /** Under way or done from the first symmetric window on. */
  #nvshmem: Promise<void> | null = null;
  #wires: Promise<Wires> | null = null;
  /** Those that were not stopped. */
  #proxies: LastingProxy[] = [];
  /** In the order in which they were made, as on all ranks. */
  readonly #windows = new Set<MappedWindow>();
  readonly #host: Host;
  readonly #events: WorldEvents;
  /** The resources to free at the renewal, and what lives on there when ranks are left out. */
  readonly #freedAtRenewal = new Map<() => Promise<void>, Maskable | null>();
  readonly #alike = new Set<Alike>();
  /** By rank: what it was numbered when the world began, or when it last rejoined. */
  #origins: readonly number[];
  #circle: Circle;
  #masking: Promise<void> | null = null;
  #out = false;
  /** Under way, or over. */
  #renewal: Promise<World> | null = null;
  /** The world to which this one was renewed. */
  #next: World | null = null;

  private constructor(
    circle: Circle,
    /** This rank's GPU. */
    readonly device: Device,
    /** Which ranks share a node. */
    readonly topology: Topology,
    host: Host,
    events = new WorldEvents(),
  ) {
    this.#host = host;
    this.#events = events;
    this.#circle = circle;
    this.#origins = circle.origins;
    this.rank = circle.rank;
    this.ranks = circle.ranks;
    if (circle instanceof ProcessCircle) circle.atProgramEnd = () => this.dispose();
    this.#hearLosses(circle);
  }

  /**
   * Calls the listener soon after each event, in this world and those that it is renewed to: ranks are lost or left out, weights
   * move, layers change their placement. Returns what removes it.
   */
  onEvent(listener: (event: WorldEvent) => void): () => void {
    return this.#events.listen(listener);
  }

  /** For what is built on a world: tells those that listen to this rank's events. */
  tell(what: WhatHappened): void {
    requireObject('what', what, 'what happened');
    this.#events.tell(this, what);
  }

  #hearLosses(circle: Circle): void {
    circle.onRankLost((loss) => {
      const error = this.#inWorld(circle, loss);
      const lost = error instanceof RankLostError ? error.ranks : [];
      this.tell({ kind: 'lost', lost, why: messageOf(error) });
    });
  }

  /** How the ranks meet and learn of losses. Of a world that leaves ranks out, a circle of the others, which numbers them anew. */
  get circle(): Circle {
    return this.#circle;
  }

  /** Whether this rank is left out: then nothing that it sends counts, until it has joined again (`rejoin`). */
  get out(): boolean {
    return this.#out || this.circle.out;
  }

  /** The ranks that are left out, in ascending order. */
  get masked(): readonly number[] {
    const { origins } = this.circle;
    return [...this.#origins.keys()].filter((rank) => !origins.includes(this.#origins[rank]!));
  }

  /**
   * All ranks in this process: runs `program` once for each, and resolves with what they returned, by rank. When one
   * throws, the others see it lost, and the first error is thrown here once all have ended.
   */
  static async local<T>(options: LocalWorldOptions, program: (world: World) => Promise<T>): Promise<T[]> {
    requireObject('options', options);
    requireKnown('options', options, knownLocally);
    requireFunction('program', program, 'what a rank does: async (world) => { … }');
    // No machine has more GPUs than one that is simulated.
    const ranks = requireInteger('ranks', options.ranks, 1, maxSimulatedRanks);
    const nodeOf = evenNodes(ranks, options.nodes ?? 1);
    const machine = await chooseMachine(ranks, options);
    const worlds: World[] = [];
    const oneRank = async (circle: LocalCircle): Promise<T> => {
      const { rank } = circle;
      const host = machine === null ? unheard(rank, options.fabric) : hostIn(machine, rank, options.fabric);
      try {
        const device = machine?.device(rank) ?? CudaDevice.open(rank);
        const world = new World(circle, device, topologyOf(nodeOf, rank), host);
        worlds.push(world);
        return await program(world);
      } finally {
        host.left();
      }
    };
    return World.#thenFree(worlds, LocalCircle.run(ranks, oneRank, options));
  }

  /**
   * This process as one rank of a world of processes, one GPU each; rank, size and address come from the launcher's
   * environment (docs/worlds.md). With a program: runs it once for each rank of this process, which may be several
   * where GPUs are simulated, and resolves with what they returned when all have left.
   */
  static async join(options?: JoinWorldOptions): Promise<World>;
  static async join<T>(options: JoinWorldOptions, program: (world: World) => Promise<T>): Promise<T[]>;
  static async join<T>(
    options: JoinWorldOptions = {},
    program?: (world: World) => Promise<T>,
  ): Promise<World | T[]> {
    tellLauncher();
    requireObject('options', options);
    requireKnown('options', options, knownToJoin);
    const place = findPlace(options);
    const device = options.device ?? place.device ?? 'cuda';
    if (device !== 'cuda' && device !== 'sim') throw new ArgumentError('device', device, "'cuda' or 'sim'");
    const most = device === 'sim' ? place.ranks - place.rank : 1;
    const here = requireInteger('ranksHere', options.ranksHere ?? place.ranksHere, 1, most);
    if (program === undefined && here > 1)
      throw new ArgumentError(
        'program',
        program,
        `given, because this process is ${here} ranks: World.join({}, async (world) => …)`,
      );
    const worlds =
      device === 'sim' ? await World.#joinSimulated(options, here) : [await World.#joinGpu(options)];
    return program === undefined ? worlds[0]! : World.#runAll(worlds, program);
  }

  /** A rank whose program throws is lost to the others. The first error is thrown, once all have ended. */
  static async #runAll<T>(worlds: readonly World[], program: (world: World) => Promise<T>): Promise<T[]> {
    const results = runEach(worlds, program, {
      lose: (world, reason) => world.circle.latest.fail(reason),
      ended: (world) => world.#host.left(),
    });
    try {
      return await World.#thenFree(worlds, results);
    } finally {
      await Promise.all(worlds.map((world) => world.circle.latest.dispose()));
    }
  }

  /** Frees the worlds once their programs have ended, however they did; what went wrong first says more. */
  static async #thenFree<T>(worlds: readonly World[], programs: Promise<T[]>): Promise<T[]> {
    const results = await programs.catch(async (error) => {
      await World.#freeAll(worlds).catch(() => {});
      throw error;
    });
    await World.#freeAll(worlds);
    return results;
  }

  static async #joinSimulated(options: JoinWorldOptions, ranksHere: number): Promise<World[]> {
    const ranks = await joinSimulated(options, ranksHere);
    return ranks.map(({ circle, topology, machine, find }) => {
      const { localRank } = topology;
      // The ranks that it meets may be in another process: while it waits for them, the machine must not give it up.
      const host = { ...hostIn(machine, localRank, options.fabric, true), ...nobodyHears, find };
      return new World(circle, machine.device(localRank), topology, host);
    });
  }

  static async #joinGpu(options: JoinWorldOptions): Promise<World> {
    const gpus = countGpus();
    const { rank, ranks, localRank, node, newcomer, rejoin } = findPlace(options);
    const ordinal = () => ordinalFor(rank, localRank, gpus);
    // One that comes later is ready before the others wait for it.
    let device = (newcomer ?? rejoin) === undefined ? null : CudaDevice.open(ordinal());
    const find = async (circle: Circle) => {
      const { uuid } = describeGpu(ordinal());
      const uuids = await circle.allGather(Buffer.from(uuid), 'choosing GPUs');
      requireOwnGpus(uuids.map((bytes) => Buffer.from(bytes).toString()));
      device ??= CudaDevice.open(ordinal());
      return findTopology(circle, device, node);
    };
    const outside = () => topologyOf(evenNodes(ranks, 1), rank);
    try {
      const { circle, topology } = await joinAndMeet(options, find, outside);
      const host = { ...unheard(ordinal(), options.fabric), alone: true, find };
      return new World(circle, device!, topology, host);
    } catch (error) {
      await device?.dispose();
      throw error;
    }
  }

  /** Waits for every rank. */
  async barrier(operation = 'barrier'): Promise<void> {
    await this.#meeting(this.circle, this.circle.barrier(operation));
  }

  /** Gives every rank the bytes of all ranks; none of those that are left out. */
  async allGather(bytes: Uint8Array, operation: string): Promise<Uint8Array[]> {
    const { circle } = this;
    const parts = await this.#meeting(circle, circle.allGather(bytes, operation));
    return this.#origins.map((origin) => parts[circle.origins.indexOf(origin)] ?? new Uint8Array(0));
  }

  /**
   * Allocates a window on every rank and maps those of this rank's node here. Every rank of the world calls it, with
   * the same size.
   * @throws where one rank cannot, on all ranks; nothing is left then.
   */
  async createWindow(bytes: number, purpose: string, fills: readonly Fill[] = []): Promise<SharedWindow> {
    requireText('purpose', purpose);
    this.requireWhole();
    const { circle, rank, topology, device } = this;
    const outside = circle instanceof OutsideCircle;
    if (this.out && !outside) throw new RankMaskedError(rank);
    const gather = this.allGather.bind(this);
    const mapped = await mapWindows({ rank, topology, device, outside, gather }, bytes, purpose, fills);
    this.#windows.add(mapped);
    const close = () => {
      this.#windows.delete(mapped);
      mapped.window.close();
    };
    return { ...mapped.window, close };
  }

  /**
   * Starts this rank's proxy, connected to those of all other ranks; every rank calls it. Beside a real GPU it is a
   * thread, beside a simulated one the machine gives it turns.
   */
  async startProxy(options: ProxyOptions): Promise<RunningProxy> {
    requireProxyOptions(options, this.ranks);
    this.requireWhole();
    const forget = () => {
      this.#proxies = this.#proxies.filter((other) => other !== proxy);
    };
    const proxy = new LastingProxy(this.#host.startProxy, options, forget);
    this.#proxies.push(proxy);
    try {
      if (!this.out) await proxy.begin(this.circle);
    } catch (error) {
      forget();
      throw error;
    }
    return proxy;
  }

  /** An engine of this rank's own, over the network that proxies take, and the other ranks as its peers; every rank calls it. */
  async openEngine(): Promise<{ readonly engine: TransferEngine; readonly fabric: FabricConnection }> {
    this.requireWhole();
    const { circle } = this;
    const meeting = async () => {
      const engine = await openEngine(circle, this.#host.network());
      try {
        return { engine, fabric: await connectFabric(circle, engine) };
      } catch (error) {
        await engine.close();
        throw error;
      }
    };
    return this.#meeting(circle, meeting());
  }

  /** Where the wires of this rank's layers lie; every rank calls it. */
  async wires(): Promise<Wires> {
    this.#wires ??= this.#host.findWires(this.circle, this.device);
    return this.#wires;
  }

  /**
   * The same in NVSHMEM's symmetric heap, which kernels reach by its own functions: there `bases` are all this rank's own
   * address. Simulated ranks map each other's all the same.
   * @throws UnavailableError where NVSHMEM is not to be had, on all ranks.
   */
  async createSymmetricWindow(
    bytes: number,
    purpose: string,
    fills: readonly Fill[] = [],
  ): Promise<SharedWindow> {
    const { rank, ranks, topology, device } = this;
    if (!(device instanceof CudaDevice)) return this.createWindow(bytes, purpose, fills);
    requireText('purpose', purpose);
    const gather = this.allGather.bind(this);
    const { alone } = this.#host;
    const place = { rank, ranks, topology, device, alone, lost: this.circle.signal, gather };
    this.#nvshmem ??= joinNvshmem(place);
    await this.#nvshmem;
    const own = await allocateSymmetric(place, bytes, purpose, fills);
    const bases = new Array<number>(ranks).fill(own.address);
    return { own, rank, ranks: topology.members[0]!, bases, bytes, close: () => own.free() };
  }

  /** Its end waits for every rank, with their threads: so they meet before. A rank that does not come is lost to the others. */
  async #partFromNvshmem(): Promise<void> {
    if (this.#nvshmem === null || this.circle.signal.aborted) return;
    await this.#nvshmem.then(() => this.barrier('parting from NVSHMEM')).catch(() => {});
  }

  /** How many newcomers wait for `renew` to take them in, alike on all ranks. Every rank calls it. */
  async newcomers(): Promise<number> {
    const heard = Uint32Array.of(this.circle.newcomers);
    const all = await this.allGather(new Uint8Array(heard.buffer), 'newcomers');
    return Math.max(...all.map((bytes) => new Uint32Array(bytes.slice().buffer)[0] ?? 0));
  }

  /**
   * After ranks were lost, or have left, or while newcomers wait: the world of those that are left, in the same order, and of the
   * newcomers behind them. Each keeps the device that it had, on which memory, streams and events stay as they are. Every rank
   * that is left calls it. Ranks that are lost meanwhile are left behind, too. This world is over then, and its layers with it,
   * which are made anew in the new one. Further calls give the same.
   * @throws RendezvousError where the process that hosted the rendezvous is gone.
   * @throws RankLostError where the others have lost this rank.
   */
  renew(): Promise<World> {
    this.#renewal ??= this.#renew();
    return this.#renewal;
  }

  async #renew(): Promise<World> {
    if (this.#out) throw new RankMaskedError(this.rank);
    if (this.#nvshmem !== null)
      throw new UnavailableError(
        'a world whose layers used NVSHMEM cannot be renewed: its end would wait for the ranks that are gone',
        "Start its processes anew, or use transport 'windows'",
      );
    await this.#masking?.catch(() => {});
    // Kernels wait for ranks that are gone until their time is over. Nobody goes on, and frees, before that.
    await this.device.settle();
    passing('renewal', 'kernels ended');
    await Promise.all(this.#proxies.map((proxy) => proxy.stop()));
    passing('renewal', 'proxies stopped');
    let circle = await this.#goOnFrom(this.circle);
    await this.#freeWithout(circle);
    passing('renewal', 'freed');
    // A rank that is lost before all have freed their memory, and met the newcomers, is left behind as well.
    let topology = await this.#meetAnew(circle);
    while (topology === null) {
      circle = await this.#goOnFrom(circle);
      topology = await this.#meetAnew(circle);
    }
    passing('renewal', 'met');
    const next = new World(circle, this.device, topology, this.#host, this.#events);
    this.#next = next;
    const { was, joined } = this.#comeFrom(circle);
    next.tell({ kind: 'renewed', was });
    if (joined.length > 0) next.tell({ kind: 'joined', joined });
    return next;
  }

  /**
   * Where the ranks of a renewed circle lie; null where one was lost, or left, before all knew. Newcomers never keep the others from
   * going on: those that do not come in time are lost, and all with whom there can be no world.
   */
  async #meetAnew(circle: Circle): Promise<Topology | null> {
    const { was, joined: fresh } = this.#comeFrom(circle);
    const late = `newcomers have ${newcomersMs} ms to meet the others`;
    const timer = fresh.length > 0 ? setTimeout(() => circle.accuse(fresh, late), newcomersMs) : undefined;
    const { members, apart } = this.topology;
    const nodeOf = was.map((rank) => members.findIndex((ranks) => ranks.includes(rank)));
    const meet = async () => {
      await circle.barrier('renewal');
      return fresh.length > 0 ? this.#host.find!(circle) : topologyOf(nodeOf, circle.rank, apart);
    };
    try {
      return await this.#unlessLost(this.#meeting(circle, meet()));
    } catch (error) {
      if (fresh.length === 0) throw error;
      circle.accuse(fresh, messageOf(error));
      return null;
    } finally {
      clearTimeout(timer);
    }
  }

  /** By rank of a renewed circle what it is numbered here, −1 of a newcomer; and its newcomers. */
  #comeFrom({ origins }: Circle): { readonly was: readonly number[]; readonly joined: readonly number[] } {
    const was = origins.map((origin) => this.#origins.indexOf(origin));
    return { was, joined: was.flatMap((before, rank) => (before === -1 ? [rank] : [])) };
  }

  /** The circle of those that are left, and of those that wait and are taken in. */
  #goOnFrom(circle: Circle, timeoutMs?: number, takesIn?: TakesIn): Promise<Circle> {
    return this.#meeting(circle, circle.renew(timeoutMs, takesIn), this.#host.meanwhile());
  }

  /** The error, with ranks counted as this world does. */
  #inWorld(circle: Circle, error: unknown): unknown {
    if (!(error instanceof RankLostError) || circle.origins === this.#origins) return error;
    const here = (rank: number) =>
      rank === circle.rank ? this.rank : this.#origins.indexOf(circle.origins[rank]!);
    const ranks = error.ranks.map(here);
    return new RankLostError(ranks, error.operation, error.epoch, { cause: error.cause });
  }

  /** Throws where the world leaves ranks out: nothing new can be made in it. */
  requireWhole(): void {
    if (this.masked.length === 0) return;
    throw new HeddleError(
      'HEDDLE_WORLD_MASKED',
      `this world leaves out ranks ${this.masked.join(', ')}, so nothing new can be made in it; world.renew() gives one of those that are left`,
    );
  }

  /**
   * Goes on without ranks that are lost, and without `ranks`, in the same world: layers stay, with their windows and captured
   * graphs, and leave those ranks out. Every rank that is left calls it, and one of `ranks` that still runs, which is told
   * that it is out. All layers must have been made with `onLoss: 'mask'`. docs/worlds.md has the protocol.
   * @throws RankMaskedError where this rank is left out.
   * @throws RendezvousError where the process that hosted the rendezvous is gone.
   */
  mask(ranks: readonly number[] = []): Promise<void> {
    requireArray('ranks', ranks, 'an array of ranks');
    for (const [i, rank] of ranks.entries()) requireInteger(`ranks[${i}]`, rank, 0, this.ranks - 1);
    this.#requireMaskable();
    return ranks.length > 0 ? this.#leave(ranks) : this.#once(() => this.#mask([]));
  }

  #requireMaskable(): void {
    if ([...this.#freedAtRenewal.values()].includes(null))
      throw new HeddleError(
        'HEDDLE_NO_MASKS',
        "a layer of this world needs every rank; create all of them with onLoss: 'mask', or renew the world",
      );
  }

  /** Joins a change of masks that is under way. */
  #once(change: () => Promise<void>): Promise<void> {
    this.#masking ??= change().finally(() => {
      this.#masking = null;
    });
    return this.#masking;
  }

  /** Leaves out ranks that may run: all meet first, so that what they have enqueued is done. Of no effect on those that are out. */
  async #leave(ranks: readonly number[]): Promise<void> {
    // Calls that waited for the same change go on one after the other.
    while (this.#masking !== null) await this.#masking.catch(() => {});
    const more = ranks.filter((rank) => !this.masked.includes(rank));
    if (more.length === 0) return;
    await this.#once(() => this.#mask(more));
  }

  /**
   * Takes ranks that were left out, and wait in `rejoin`, into rounds again; all layers stay. Every rank that takes part calls it, at
   * the same place between rounds, as often as it likes: of a world that leaves nobody out it costs nothing. Returns those that came:
   * none before proxies can begin anew everywhere, which they make ready when somebody waits.
   */
  async takeIn(): Promise<readonly number[]> {
    this.#requireMaskable();
    await this.#masking?.catch(() => {});
    if (this.out) throw new RankMaskedError(this.rank);
    const { masked } = this;
    if (masked.length === 0) return [];
    // Where a rank was lost meanwhile, it is left out first, as `synchronize` of a layer or `mask` does.
    const ready = this.#proxies.every(({ prepared }) => prepared);
    const heard = Uint8Array.of(Number(this.circle.rejoining > 0), Number(ready));
    const all = await this.#unlessLost(this.allGather(heard, 'taking in'));
    if (!all?.some(([waiting]) => waiting === 1)) return [];
    // Rounds go on meanwhile: only what needs all ranks is done while they wait.
    if (!ready) for (const proxy of this.#proxies) void proxy.prepare();
    if (all.some(([, prepared]) => prepared === 0)) return [];
    await this.#once(() => this.#mask([], 'rejoining'));
    return masked.filter((rank) => !this.masked.includes(rank));
  }

  /**
   * Of a rank that is left out: waits until the others take it in (`takeIn`), however long that takes. Then it takes part in rounds
   * again, with the layers that it has, which must be those of the others. Where experts are placed, it has their placement.
   * @throws RankMaskedError where the others refuse it; the cause says why.
   * @throws RendezvousError where nobody is left who could take it in, and where the others renew their world.
   */
  async rejoin(): Promise<void> {
    this.#requireMaskable();
    await this.#masking?.catch(() => {});
    if (!this.out) throw new HeddleError('HEDDLE_NOT_OUT', notOut(this.rank));
    await this.#once(() => this.#rejoin());
  }

  async #rejoin(): Promise<void> {
    this.#out = true;
    await this.device.settle();
    passing('rejoin', 'kernels ended');
    await Promise.all(this.#proxies.map((proxy) => proxy.prepare()));
    const { circle } = this;
    // What counts is what the others say.
    const nothing = this.#maskables.map(() => Number.POSITIVE_INFINITY);
    const begin = () => this.#meeting(circle, circle.rejoin(), this.#host.meanwhile());
    await this.#agree(nothing, begin, true).catch((error) => this.#endLeftOut(error));
    this.tell({ kind: 'joined', joined: [this.rank] });
  }

  get #maskables(): Maskable[] {
    return [...this.#freedAtRenewal.values()].filter((part) => part !== null);
  }

  async #mask(ranks: readonly number[], takesIn: TakesIn = 'nobody'): Promise<void> {
    await this.device.settle();
    passing('mask', 'kernels ended');
    const counted = await Promise.all(this.#maskables.map((part) => part.count()));
    const out = this.masked;
    if (ranks.length > 0) {
      const { circle } = this;
      await this.#unlessLost(this.barrier('mask'));
      const numbers = ranks.map((rank) => circle.origins.indexOf(this.#origins[rank]!));
      circle.accuse(numbers, 'the program leaves it out');
    }
    const begin = () => this.#goOnFrom(this.circle, this.#patience, takesIn);
    await this.#agree(counted, begin, takesIn === 'rejoining').catch((error) => this.#endLeftOut(error));
    const { masked } = this;
    const joined = out.filter((rank) => !masked.includes(rank));
    if (joined.length > 0) this.tell({ kind: 'joined', joined });
    else this.tell({ kind: 'masked', masked });
  }

  /** Where the error says that this rank is out: work that is enqueued on it all the same, such as a captured graph, writes nowhere. */
  async #endLeftOut(error: unknown): Promise<never> {
    if (!(error instanceof RankLostError && error.ranks.includes(this.rank))) throw error;
    this.#out = true;
    await Promise.all(this.#proxies.map((proxy) => proxy.pause()));
    for (const part of this.#maskables) await part.leaveOut([this.rank]);
    this.tell({ kind: 'masked', masked: [this.rank] });
    throw new RankMaskedError(this.rank, { cause: error });
  }

  /** How long the others wait for a rank: as long as its kernels may still wait for one of them. */
  get #patience(): number | undefined {
    const waits = this.#maskables.map(({ waitMs }) => waitMs);
    return waits.length === 0 ? undefined : Math.max(...waits) + marginMs;
  }

  /**
   * All ranks of one circle come to the same: their memory is as at first, they leave out who is not in it, and so many rounds count. A
   * rank that is lost before all have made their memory ready is left out as well. `counted`: the rounds of each layer that went well.
   */
  async #agree(counted: readonly number[], begin: () => Promise<Circle>, rejoined: boolean): Promise<void> {
    const parts = this.#maskables;
    const mine = new Uint8Array(Float64Array.from(counted).buffer);
    let all: Uint8Array[] | null = null;
    for (let next = begin; all === null; next = () => this.#goOnFrom(this.circle, this.#patience, 'nobody')) {
      const circle = await next();
      this.#circle = circle;
      if (circle instanceof ProcessCircle) circle.atProgramEnd = () => this.dispose();
      this.#hearLosses(circle);
      // Messages that are on their way are of rounds that do not count, or of ranks that are out. They end with the network.
      await Promise.all(this.#proxies.map((proxy) => proxy.pause()));
      if (rejoined && (await this.#unlessLost(this.#meetAgain(circle))) === null) continue;
      for (const part of parts) await part.leaveOut(this.masked);
      passing('mask', 'left out');
      const beginProxies = async () => {
        const ranks = this.#origins.map((origin) => circle.origins.indexOf(origin));
        for (const proxy of this.#proxies) await proxy.begin(circle, ranks);
        return true;
      };
      const begun = await this.#unlessLost(beginProxies());
      passing('mask', 'proxies begun');
      if (begun !== null) all = await this.#unlessLost(this.#meeting(circle, circle.allGather(mine, 'mask')));
    }
    const done = all.map((bytes) => new Float64Array(bytes.slice().buffer));
    for (const [i, part] of parts.entries()) part.goOn(Math.min(...done.map((of) => of[i]!)));
    this.#out = false;
  }

  /**
   * Those that rejoin, and the others, find out whether they fit together: each that does has its place again, and knows what the
   * others do. Null where one did not: it is lost, with the reason.
   */
  async #meetAgain(circle: Circle): Promise<true | null> {
    const layers = this.#maskables;
    const parts = [...layers, ...this.#alike];
    const mine: Standing = {
      ...{ out: this.#out, rank: this.rank, origins: this.#origins },
      world: JSON.stringify([this.topology.members, layers.map(({ shape }) => shape), parts.length]),
      states: parts.map((part) => part.state()),
      windows: [...this.#windows].map(({ purpose: name, window: { own, bytes } }) => ({
        ...{ name, bytes, handle: Buffer.from(own.handle).toString('base64') },
      })),
    };
    const gathered = await this.#meeting(
      circle,
      circle.allGather(Buffer.from(JSON.stringify(mine)), 'rejoining'),
    );
    const all = gathered.map((bytes): Standing => JSON.parse(Buffer.from(bytes).toString()));
    const stayed = all.find(({ out }) => !out);
    if (stayed === undefined)
      throw new RendezvousError('all ranks that could have taken this one in are lost');
    const origins = [...stayed.origins];
    const sizes = ({ windows }: Standing) => JSON.stringify(windows.map(({ name, bytes }) => [name, bytes]));
    for (const [number, said] of all.entries()) {
      const { out, rank, world } = said;
      if (!out) continue;
      const there = circle.origins.indexOf(origins[rank]!);
      const why = ![-1, number].includes(there)
        ? `rank ${rank} takes part already`
        : world !== stayed.world
          ? 'its nodes, or its layers, are not those of the others'
          : sizes(said) !== sizes(stayed)
            ? 'its windows are not those of the others'
            : null;
      if (why === null) {
        origins[rank] = circle.origins[number]!;
        continue;
      }
      if (number === circle.rank) throw new RankMaskedError(rank, { cause: new Error(why) });
      if (!this.#out) circle.accuse([number], why);
      return null;
    }
    this.#origins = origins;
    if (!(await this.#mapAnew(circle, all))) return null;
    const said = origins.map((origin) => all[circle.origins.indexOf(origin)]?.states);
    for (const [i, part] of parts.entries())
      await part.takeOver(
        said.map((states) => states?.[i]),
        this.#out ? stayed.rank : null,
      );
    passing('rejoin', 'met');
    return true;
  }

  /**
   * Maps windows of processes that have taken the places of others; a new process so maps those of all. No kernel runs, and none
   * begins before all have met again. False where one does not fit.
   */
  async #mapAnew(circle: Circle, all: readonly Standing[]): Promise<boolean> {
    for (const [n, { map }] of [...this.#windows].entries())
      for (const [number, { rank, windows }] of all.entries()) {
        try {
          await map(rank, Buffer.from(windows[n]!.handle, 'base64'));
        } catch (error) {
          const why = messageOf(error);
          if (!this.#out) {
            circle.accuse([number], why);
            return false;
          }
          circle.abandon(why);
          throw new RankMaskedError(this.rank, { cause: error });
        }
      }
    passing('rejoin', 'mapped');
    return true;
  }

  /** Null where a rank was lost, or left, before. */
  async #unlessLost<T>(meeting: Promise<T>): Promise<T | null> {
    try {
      return await meeting;
    } catch (error) {
      if (error instanceof RankLostError) return null;
      throw error;
    }
  }

  /**
   * Frees what was kept for ranks that are gone. Kernels of such a rank of this process may still run; other processes' keep what
   * they have mapped.
   */
  async #freeWithout({ origins }: Circle): Promise<void> {
    const { members, node } = this.topology;
    const stays = (rank: number) => origins.includes(this.#origins[rank]!);
    if (!this.#host.alone && !members[node]!.every(stays)) return;
    for (const free of [...this.#freedAtRenewal.keys()]) await free();
  }

  /**
   * For what must stay while a rank that was lost may still use it. Call what it returns where it is freed before. `stays`: how it
   * lives on when ranks are left out; null where it cannot.
   */
  freeAtRenewal(free: () => Promise<void>, stays: Maskable | null = null): () => void {
    requireFunction('free', free);
    if (stays !== null) requireObject('stays', stays, 'what lives on when ranks are left out');
    this.#freedAtRenewal.set(free, stays);
    return () => this.#freedAtRenewal.delete(free);
  }

  /** For what all ranks know alike: those that rejoin are told. Call what it returns when nobody asks for it any more. */
  keepAlike(what: Alike): () => void {
    requireObject('what', what, 'what ranks tell each other where some rejoin');
    this.#alike.add(what);
    return () => this.#alike.delete(what);
  }

  /** This world, or what it was renewed to. */
  get #latest(): World {
    return this.#next === null ? this : this.#next.#latest;
  }

  /**
   * For checks alone: of a simulated rank that is left out, the world of a new process in its place, which has nothing of this one's
   * memory.
   * @internal
   */
  async startAnew(): Promise<World> {
    const { rank, ranks } = this;
    const circle = this.circle as LocalCircle;
    await Promise.all(this.#proxies.map((proxy) => proxy.stop()));
    const outside = new OutsideCircle(rank, ranks, {}, () => circle.rejoin());
    this.#next = new World(outside, this.device, this.topology, this.#host, this.#events);
    return this.#next;
  }

  /** Frees the device and leaves the circle. Of no effect on a world that was renewed. */
  async dispose(): Promise<void> {
    if (this.#next !== null) return;
    this.#host.left();
    try {
      await World.#freeAll([this]);
    } finally {
      await this.circle.latest.dispose();
    }
  }

  /**
   * Frees the devices of one process. A kernel of one may still write into the window of another, and would fault were
   * that gone: in a world that lost a rank, survivors' kernels wait for it until their time is over. So all end first; and
   * then the proxies, which write into memory of the devices.
   */
  static async #freeAll(all: readonly World[]): Promise<void> {
    const worlds = all.map((world) => world.#latest);
    await Promise.all(worlds.map(({ device }) => device.settle()));
    passing('disposal', 'kernels ended');
    await Promise.all(worlds.flatMap((world) => world.#proxies.map((proxy) => proxy.stop())));
    passing('disposal', 'proxies stopped');
    await Promise.all(worlds.map((world) => world.#partFromNvshmem()));
    await Promise.all(worlds.map(({ device }) => device.dispose()));
    passing('disposal', 'devices freed');
  }

  /**
   * The simulated machine must know when hosts wait for each other rather than for it, and what they then know: `goOn` tells it that the
   * wait is over. An error counts ranks as this world does.
   */
  async #meeting<T>(circle: Circle, promise: Promise<T>, goOn = this.#host.meets(circle.place)): Promise<T> {
    try {
      return await promise;
    } catch (error) {
      throw this.#inWorld(circle, error);
    } finally {
      goOn();
    }
  }
}

/** The events of a rank's host program that a simulated machine hears, so that it can tell waits that nobody will end. */
interface Host {
  /** It waits for other ranks' host programs, until what this returns is called. */
  meanwhile(): () => void;
  /** Likewise for those of all ranks, and then knows what they knew. `place`: the same for all of them. */
  meets(place: object): () => void;
  /** It has ended. */
  left(): void;
  readonly startProxy: ProxyStarter;
  findWires(circle: Circle, device: Device): Promise<Wires>;
  /** The way to ranks of other nodes. */
  network(): FabricOptions;
  /** Whether the rank is the only one of its process. */
  readonly alone: boolean;
  /** Null where nobody can come in. */
  readonly find: FindTopology | null;
}

const nobodyHears = { meanwhile: () => () => {}, meets: () => () => {} };

/** Of a rank with a GPU: its proxy takes the NICs that are nearest to that. */
function unheard(gpu: number, fabric: FabricOptions = {}): Host {
  const near = (): FabricOptions => ({ near: describeGpu(gpu).pciBusId, ...fabric });
  return {
    ...nobodyHears,
    left: () => {},
    startProxy: (circle, options) => inThread(near())(circle, options),
    findWires: (circle, device) => findWires(circle, device, near()),
    network: near,
    alone: false,
    find: null,
  };
}

/** `outside`: it reaches ranks that other processes simulate, by libfabric. */
function hostIn(machine: SimMachine, rank: number, fabric: FabricOptions = {}, outside = false): Host {
  let there = true;
  machine.hostEntered(rank);
  return {
    meanwhile: () => machine.hostWaiting(rank),
    meets: (place) => machine.hostMeets(rank, place),
    left: () => {
      if (there) machine.hostLeft(rank);
      there = false;
    },
    startProxy: inMachine(machine, rank, outside ? fabric : null),
    findWires: async (circle, device) =>
      outside ? findWires(circle, device, fabric) : simulatedWires(fabric),
    network: () => fabric,
    alone: false,
    find: null,
  };
}

/** Null for GPUs. The simulator is loaded where it is wanted, for that takes time. */
async function chooseMachine(
  ranks: number,
  { device = 'auto', sim }: LocalWorldOptions,
): Promise<SimMachine | null> {
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
  const { SimMachine } = await import('../../gpu/sim/index.js');
  if (!(sim instanceof SimMachine)) return SimMachine.create({ ...sim, ranks });
  if (sim.ranks !== ranks)
    throw new ArgumentError('ranks', ranks, `${sim.ranks}, as many as the machine has GPUs`);
  return sim;
}
