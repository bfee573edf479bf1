/**
 * Bytes on their way from one memory to another, beside whoever sent them: whole in fast mode; in checked mode in pieces, in
 * any order and late, and a piece reads its source only when it lands.
 */
import type { Mode } from './compiled.js';
import type { SiteId } from './detector/detector.js';
import type { Detector } from './detector/race-detector.js';
import type { FindingLog } from './findings.js';
import type { SimBuffer } from './memory.js';
import { cut, move, type Posted, pieceOf } from './posted.js';
import type { Random } from './random.js';
import { Agent, type Schedule } from './schedule.js';

/** A late write lets so many turns pass: 2 to the power of less than this. */
const latest = 8;

/** The services of the machine that networks need. */
export interface NetworkServices {
  readonly mode: Mode;
  readonly random: Random;
  readonly schedule: Schedule;
  readonly log: FindingLog;
  /** Null in fast mode. */
  readonly detector: Detector | null;
  /** Unique in the run. */
  newNumber(): number;
  /** Bytes of a buffer have changed at which parked threads look. */
  wake(buffer: SimBuffer, offset: number, bytes: number): void;
}

export interface Flight extends Posted {
  /** The detector knows what it does by this number. */
  readonly number: number;
  readonly rank: number;
  readonly site: SiteId;
  /** Whether it is not to land any more. */
  dropped(): boolean;
  landed(): void;
}

export function deliver(machine: NetworkServices, flight: Flight): void {
  const random = chanceOf(machine);
  const pieces = random === null ? [{ at: 0, bytes: flight.bytes }] : cut(flight.bytes, random);
  let left = pieces.length;
  for (const { at, bytes } of pieces) {
    later(machine, flight.rank, () => {
      if (flight.dropped() || !land(machine, flight, pieceOf(flight, at, bytes))) return;
      if (--left === 0) flight.landed();
    });
  }
}

/** Does something that a network does, when the schedule gives it its turn, or some turns after that. */
export function later(machine: NetworkServices, rank: number, run: () => void): void {
  const random = chanceOf(machine);
  const late = random === null || random.below(2) === 0 ? 0 : 2 ** random.below(latest);
  machine.schedule.add(new Late(rank, late, machine.schedule, run));
}

/** The choices that decide how late; null where nothing is. */
export const chanceOf = ({ mode, random }: NetworkServices): Random | null =>
  mode === 'checked' ? random : null;

/** False where memory is no more: such a write never ends. */
function land(machine: NetworkServices, { number, site }: Flight, piece: Posted): boolean {
  const { from, to, bytes } = piece;
  if (isFreed(machine, 'from', from.buffer) || isFreed(machine, 'to', to.buffer)) return false;
  machine.detector?.networkMoved(number, from, to, bytes, site);
  move(piece);
  if (bytes > 0 && to.buffer.waiters !== 0) machine.wake(to.buffer, to.offset, bytes);
  return true;
}

/** Whether the memory of what is under way is no more, which is then reported. */
export function isFreed(
  { log }: NetworkServices,
  which: 'from' | 'to',
  { freed, purpose }: SimBuffer,
): boolean {
  if (freed) {
    const message = `a write ${which} '${purpose}' is under way, which was freed: close the network first`;
    log.add({ kind: 'failure', message });
  }
  return freed;
}

class Late extends Agent {
  #turns: number;
  readonly #schedule: Schedule;
  readonly #run: () => void;

  constructor(
    readonly rank: number,
    turns: number,
    schedule: Schedule,
    run: () => void,
  ) {
    super();
    this.#turns = turns;
    this.#schedule = schedule;
    this.#run = run;
  }

  run(): void {
    if (this.#turns-- > 0) this.#schedule.add(this);
    else this.#run();
  }
}
