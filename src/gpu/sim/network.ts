/**
 * The network of the simulated machine, as proxies see it. The NIC of a proxy carries what the proxy posts (flights.ts). The tag of a write
 * comes behind the last of its own pieces and says nothing about others. The race detector is told who posts a write and who hears of its tag: what the
 * write does is ordered by those two alone.
 */

import { ArgumentError, requireInteger } from '../../base/errors.js';
import { type HostView, type Network, type RemoteWrite, requireWithin } from '../index.js';
import type { Engine } from './engine.js';
import { chanceOf, deliver } from './flights.js';
import type { SimHostView } from './mapped.js';
import type { SimBuffer } from './memory.js';

/** The most writes that a NIC has under way. */
const room = 64;

/** The writes that have come, and were not heard of. */
interface Come {
  readonly number: number;
  readonly tag: number;
}

interface Parts {
  readonly engine: Engine;
  /** The NICs of the machine, by the memory that others reach through them. */
  readonly all: Map<SimBuffer, Nic>;
  readonly rank: number;
  /** Memories that reach each other; `own` is the number of this rank's. */
  readonly memories: readonly SimBuffer[];
  readonly own: number;
}

export class Nic implements Network {
  /** Writes that have come, whose tags were not given yet. */
  readonly #come: Come[] = [];
  /** Writes that were heard of, and are not flushed yet. */
  readonly #unflushed: number[] = [];
  readonly #room: number;
  #underway = 0;
  readonly #of: Parts;
  readonly #own: SimBuffer;

  constructor(of: Parts) {
    this.#of = of;
    this.#own = of.memories[of.own]!;
    of.all.set(this.#own, this);
    // The room is drawn small at times, so that every program meets a network that takes no more writes.
    const random = chanceOf(of.engine);
    this.#room = random === null ? room : 2 ** random.below(1 + Math.log2(room));
  }

  /** Whether kernels see what has come only behind a flush. */
  get needsFlush(): boolean {
    return this.#own.side === 'gpu';
  }

  /** Places count from the front of either memory. */
  write({ peer, from: fromAt, to: toAt, bytes, tag }: Readonly<RemoteWrite>): boolean {
    const engine = this.#of.engine;
    const { detector } = engine;
    const [from, to] = [this.#own, this.#of.memories[peer]];
    if (to === undefined || to === from) throw new ArgumentError('peer', peer, 'another rank');
    requireWithin(fromAt, bytes, from.bytes - from.front);
    requireWithin(toAt, bytes, to.bytes - to.front);
    requireInteger('tag', tag, 0, 2 ** 31 - 1);
    if (this.#underway === this.#room) return false;
    this.#underway++;
    const number = engine.newNumber();
    // One that was opened later for the same memory takes nothing that was meant for this one.
    const there = this.#of.all.get(to);
    const site = detector === null ? 0 : engine.sites.ofHost(this.write, 'post', engine.hostProgram);
    detector?.networkPosted(number, engine.hostThread(this.#of.rank));
    deliver(engine, {
      ...{ number, rank: this.#of.rank, bytes, site },
      from: { buffer: from, offset: from.front + fromAt },
      to: { buffer: to, offset: to.front + toAt },
      dropped: () => there === undefined || this.#of.all.get(to) !== there || this.#of.all.get(from) !== this,
      landed: () => {
        this.#underway--;
        there!.#come.push({ number, tag });
        engine.didNoticeable(this.#of.rank);
      },
    });
    return true;
  }

  /** `orders`: whoever hears the tag, and flushes where that is needed, knows what the write did. Without, it shows what becomes of programs then. */
  arrived(orders = true): number {
    const write = this.#come.shift();
    if (write === undefined) return -1;
    const engine = this.#of.engine;
    engine.didNoticeable(this.#of.rank);
    if (engine.detector !== null) {
      engine.sites.ofHost(this.arrived, 'hear', engine.hostProgram);
      if (orders) {
        this.#unflushed.push(write.number);
        if (!this.needsFlush) this.#learn();
      }
    }
    return write.tag;
  }

  /** Brings to the GPU's memory, for its kernels to see, all that was heard of. */
  flush(): void {
    const { sites, hostProgram } = this.#of.engine;
    sites.ofHost(this.flush, 'flush', hostProgram);
    this.#learn();
  }

  #learn(): void {
    const engine = this.#of.engine;
    for (const number of this.#unflushed.splice(0))
      engine.detector?.networkArrived(number, engine.hostThread(this.#of.rank));
  }

  /** Writes that are under way from here or to here are dropped. */
  close(): void {
    if (this.#of.all.get(this.#own) === this) this.#of.all.delete(this.#own);
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
