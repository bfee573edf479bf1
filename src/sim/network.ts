/**
 * The network of the simulated machine. What a proxy posts its NIC carries: whole in fast mode; in checked mode in pieces,
 * in any order and late, and a piece reads its source only when it lands. The tag of a write comes behind the last of its
 * own pieces and says nothing about others. The race detector is told who posts a write and who hears of its tag: what the
 * write does is ordered by those two alone.
 */
import { type Network, requireWithin } from '../device/index.js';
import { ArgumentError, requireInteger } from '../errors/index.js';
import type { SiteId } from './detector/detector.js';
import type { Engine } from './engine.js';
import type { SimBuffer } from './memory.js';
import type { Random } from './random.js';
import { Agent, type Schedule } from './schedule.js';
import type { SiteRegistry } from './sites.js';

/** The most writes that a NIC has under way. */
const room = 64;
/** Pieces are of whole units. */
const unit = 16;
/** A late piece lets so many turns pass: 2 to the power of less than this. */
const latest = 8;

interface Machine {
  readonly engine: Engine;
  readonly sites: SiteRegistry;
}

/** The NICs of a machine, by the memory that others reach through them. */
export class Nics {
  readonly #all = new Map<SimBuffer, Nic>();
  readonly #machine: Machine;

  constructor(machine: Machine) {
    this.#machine = machine;
  }

  /** `memories`: of all ranks, this one's included. */
  open(rank: number, memories: readonly SimBuffer[]): Nic {
    const nic = new Nic(this.#machine, this.#all, rank, memories);
    this.#all.set(memories[rank]!, nic);
    return nic;
  }
}

interface Write {
  readonly number: number;
  readonly tag: number;
  readonly from: SimBuffer;
  readonly fromAt: number;
  readonly to: SimBuffer;
  readonly toAt: number;
  readonly site: SiteId;
  /** Pieces that have not landed. */
  left: number;
}

interface Span {
  readonly at: number;
  readonly bytes: number;
}

export class Nic implements Network {
  /** Writes that have come, whose tags were not given yet. */
  readonly #come: Write[] = [];
  /** Null where nothing is random. */
  readonly #random: Random | null;
  readonly #room: number;
  #underway = 0;
  readonly #machine: Machine;
  readonly #all: Map<SimBuffer, Nic>;
  readonly #rank: number;
  readonly #memories: readonly SimBuffer[];

  constructor(machine: Machine, all: Map<SimBuffer, Nic>, rank: number, memories: readonly SimBuffer[]) {
    this.#machine = machine;
    this.#all = all;
    this.#rank = rank;
    this.#memories = memories;
    const { mode, random } = machine.engine;
    this.#random = mode === 'checked' ? random : null;
    // With little room, every program meets a network that takes no more.
    this.#room = this.#random === null ? room : 2 ** random.below(1 + Math.log2(room));
  }

  write(peer: number, fromAt: number, toAt: number, bytes: number, tag: number): boolean {
    const { engine, sites } = this.#machine;
    const { detector, schedule } = engine;
    const [from, to] = [this.#memories[this.#rank]!, this.#memories[peer]];
    if (to === undefined || to === from) throw new ArgumentError('peer', peer, 'another rank');
    requireWithin(fromAt, bytes, from.bytes);
    requireWithin(toAt, bytes, to.bytes);
    requireInteger('tag', tag, 0, 2 ** 31 - 1);
    if (this.#underway === this.#room) return false;
    this.#underway++;
    const number = engine.newNumber();
    const site = detector === null ? 0 : sites.ofHost(this.write, 'post', engine.hostProgram);
    detector?.networkPosted(number, engine.hostThread(this.#rank));
    const spans = cut(bytes, this.#random);
    const write: Write = { number, tag, from, fromAt, to, toAt, site, left: spans.length };
    for (const span of spans) {
      const key = `rank ${this.#rank} write ${number} + ${span.at}`;
      const late = this.#random === null || this.#random.below(2) === 0 ? 0 : 2 ** this.#random.below(latest);
      schedule.add(new Piece(this.#rank, key, late, schedule, () => this.#land(write, span)));
    }
    return true;
  }

  /** `orders`: whoever hears the tag knows what the write did. Without, it shows what becomes of programs then. */
  arrived(orders = true): number {
    const write = this.#come.shift();
    if (write === undefined) return -1;
    const { engine, sites } = this.#machine;
    engine.didNoticeable(this.#rank);
    if (engine.detector !== null) {
      sites.ofHost(this.arrived, 'hear', engine.hostProgram);
      if (orders) engine.detector.networkArrived(write.number, engine.hostThread(this.#rank));
    }
    return write.tag;
  }

  /** What is under way from here or to here is dropped. */
  close(): void {
    this.#all.delete(this.#memories[this.#rank]!);
  }

  #land(write: Write, { at, bytes }: Span): void {
    const { engine } = this.#machine;
    const { from, to, number, site } = write;
    const [fromAt, toAt] = [write.fromAt + at, write.toAt + at];
    const there = this.#all.get(to);
    if (there === undefined || this.#all.get(from) !== this) return;
    if (from.freed || to.freed) {
      const which = from.freed ? 'from' : 'to';
      engine.log.add({
        kind: 'failure',
        message: `a write ${which} '${(from.freed ? from : to).purpose}' is under way, which was freed: close the network first`,
      });
      return;
    }
    engine.detector?.networkMoved(
      number,
      { buffer: from, offset: fromAt },
      { buffer: to, offset: toAt },
      bytes,
      site,
    );
    to.u8.set(from.u8.subarray(fromAt, fromAt + bytes), toAt);
    if (bytes > 0 && to.waiters !== 0) engine.wake(to, toAt, bytes);
    if (--write.left > 0) return;
    this.#underway--;
    there.#come.push(write);
    engine.didNoticeable(this.#rank);
  }
}

/** A part of a write on its way. */
class Piece extends Agent {
  #turns: number;
  readonly #schedule: Schedule;
  readonly #land: () => void;

  constructor(
    readonly rank: number,
    readonly key: string,
    turns: number,
    schedule: Schedule,
    land: () => void,
  ) {
    super();
    this.#turns = turns;
    this.#schedule = schedule;
    this.#land = land;
  }

  run(): void {
    if (this.#turns-- > 0) this.#schedule.add(this);
    else this.#land();
  }
}

/** The whole, or two pieces. */
function cut(bytes: number, random: Random | null): Span[] {
  const first = random === null ? 0 : unit * random.below(Math.max(1, bytes / unit));
  return first === 0
    ? [{ at: 0, bytes }]
    : [
        { at: 0, bytes: first },
        { at: first, bytes: bytes - first },
      ];
}
