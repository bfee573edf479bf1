/** The simulated machine as its users see it. */

import { requireFunction, requireInteger, requireObject } from '../../base/errors.js';
import type { Network } from '../index.js';
import type { TraceEntry } from './blocks.js';
import { isPtx, type KernelModule, type Mode } from './compiled.js';
import { Clock } from './detector/clock.js';
import type { Finding, StaleRead } from './detector/detector.js';
import { SimDevice } from './device.js';
import { Engine } from './engine.js';
import type { HostProgram } from './host-threads.js';
import { AddressSpace, type Room, type SimBuffer } from './memory.js';
import { asTheyAre, type FlushedNetwork, type HostSubstitute, Nic } from './network.js';
import type { EngineOptions } from './options.js';
import { assuming } from './ptx/assume.js';
import type { HostSite } from './sites.js';

export interface MachineOptions extends EngineOptions {
  /** Sees every kernel that is loaded, and says what runs in its place: how mutants come in. */
  readonly substitute?: (module: KernelModule) => KernelModule;
  /** Says what threads of hosts reach in place of mapped memory, and of the network. */
  readonly substituteHost?: HostSubstitute;
}

export interface MachineStatistics {
  readonly steps: number;
  readonly launches: number;
  /** How often all that waited in vain was told that its time is over. */
  readonly timeLimits: number;
}

/** The values that hosts have brought to a meeting, and what that is together, once somebody has asked. */
interface HostMeeting {
  readonly brought: Clock[];
  together: Clock | null;
}

interface HostMeetings {
  /** How often each rank's host program has met the others there. */
  readonly met: Map<number, number>;
  readonly all: HostMeeting[];
}

let machines = 0;

/**
 * A machine of simulated GPUs in this process, which share one node. Deterministic: the same options, kernels and
 * host programs give the same run, as long as the host programs await nothing but the machine and each other.
 */
export class SimMachine {
  readonly ranks: number;
  readonly mode: Mode;
  readonly seed: string;
  readonly #devices: readonly SimDevice[];
  /** By the place where they are held. */
  readonly #meetings = new Map<object, HostMeetings>();
  readonly #engine: Engine;
  readonly #addresses = new AddressSpace();
  /** NICs of its network, by the memory that others reach through them. */
  readonly #nics = new Map<SimBuffer, Nic>();
  readonly #host: HostSubstitute;

