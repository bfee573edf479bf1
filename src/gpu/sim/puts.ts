/**
 * Messages that kernels send over a network themselves, as NVSHMEM has it: bytes that travel beside the kernel and may still be read
 * when it has ended, and signals, which come behind what the rank has sent there before. A thread that acquires a signal knows of all
 * that, and that sources are free; nothing else says so.
 */
import type { StatementAccess } from './compiled.js';
import { type Issuer, mayCopy } from './copies.js';
import { deliver, isFreed, later, type NetworkServices } from './flights.js';
import type { ByteAt, SimBuffer } from './memory.js';
import { move, type Posted } from './posted.js';

/** Bytes, or a signal. */
interface Sent {
  readonly number: number;
  readonly from: number;
  readonly to: number;
  landed: boolean;
}

/** A signal that waits for earlier puts before it is sent. */
interface Waiting {
  readonly behind: readonly Sent[];
  go(): void;
}

export class Puts {
  readonly #sent: Sent[] = [];
  #waiting: Waiting[] = [];
  readonly #machine: NetworkServices;

  constructor(machine: NetworkServices) {
    this.#machine = machine;
  }

  put(by: Issuer, copy: Posted, site: number): void {
    const machine = this.#machine;
    const { detector } = machine;
    const { launch } = by.block;
    if (detector !== null && !mayCopy(by, machine.log, copy, site, 1)) return;
    if (detector === null) {
      move(copy);
      return;
    }
    const put = this.#send(by, copy.to.buffer);
    deliver(machine, {
      ...{ ...copy, number: put.number, rank: by.rank, site: launch.firstSite + site },
      dropped: () => false,
      landed: () => this.#landed(put),
    });
  }

  signal(by: Issuer, access: StatementAccess, place: ByteAt, value: bigint): void {
    const machine = this.#machine;
    const { buffer: to, offset: at } = place;
    const { detector } = machine;
    const change = (): void => {
      const adds = access.kind === 'update';
      to.u64[at >>> 3] = adds ? to.u64[at >>> 3]! + value : value;
      if (to.waiters !== 0) machine.wake(to, at, access.bytes);
    };
    if (detector === null) {
      change();
      return;
    }
    if (!by.mayAccess(access, to, at)) return;
    const behind = access.order === 'relaxed' ? [] : this.#sentBefore(by, to);
    const signal = this.#send(by, to);
    const site = by.block.launch.firstSite + access.site;
    const go = () =>
      later(machine, by.rank, () => {
        if (isFreed(machine, 'to', to)) return;
        const numbers = behind.map(({ number }) => number);
        detector.networkSignalled(signal.number, numbers, access, site, place);
        change();
        this.#landed(signal);
      });
    this.#waiting.push({ behind, go });
    this.#letGo();
  }

  #send(by: Issuer, to: SimBuffer): Sent {
    const machine = this.#machine;
    const sent = { number: machine.newNumber(), from: by.rank, to: to.rank, landed: false };
    this.#sent.push(sent);
    machine.detector?.networkPosted(sent.number, by.id);
    return sent;
  }

  /** The messages that the thread's rank has sent there, as far as the thread knows of them. */
  #sentBefore(by: Issuer, to: SimBuffer): Sent[] {
    const { detector } = this.#machine;
    return this.#sent.filter(
      (sent) => sent.from === by.rank && sent.to === to.rank && detector?.knowsPosted(by.id, sent.number),
    );
  }

  #landed(sent: Sent): void {
    sent.landed = true;
    this.#letGo();
  }

  #letGo(): void {
    const due = this.#waiting.filter(({ behind }) => behind.every(({ landed }) => landed));
    this.#waiting = this.#waiting.filter((one) => !due.includes(one));
    for (const { go } of due) go();
  }
}
