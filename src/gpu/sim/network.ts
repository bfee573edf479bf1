/**
 * The network of the simulated machine, as proxies see it. The NIC of a proxy carries what the proxy posts (flights.ts). The tag of a write
 * comes behind the last of its own pieces and says nothing about others. The race detector is told who posts a write and who hears of its tag: what the
 * write does is ordered by those two alone.
 */

import { ArgumentError, requireInteger } from '../../base/errors.js';
import { type HostView, type Network, type RemoteWrite, requireWithin } from '../index.js';
import type { Engine } from './engine.js';
import { chanceOf, fly } from './flights.js';
import type { SimHostView } from './mapped.js';
import type { SimBuffer } from './memory.js';
import type { SiteRegistry } from './sites.js';

/** The most writes that a NIC has under way. */
const room = 64;

/** The writes that have come, and were not heard of. */
interface Come {
  readonly number: number;
  readonly tag: number;
}

export class Nic implements Network {
  /** Writes that have come, whose tags were not given yet. */
  readonly #come: Come[] = [];
  /** Writes that were heard of, and are not flushed yet. */
  readonly #unflushed: number[] = [];
  readonly #room: number;
  #underway = 0;
  readonly #engine: Engine;
  readonly #sites: SiteRegistry;
  /** The NICs of the machine, by the memory that others reach through them. */
  readonly #all: Map<SimBuffer, Nic>;
  readonly #rank: number;
  readonly #memories: readonly SimBuffer[];
  readonly #own: SimBuffer;

  /** `memories`: of all that reach each other; `own`: which of them is this rank's. */
  constructor(
    engine: Engine,
    sites: SiteRegistry,
    all: Map<SimBuffer, Nic>,
    rank: number,
    memories: readonly SimBuffer[],
    own: number,
  ) {
    this.#engine = engine;
    this.#sites = sites;
    this.#all = all;
    this.#rank = rank;
    this.#memories = memories;
    this.#own = memories[own]!;
    all.set(this.#own, this);
    // The room is drawn small at times, so that every program meets a network that takes no more writes.
    const random = chanceOf(engine);
    this.#room = random === null ? room : 2 ** random.below(1 + Math.log2(room));
  }

  /** Whether kernels see what has come only behind a flush. */
  get needsFlush(): boolean {
    return this.#own.placement === 'gpu';
  }

  /** Places count from the front of either memory. */
  write({ peer, from: fromAt, to: toAt, bytes, tag }: Readonly<RemoteWrite>): boolean {
    const engine = this.#engine;
    const { detector } = engine;
    const [from, to] = [this.#own, this.#memories[peer]];
    if (to === undefined || to === from) throw new ArgumentError('peer', peer, 'another rank');
    requireWithin(fromAt, bytes, from.bytes - from.front);
    requireWithin(toAt, bytes, to.bytes - to.front);
    requireInteger('tag', tag, 0, 2 ** 31 - 1);
    if (this.#underway === this.#room) return false;
    this.#underway++;
    const number = engine.newNumber();
    // One that was opened later for the same memory takes nothing that was meant for this one.
    const there = this.#all.get(to);
    const site = detector === null ? 0 : this.#sites.ofHost(this.write, 'post', engine.hostProgram);
    detector?.networkPosted(number, engine.hostThread(this.#rank));
    fly(engine, {
      ...{ number, rank: this.#rank, bytes, site },
      ...{ from, fromAt: from.front + fromAt, to, toAt: to.front + toAt },
      dropped: () => there === undefined || this.#all.get(to) !== there || this.#all.get(from) !== this,
      landed: () => {
        this.#underway--;
        there!.#come.push({ number, tag });
        engine.didNoticeable(this.#rank);
      },
    });
    return true;
  }

  /** `orders`: whoever hears the tag, and flushes where that is needed, knows what the write did. Without, it shows what becomes of programs then. */
  arrived(orders = true): number {
    const write = this.#come.shift();
    if (write === undefined) return -1;
    const engine = this.#engine;
    engine.didNoticeable(this.#rank);
    if (engine.detector !== null) {
      this.#sites.ofHost(this.arrived, 'hear', engine.hostProgram);
      if (orders) {
        this.#unflushed.push(write.number);
        if (!this.needsFlush) this.#learn();
      }
    }
    return write.tag;
  }

  /** Brings to the GPU's memory, for its kernels to see, all that was heard of. */
  flush(): void {
    this.#sites.ofHost(this.flush, 'flush', this.#engine.hostProgram);
    this.#learn();
  }

  #learn(): void {
    const engine = this.#engine;
    for (const number of this.#unflushed.splice(0))
      engine.detector?.networkArrived(number, engine.hostThread(this.#rank));
  }

  /** Writes that are under way from here or to here are dropped. */
  close(): void {
    if (this.#all.get(this.#own) === this) this.#all.delete(this.#own);
  }
}

/** A network whose writes may need a flush once they were heard of. */
export interface FlushedNetwork extends Network {
  flush(): void;
}

/** By these mutants come into what threads of hosts do: stand-ins of a host's way to mapped memory, and of its way into the network. */
export interface HostSubstitute {
  memory(own: SimHostView): HostView;
  network(own: Nic): FlushedNetwork;
}

export const asTheyAre: HostSubstitute = { memory: (own) => own, network: (own) => own };