  private constructor(options: MachineOptions) {
    const substitute = options.substitute ?? ((module: KernelModule) => module);
    requireFunction('substitute', substitute);
    const loaded = (module: KernelModule): KernelModule =>
      substitute(isPtx(module) ? assuming(module, options.assume ?? []) : module);
    const engine = new Engine(options);
    const { ranks, mode, seed } = engine;
    this.ranks = ranks;
    this.mode = mode;
    this.seed = seed;
    this.#engine = engine;
    this.#host = options.substituteHost ?? asTheyAre;
    const addresses = this.#addresses;
    const own = { machine: ++machines, managed: new Map() };
    const shared = { ...own, engine, addresses, substitute: loaded, host: this.#host };
    this.#devices = Array.from({ length: ranks }, (_, rank) => new SimDevice(rank, shared));
  }

  static create(options: MachineOptions): SimMachine {
    requireObject('options', options);
    return new SimMachine(options);
  }

  device(rank: number): SimDevice {
    return this.#devices[requireInteger('rank', rank, 0, this.ranks - 1)]!;
  }

  /** The findings of checked mode so far. */
  get findings(): readonly Finding[] {
    const { log, detector } = this.#engine;
    return [...log.findings, ...(detector?.findings ?? [])];
  }

  /** Loads of checked mode that read something older than what was there: they may explain a wrong result. */
  get staleReads(): readonly StaleRead[] {
    return this.#engine.detector?.staleReads ?? [];
  }

  get statistics(): MachineStatistics {
    const { steps, blocks, timeLimits } = this.#engine;
    return { steps, launches: blocks.trace.length, timeLimits };
  }

  /** Where threads of hosts have done something in mapped memory, or at the network: checked mode only. */
  get hostSites(): readonly HostSite[] {
    return this.#engine.sites.ofThreads;
  }

  /** Every launch that has ended: when it started and ended, in steps of the machine. */
  get trace(): readonly TraceEntry[] {
    return this.#engine.blocks.trace;
  }

  /**
   * Announces that a host program of `rank` runs; `hostLeft` ends it. While some announced program awaits neither a
   * stream nor a `hostWaiting`, the machine holds its judgement about waits that nobody seems to end.
   */
  hostEntered(rank: number): void {
    this.#engine.hosts.entered(this.#known(rank));
  }

  hostLeft(rank: number): void {
    this.#engine.hosts.left(this.#known(rank));
    this.#engine.work();
  }

  /**
   * The host program of `rank` waits for another rank's host program (a barrier between hosts, an exchange). Call
   * the returned function when it goes on.
   */
  hostWaiting(rank: number): () => void {
    const end = this.#engine.hosts.waiting(this.#known(rank));
    this.#engine.work();
    return end;
  }

  /**
   * The host programs of all ranks meet: each waits for the others, and then knows what they knew. At one place the n-th
   * meeting of one rank is the n-th of all. Call the returned function when `rank` goes on.
   */
  hostMeets(rank: number, place: object): () => void {
    const { detector } = this.#engine;
    const goOn = this.hostWaiting(rank);
    if (detector === null) return goOn;
    const { met, all } = this.#meetings.get(place) ?? { met: new Map<number, number>(), all: [] };
    this.#meetings.set(place, { met, all });
    const nth = met.get(rank) ?? 0;
    met.set(rank, nth + 1);
    const meeting = all[nth] ?? { brought: [], together: null };
    all[nth] = meeting;
    meeting.brought.push(detector.hostKnows(rank));
    meeting.together = null;
    return () => {
      meeting.together ??= Clock.joinAll(meeting.brought);
      detector.hostHeard(rank, meeting.together);
      goOn();
    };
  }

  /** Has memory of GPUs lie where other processes see it too. Before anything is allocated. */
  moveInto(room: Room): void {
    this.#addresses.moveInto(room);
  }

  /** Wakes threads that wait for a change of memory: processes that see it too may have made one. */
  look(): void {
    for (const buffer of this.#addresses.awaited) this.#engine.wake(buffer, 0, buffer.bytes);
  }

  /** Asked before waits end as hopeless: whether hosts that the machine does not see, such as other processes, may still act. */
  hostsElsewhere(mayAct: () => boolean): void {
    this.#engine.hosts.mayAct = mayAct;
  }

  /** For a host that waits for what the machine knows nothing of, such as a file: nothing in the machine moves meanwhile. */
  standStill<T>(until: Promise<T>): Promise<T> {
    return this.#engine.standStill(until);
  }

  /**
   * Runs a thread of the host of `rank` inside the machine: the schedule says when it takes a step, and the race detector
   * sees what it does in mapped memory. The function that this returns ends it.
   */
  startHost(rank: number, program: HostProgram): () => void {
    return this.#engine.startHost(this.#known(rank), program);
  }

  /**
   * A network between mapped memories, one of each rank, by rank; this is the way into it of `rank`. All ranks open theirs
   * before one writes. Places in a wire count from its front. Where not all take part, peers are counted among those that do: `own` is
   * this rank's number there.
   */
  openNetwork(
    rank: number,
    memories: readonly number[],
    own = rank,
  ): {
    readonly network: Network;
    /** For those whose memory is the GPU's: kernels see what has come only behind a flush. */
    readonly flush: Pick<FlushedNetwork, 'flush'> | null;
    close(): void;
  } {
    const buffers = memories.map((address, r) => this.#addresses.find(`memories[${r}]`, address, 0).buffer);
    requireInteger('own', own, 0, memories.length - 1);
    const at = { rank: this.#known(rank), memories: buffers, own };
    const nic = new Nic({ engine: this.#engine, all: this.#nics, ...at });
    const network = this.#host.network(nic);
    return { network, flush: nic.needsFlush ? network : null, close: () => nic.close() };
  }

  /**
   * A simulated SIGKILL: the rank's launches stop where they are, what its host awaits is rejected, its memory stays
   * readable for the others. Now, or once the machine has made `atStep` steps.
   */
  kill(rank: number, atStep = 0): void {
    this.#engine.kill(this.#known(rank), atStep);
  }

  /**
   * Kills several ranks at once, such as a node's, when together they have made so many more steps of which others could tell:
   * launches that begin, writes of theirs that have come, and tags that they hear.
   */
  killAfter(ranks: readonly number[], steps: number): void {
    this.#engine.killAfter(
      ranks.map((rank) => this.#known(rank)),
      requireInteger('steps', steps, 0, Number.MAX_SAFE_INTEGER),
    );
  }

  #known(rank: number): number {
    return requireInteger('rank', rank, 0, this.ranks - 1);
  }
}
