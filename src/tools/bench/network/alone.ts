/**
 * The writes of a layer's proxies, over and over, and nothing else: no kernels, no headers, no signals. It is a proxy itself, so
 * that processes, threads and engines are arranged as theirs are. A phase ends for a rank when all that it gets has come.
 */
import type { HostView, Network, ProxyParts, ProxyProgram, RemoteWrite } from '../../../gpu/index.js';
import { field, layout, section } from '../../../lang/index.js';
import type { Message } from './sent.js';

/** One phase of a round, on one rank. */
export interface Exchanged {
  readonly leave: readonly Message[];
  /** How many messages of other ranks come. */
  readonly come: number;
}

/** The plan of all phases, as plain data that can be sent to a thread. */
export interface AloneData {
  /** The phases of each round; the rounds are used in turn. */
  readonly rounds: readonly (readonly Exchanged[])[];
  /** Where in the memory `control` is. */
  readonly control: number;
}

/** By what the host asks: the question's number last, the answer's likewise. */
export const control = layout('control of a network alone', {
  asked: field('u32', 1),
  /** How many rounds are timed, and a bit for each phase that they have. */
  rounds: field('u32', 1),
  phases: field('u32', 1),
  answered: field('u32', 1),
  /** The time of the timed rounds, as an f64. */
  microseconds: field('u64', 1),
});

export type ControlWord = 'asked' | 'rounds' | 'phases' | 'answered' | 'microseconds';
const at = (name: ControlWord): number => section(control, name).offset;

export const networkAlone = (parts: ProxyParts<AloneData>): ProxyProgram => new NetworkAlone(parts);

class NetworkAlone implements ProxyProgram {
  readonly #network: Network;
  readonly #memory: HostView;
  readonly #data: AloneData;
  readonly #write: RemoteWrite = { peer: 0, from: 0, to: 0, bytes: 0, tag: 0 };
  /** The phases of the work that is under way, the one that it is in, and the first that is timed. */
  #phases: readonly Exchanged[] = [];
  #phase = 0;
  #timedFrom = 0;
  #begun = 0;
  #answered = 0;
  /** How many messages of the phase have left. */
  #left = 0;
  /**
   * The tag of the phase, 0 or 1 in turns, and how many messages have come with either. Two tags are enough: a rank awaits the messages of all
   * others in each phase, so no rank is two phases ahead.
   */
  #tag = 0;
  readonly #came = [0, 0];

  constructor({ network, memory, data }: ProxyParts<AloneData>) {
    this.#network = network;
    this.#memory = memory;
    this.#data = data;
  }

  step(): boolean {
    const phase = this.#phases[this.#phase];
    if (phase === undefined) return this.#begin();
    let moved = false;
    while (this.#left < phase.leave.length && this.#post(phase.leave[this.#left]!)) {
      this.#left++;
      moved = true;
    }
    for (let tag = this.#network.arrived(); tag >= 0; tag = this.#network.arrived()) {
      this.#came[tag]!++;
      moved = true;
    }
    if (this.#left === phase.leave.length && this.#came[this.#tag] === phase.come) this.#end();
    return moved;
  }

  #post({ peer, from, to, bytes }: Message): boolean {
    const write = this.#write;
    write.peer = peer;
    write.from = from;
    write.to = to;
    write.bytes = bytes;
    write.tag = this.#tag;
    return this.#network.write(write);
  }

  /** As the layer's rounds are timed: as many before them, in which threads wake and ranks meet. */
  #begin(): boolean {
    const asked = this.#word('asked');
    if (asked === this.#answered) return false;
    const rounds = this.#word('rounds');
    const wanted = this.#word('phases');
    const all = this.#data.rounds;
    const timed = Array.from({ length: rounds }, (_, n) => all[n % all.length]!).flatMap((phases) =>
      phases.filter((_, phase) => ((wanted >>> phase) & 1) === 1),
    );
    this.#phases = [...timed, ...timed];
    this.#phase = 0;
    this.#timedFrom = timed.length;
    this.#answered = asked;
    return true;
  }

  #end(): void {
    this.#came[this.#tag] = 0;
    this.#tag = 1 - this.#tag;
    this.#left = 0;
    this.#phase++;
    if (this.#phase === this.#timedFrom) this.#begun = performance.now();
    if (this.#phase < this.#phases.length) return;
    const took = Float64Array.of((performance.now() - this.#begun) * 1000);
    this.#memory.write(this.#data.control + at('microseconds'), new Uint8Array(took.buffer));
    this.#memory.store(this.#data.control + at('answered'), this.#answered);
  }

  #word(name: 'asked' | 'rounds' | 'phases'): number {
    return this.#memory.load(this.#data.control + at(name));
  }
}
