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
  requireArray,
  requireFunction,
  requireInteger,
  requireMembers,
  requireObject,
  requireText,
  type Table,
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
import { connectFabric, type FabricConnection } from './fabric.js';
import { LocalCircle } from './local-circle.js';
import {
  type Action,
  type Brought,
  joinedSince,
  type Membership,
  type Message,
  maskedIn,
  membershipOf,
  numbersIn,
  rankOf,
  type Standing,
  step,
} from './membership.js';
import { findTopology, joinAndMeet, joinSimulated, ordinalFor, requireOwnGpus } from './nodes.js';
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

const knownLocally: Table<LocalWorldOptions> = {
  ...{ ranks: true, nodes: true, device: true, fabric: true, sim: true, timeoutMs: true },
};
const knownToJoin: Table<JoinWorldOptions> = {
  ...{ rank: true, ranks: true, localRank: true, places: true, nodes: true, address: true, world: true },
  ...{ rendezvous: true, rejoin: true, secret: true, hosted: true, timeoutMs: true, lossTimeoutMs: true },
  ...{ environment: true, device: true, ranksHere: true, fabric: true },
};

/** Something that survives the loss of ranks, such as a layer: what a change of masks asks of it, while no rank's device does anything. */
export interface SurvivesLoss extends Replicated {
  /** How long its kernels wait for a rank, in ms. */
  readonly waitMs: number;
  /** Its rounds that went well on this rank. */
  count(): Promise<number>;
  /**
   * Its memory is as it was at first; from here on it leaves out these ranks of the world. Called again where more are lost
   * meanwhile; and on a rank that is out itself, of whose memory nothing else changes.
   */
  leaveOut(ranks: readonly number[]): Promise<void>;
  /** Every rank has left them out: so many rounds went well on all of them. Rounds that this rank has begun beyond those do not count. */
  goOn(done: number): void;
  /** The text is the same on all ranks from the beginning; also on one that rejoins. */
  shape(): string;
}

/** A state that all ranks have, also those that rejoin. */
export interface Replicated {
  /** This rank's part of it, as JSON has it. */
  state(): unknown;
  /** What all that take part now have said, by rank. `stayed`: one that has taken part all along, where this rank has not. */
  takeOver(states: readonly unknown[], stayed: number | null): Promise<void>;
}

/** What a rank says where others rejoin: with all that they take over, and its windows in their order. */
interface Introduction extends Standing {
  readonly states: readonly unknown[];
  /** In base64. */
  readonly handles: readonly string[];
}

/** Time that a layer's kernels may still wait after another rank's have given up, and for hosts to say so. */
const marginMs = 1000;

/** One rank's view of the world that it is in. */
export class World {
  /** A proxy around a world is none: it has nothing of what a world keeps for itself. */
  static [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === 'object' && value !== null && #host in value;
  }

  /** This one, from 0. */
  readonly rank: number;
  /** How many there are, with those whose places are empty. */
  readonly ranks: number;
  /** Under way or done from the first symmetric window on. */
  #nvshmem: Promise<void> | null = null;
  #wires: Promise<Wires> | null = null;
  /** Proxies that still run. */
  #proxies: LastingProxy[] = [];
  /** In the order in which they were made, as on all ranks. */
  readonly #windows = new Set<MappedWindow>();
  readonly #host: Host;
  readonly #events: WorldEvents;
  /** Layers, in the order in which they were made, as on all ranks; null in the place of those that need every rank. */
  readonly #layers = new Map<symbol, SurvivesLoss | null>();
  readonly #replicated = new Set<Replicated>();
  #membership: Membership;
  #circle: Circle;
  /** Under way. */
  #changing: Promise<void> | null = null;
  /** By number: what all have said of themselves when they last met. */
  #introduced: readonly Introduction[] = [];
  /** The world of a process that has taken this rank's place. */
  #next: World | null = null;

  private constructor(
    circle: Circle,
    readonly device: Device,
    /** Which ranks share a node. */
    readonly topology: Topology,
    host: Host,
    events = new WorldEvents(),
  ) {
    this.#host = host;
    this.#events = events;
    this.rank = circle.rank;
    this.ranks = topology.members.flat().length;
    this.#membership = membershipOf(circle.origins, circle.rank, this.ranks, circle.out);
    this.#circle = circle;
    this.#hear(circle);
  }

  /**
   * Calls the listener soon after each event: ranks are lost, left out or take part again, weights move, layers change their placement.
   * Returns what removes it.
   */
  onEvent(listener: (event: WorldEvent) => void): () => void {
    return this.#events.listen(listener);
  }

  /** Tells the listeners of this rank's events, for what is built on a world. */
  tell(what: WhatHappened): void {
    requireObject('what', what, 'what happened');
    this.#events.tell(this, what);
  }

  #hear(circle: Circle): void {
    if (circle instanceof ProcessCircle) circle.atProgramEnd = () => this.dispose();
    circle.onRankLost((loss) => {
      const error = this.#inWorld(circle, loss);
      const lost = error instanceof RankLostError ? error.ranks : [];
      this.tell({ kind: 'lost', lost, why: messageOf(loss.cause ?? loss) });
    });
  }

  /** How the ranks meet and learn of losses. In a world that leaves ranks out it is a circle of the others, which numbers them anew. */
  get circle(): Circle {
    return this.#circle;
  }

  /** Whether this rank is left out: then nothing that it sends counts, until it has joined again (`rejoin`). */
  get out(): boolean {
    return this.#membership.out || this.circle.out;
  }

  /** The ranks that are left out, and the places that are empty, in ascending order. */
  get masked(): readonly number[] {
    return maskedIn(this.#membership);
  }

  /**
   * All ranks in this process: runs `program` once for each, and resolves with what they returned, by rank. When one
   * throws, the others see it lost, and the first error is thrown here once all have ended.
   */
  static async local<T>(options: LocalWorldOptions, program: (world: World) => Promise<T>): Promise<T[]> {
    requireMembers('options', options, knownLocally);
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
    requireMembers('options', options, knownToJoin);
    const place = findPlace(options);
    const device = options.device ?? place.device ?? 'cuda';
    if (device !== 'cuda' && device !== 'sim') throw new ArgumentError('device', device, "'cuda' or 'sim'");
    const { rank, ranks, places, rejoin } = place;
    const most = device === 'sim' ? (rejoin === undefined ? ranks : places) - rank : 1;
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
    return ranks.map(({ circle, topology, machine }) => {
      const { localRank } = topology;
      // The ranks that it meets may be in another process: while it waits for them, the machine must not give it up.
      const host = { ...hostIn(machine, localRank, options.fabric, true), ...nobodyHears };
      return new World(circle, machine.device(localRank), topology, host);
    });
  }

  static async #joinGpu(options: JoinWorldOptions): Promise<World> {
    const gpus = countGpus();
    const place = findPlace(options);
    const { rank, places, nodes, localRank, rejoin } = place;
    const ordinal = () => ordinalFor(rank, localRank, gpus);
    let device = rejoin === undefined ? null : CudaDevice.open(ordinal());
    const find = async (circle: Circle) => {
      const { uuid } = describeGpu(ordinal());
      const uuids = await circle.allGather(Buffer.from(uuid), 'choosing GPUs');
      requireOwnGpus(uuids.map((bytes) => Buffer.from(bytes).toString()));
      device ??= CudaDevice.open(ordinal());
      return findTopology(circle, device, place);
    };
    const outside = () => topologyOf(evenNodes(places, nodes ?? 1), rank);
    try {
      const { circle, topology } = await joinAndMeet(options, find, outside);
      return new World(circle, device!, topology, { ...unheard(ordinal(), options.fabric), alone: true });
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
    return numbersIn(this.#membership).map((number) => parts[number] ?? new Uint8Array(0));
  }

  /**
   * Allocates a window on every rank and maps those of this rank's node here. Every rank of the world calls it, with
   * the same size.
   * @throws where one rank cannot, on all ranks; nothing is left then.
   */
  async createWindow(bytes: number, purpose: string, fills: readonly Fill[] = []): Promise<SharedWindow> {
    requireText('purpose', purpose);
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
    const forget = () => {
      this.#proxies = this.#proxies.filter((other) => other !== proxy);
    };
    const proxy = new LastingProxy(this.#host.startProxy, options, forget);
    this.#proxies.push(proxy);
    const { circle } = this;
    try {
      if (!this.out) await proxy.begin(circle, numbersIn(this.#membership));
    } catch (error) {
      forget();
      throw this.#inWorld(circle, error);
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
    const { circle } = this;
    this.#wires ??= this.#host.findWires(circle, this.device).catch((error) => {
      this.#wires = null; // those that are left find them
      throw this.#inWorld(circle, error);
    });
    return this.#wires;
  }

  /**
   * Allocates a window on every rank in NVSHMEM's symmetric heap, which kernels reach by its own functions: there `bases` are all this rank's own
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

  /** The error, with ranks counted as this world does. A rank that is new, and has not met the others, has no number. */
  #inWorld(circle: Circle, error: unknown): unknown {
    if (!(error instanceof RankLostError)) return error;
    const { origins, rank: number } = circle;
    const state = { ...this.#membership, circle: origins, number };
    const ranks = error.ranks.map((of) => rankOf(state, of)).filter((rank) => rank !== undefined);
    ranks.sort((a, b) => a - b);
    return new RankLostError(ranks, error.operation, error.epoch, { cause: error.cause });
  }

  /** Throws where the world leaves ranks out. */
  requireWhole(): void {
    if (this.masked.length === 0) return;
    throw new HeddleError(
      'HEDDLE_WORLD_MASKED',
      `this world leaves out ranks ${this.masked.join(', ')}: only layers with onLoss: 'mask' can be made in it, and no weights move`,
    );
  }

  /**
   * Registers a layer: how it survives the loss of ranks, or null where it needs every rank. In a world that leaves ranks out, it does
   * so from its first round on. Call what it returns when the layer is gone.
   */
  async attach(layer: SurvivesLoss | null): Promise<() => void> {
    if (layer === null) this.requireWhole();
    else requireObject('layer', layer, 'what survives the loss of ranks');
    const key = Symbol('layer');
    this.#layers.set(key, layer);
    if (!this.out && this.masked.length > 0) await layer?.leaveOut(this.masked);
    return () => void this.#layers.delete(key);
  }

  /** Registers a state that ranks which rejoin take over from the others. Call what it returns when nobody needs it any more. */
  replicate(what: Replicated): () => void {
    requireObject('what', what, 'what ranks tell each other where some rejoin');
    this.#replicated.add(what);
    return () => this.#replicated.delete(what);
  }

  /**
   * Goes on without ranks that are lost, and without `ranks`, in the same world: layers stay, with their windows and captured
   * graphs, and leave those ranks out. Every rank that is left calls it, and one of `ranks` that still runs, which is told
   * that it is out. All layers must have been made with `onLoss: 'mask'`. docs/worlds.md has the protocol.
   * @throws RankMaskedError where this rank is left out.
   * @throws RendezvousError where the process that hosts the rendezvous is gone.
   */
  mask(ranks: readonly number[] = []): Promise<void> {
    requireArray('ranks', ranks, 'an array of ranks');
    for (const [i, rank] of ranks.entries()) requireInteger(`ranks[${i}]`, rank, 0, this.ranks - 1);
    this.#requireMaskable();
    return ranks.length > 0 ? this.#leaveOut(ranks) : this.#once(() => this.#goOn({}));
  }

  /** Leaves out ranks that may run: all meet first, so that what they have enqueued is done. Of no effect on those that are out. */
  async #leaveOut(ranks: readonly number[]): Promise<void> {
    // Calls that waited for the same change go on one after the other.
    while (this.#changing !== null) await this.#changing.catch(() => {});
    const leave = ranks.filter((rank) => !this.masked.includes(rank));
    if (leave.length > 0) await this.#once(() => this.#goOn({ leave }));
  }

  /**
   * Admits ranks that were left out, or that take empty places, and wait in `rejoin`; all layers stay. Every rank that takes part calls
   * it, at the same place between rounds, as often as it likes: in a world that leaves nobody out it costs nothing. Returns those that
   * came: none before proxies can begin anew everywhere, which they make ready when somebody waits.
   */
  async admit(): Promise<readonly number[]> {
    this.#requireMaskable();
    await this.#changing?.catch(() => {});
    if (this.out) throw new RankMaskedError(this.rank);
    if (this.masked.length === 0) return [];
    const { origins } = this.#membership;
    // Where a rank was lost meanwhile, it is left out first, as `synchronize` of a layer or `mask` does.
    const ready = this.#proxies.every(({ prepared }) => prepared);
    const heard = Uint8Array.of(Number(this.circle.outsiders > 0), Number(ready));
    const all = await this.allGather(heard, 'admitting').catch(lostIsNull);
    const said = all?.filter(({ length }) => length > 0);
    if (!said?.some(([waiting]) => waiting === 1)) return [];
    // Rounds go on meanwhile: only what needs all ranks is done while they wait.
    if (!ready) for (const proxy of this.#proxies) void proxy.prepare();
    if (said.some(([, prepared]) => prepared === 0)) return [];
    await this.#once(() => this.#goOn({ admit: true }));
    return joinedSince(origins, this.#membership);
  }

  /**
   * Waits, as a rank that is left out, until the others admit it (`admit`), however long that takes. Then it takes part in rounds
   * again, with the layers that it has, which must be those of the others. Where experts are placed, it has their placement.
   * @throws RankMaskedError where the others refuse it; the cause says why.
   * @throws RendezvousError where nobody is left who could admit it.
   */
  async rejoin(): Promise<void> {
    this.#requireMaskable();
    await this.#changing?.catch(() => {});
    if (!this.out) throw new HeddleError('HEDDLE_NOT_OUT', notOut(this.rank));
    await this.#once(() => this.#rejoin());
  }

  #requireMaskable(): void {
    if ([...this.#layers.values()].includes(null))
      throw new HeddleError(
        'HEDDLE_NO_MASKS',
        "a layer of this world needs every rank; create all of them with onLoss: 'mask', or start the world anew",
      );
  }

  /** Joins a change of the membership that is under way. */
  #once(change: () => Promise<void>): Promise<void> {
    this.#changing ??= change().finally(() => {
      this.#changing = null;
    });
    return this.#changing;
  }

  get #maskable(): SurvivesLoss[] {
    return [...this.#layers.values()].filter((layer) => layer !== null);
  }

  async #goOn(what: { readonly leave?: readonly number[]; readonly admit?: boolean }): Promise<void> {
    if (this.#membership.out) throw new RankMaskedError(this.rank);
    await this.device.settle();
    passing('mask', 'kernels ended');
    const counted = await Promise.all(this.#maskable.map((layer) => layer.count()));
    if (what.leave !== undefined) await this.barrier('mask').catch(lostIsNull);
    await this.#change({ kind: 'begin', brings: this.#brings(counted), ...what });
  }

  async #rejoin(): Promise<void> {
    this.#membership = { ...this.#membership, out: true };
    await this.device.settle();
    passing('rejoin', 'kernels ended');
    await Promise.all(this.#proxies.map((proxy) => proxy.prepare()));
    await this.#change({ kind: 'begin', brings: this.#brings(this.#maskable.map(() => 0)) });
  }

  #brings(counted: readonly number[]): Brought {
    const shapes = this.#maskable.map((layer) => layer.shape());
    const windows = [...this.#windows].map(({ purpose, window: { bytes } }) => [purpose, bytes]);
    return {
      counted,
      world: JSON.stringify([this.topology.members, shapes, this.#replicated.size]),
      windows: JSON.stringify(windows),
    };
  }

  /** Changes the membership together with the other ranks, as membership.ts says. */
  async #change(begin: Message): Promise<void> {
    let cause: unknown;
    for (let message: Message | null = begin; message !== null; ) {
      const [membership, action] = step(this.#membership, message);
      this.#membership = membership;
      try {
        message = await this.#carryOut(action, cause);
      } catch (error) {
        if (!(error instanceof RankLostError)) throw error;
        cause = error;
        message = { kind: action.kind === 'regroup' ? 'left out' : 'lost' };
      }
    }
  }

  async #carryOut(action: Action, cause: unknown): Promise<Message | null> {
    const { circle } = this;
    switch (action.kind) {
      case 'wait outside':
        return this.#enter(circle.rejoin());
      case 'regroup': {
        const { admit, accuse } = action;
        if (accuse !== null) circle.accuse(accuse.numbers, accuse.why);
        // The others wait for a rank as long as its kernels may still wait for one of them.
        const waits = this.#maskable.map(({ waitMs }) => waitMs);
        const patience = waits.length === 0 ? undefined : Math.max(...waits) + marginMs;
        return this.#enter(circle.regroup(patience, admit));
      }
      case 'meet': {
        const mine: Introduction = {
          ...action.standing,
          states: [...this.#maskable, ...this.#replicated].map((part) => part.state()),
          handles: [...this.#windows].map(({ window }) => Buffer.from(window.own.handle).toString('base64')),
        };
        this.#introduced = await this.#gather<Introduction>(mine, 'rejoining');
        return { kind: 'met', all: this.#introduced };
      }
      case 'fit':
        return this.#fit(action.stayed);
      case 'prepare':
        for (const layer of this.#maskable) await layer.leaveOut(action.masked);
        passing('mask', 'left out');
        try {
          for (const proxy of this.#proxies) await proxy.begin(circle, numbersIn(this.#membership));
        } catch (error) {
          // As when its proxy fails later: one that takes part is lost, and may come back. Its NIC perhaps fell with that of a neighbour.
          if (error instanceof RankLostError || this.#membership.out) throw error;
          await this.#abandon(`its proxy cannot begin: ${messageOf(error)}`);
          return { kind: 'lost' };
        }
        passing('mask', 'proxies begun');
        return { kind: 'prepared' };
      case 'agree':
        return { kind: 'agreed', all: await this.#gather(action.counted, 'mask') };
      case 'go on': {
        const { done, joined } = action;
        for (const [i, layer] of this.#maskable.entries()) layer.goOn(done[i]!);
        this.tell(joined.length > 0 ? { kind: 'joined', joined } : { kind: 'masked', masked: this.masked });
        return null;
      }
      case 'sit out':
        // Work that is enqueued all the same, such as a captured graph, writes nowhere.
        await Promise.all(this.#proxies.map((proxy) => proxy.pause()));
        for (const layer of this.#maskable) await layer.leaveOut([this.rank]);
        this.tell({ kind: 'masked', masked: [this.rank] });
        throw new RankMaskedError(this.rank, { cause });
      case 'withdraw':
        await this.#abandon(action.why);
        throw new RankMaskedError(this.rank, { cause: new Error(action.why) });
    }
  }

  /** Leaves the circle to the others, and waits until it has heard so. */
  async #abandon(why: string): Promise<void> {
    const heard = new Promise((resolve) => this.circle.onRankLost(resolve));
    this.circle.abandon(why);
    await heard;
  }

  async #enter(next: Promise<Circle>): Promise<Message> {
    this.#circle = await this.#meeting(this.circle, next, this.#host.meanwhile());
    this.#hear(this.#circle);
    // Messages that are on their way are of rounds that do not count, or of ranks that are out. They end with the network.
    await Promise.all(this.#proxies.map((proxy) => proxy.pause()));
    const { origins, rank } = this.#circle;
    return { kind: 'regrouped', circle: origins, number: rank };
  }

  async #gather<T>(mine: T, operation: string): Promise<T[]> {
    const { circle } = this;
    const said = circle.allGather(Buffer.from(JSON.stringify(mine)), operation);
    return (await this.#meeting(circle, said)).map((bytes) => JSON.parse(Buffer.from(bytes).toString()) as T);
  }

  /**
   * Maps windows of processes that have taken places, each where the place's window was: kernels hold the addresses. A new process so
   * maps those of all. No kernel runs, and none begins before all have met again. Then states are taken over.
   */
  async #fit(stayed: number | null): Promise<Message> {
    const all = this.#introduced;
    for (const [n, { map }] of [...this.#windows].entries())
      for (const [number, { rank, handles }] of all.entries()) {
        try {
          await map(rank, Buffer.from(handles[n]!, 'base64'));
        } catch (error) {
          return { kind: 'fitted', misfit: { number, why: messageOf(error) } };
        }
      }
    passing('rejoin', 'mapped');
    const byRank = numbersIn(this.#membership).map((number) => all[number]?.states);
    for (const [i, part] of [...this.#maskable, ...this.#replicated].entries())
      await part.takeOver(
        byRank.map((states) => states?.[i]),
        stayed,
      );
    passing('rejoin', 'met');
    return { kind: 'fitted', misfit: null };
  }

  /** This world, or that of the process that has taken its rank's place. */
  get #latest(): World {
    return this.#next ?? this;
  }

  /**
   * For checks alone: the world of a new process in a simulated rank's place, which has nothing of this one's memory. Another rank's is
   * the caller's to dispose of.
   * @internal
   */
  async startAnew(rank = this.rank, machine?: SimMachine): Promise<World> {
    const { ranks, topology } = this;
    const circle = this.circle as LocalCircle;
    const enter = (leaving: AbortSignal) => circle.waitOutside(leaving);
    const outside = new OutsideCircle(rank, ranks, {}, enter);
    if (machine !== undefined) {
      const { members } = topology;
      const nodeOf = [...Array(ranks).keys()].map((of) => members.findIndex((some) => some.includes(of)));
      const there = topologyOf(nodeOf, rank);
      return new World(outside, machine.device(rank), there, hostIn(machine, rank));
    }
    await Promise.all(this.#proxies.map((proxy) => proxy.stop()));
    this.#next = new World(outside, this.device, topology, this.#host, this.#events);
    return this.#next;
  }

  /** Frees the device and leaves the circle. */
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
  /** It waits for the host programs of all ranks, and then knows what they knew. `place`: the same for all of them. */
  meets(place: object): () => void;
  /** It has ended. */
  left(): void;
  readonly startProxy: ProxyStarter;
  findWires(circle: Circle, device: Device): Promise<Wires>;
  /** The way to ranks of other nodes. */
  network(): FabricOptions;
  /** Whether the rank is the only one of its process. */
  readonly alone: boolean;
}

/** Passes over the loss of a rank. */
function lostIsNull(error: unknown): null {
  if (error instanceof RankLostError) return null;
  throw error;
}

const nobodyHears = { meanwhile: () => () => {}, meets: () => () => {} };

/** The host of a rank with a GPU: its proxy takes the NICs that are nearest to that. */
function unheard(gpu: number, fabric: FabricOptions = {}): Host {
  const near = (): FabricOptions => ({ near: describeGpu(gpu).pciBusId, ...fabric });
  return {
    ...nobodyHears,
    left: () => {},
    startProxy: (circle, options) => inThread(near())(circle, options),
    findWires: (circle, device) => findWires(circle, device, near()),
    network: near,
    alone: false,
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
