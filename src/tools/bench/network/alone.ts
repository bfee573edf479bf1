/**
 * The writes of a layer's proxies, over and over, and nothing else: no kernels, no headers, no signals. It is a proxy itself, so
 * that processes, threads and engines are arranged as theirs are. A phase ends for a rank when all that it gets has come.
 */
import type { ProxyParts, ProxyProgram, RemoteWrite } from '../../../gpu/index.js';
import { field, layout, section } from '../../../lang/index.js';
import type { Message } from './sent.js';

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

export function networkAlone({ network, memory, data }: ProxyParts<AloneData>): ProxyProgram {
  const write: RemoteWrite = { peer: 0, from: 0, to: 0, bytes: 0, tag: 0 };
  /** The phases of the work that is under way, the one that it is in, and the first that is timed. */
  let phases: readonly Exchanged[] = [];
  let now = 0;
  let timedFrom = 0;
  let begun = 0;
  let answered = 0;
  let left = 0;
  /**
   * The tag of the phase, 0 or 1 in turns, and how many messages have come with either. Two tags are enough: a rank awaits the messages of all
   * others in each phase, so no rank is two phases ahead.
   */
  let tag = 0;
  const came = [0, 0];
  const word = (name: ControlWord): number => memory.load(data.control + at(name));

  const post = (message: Message): boolean => {
    Object.assign(write, message);
    write.tag = tag;
    return network.write(write);
  };

  /** As the layer's rounds are timed: as many before them, in which threads wake and ranks meet. */
  function begin(): boolean {
    const asked = word('asked');
    if (asked === answered) return false;
    const rounds = word('rounds');
    const wanted = word('phases');
    const all = data.rounds;
    const timed = Array.from({ length: rounds }, (_, n) => all[n % all.length]!).flatMap((phases) =>
      phases.filter((_, phase) => ((wanted >>> phase) & 1) === 1),
    );
    phases = [...timed, ...timed];
    now = 0;
    timedFrom = timed.length;
    answered = asked;
    return true;
  }

  function end(): void {
    came[tag] = 0;
    tag = 1 - tag;
    left = 0;
    now++;
    if (now === timedFrom) begun = performance.now();
    if (now < phases.length) return;
    const took = Float64Array.of((performance.now() - begun) * 1000);
    memory.write(data.control + at('microseconds'), new Uint8Array(took.buffer));
    memory.store(data.control + at('answered'), answered);
  }

  function step(): boolean {
    const phase = phases[now];
    if (phase === undefined) return begin();
    let moved = false;
    while (left < phase.leave.length && post(phase.leave[left]!)) {
      left++;
      moved = true;
    }
    for (let arrived = network.arrived(); arrived >= 0; arrived = network.arrived()) {
      came[arrived]!++;
      moved = true;
    }
    if (left === phase.leave.length && came[tag] === phase.come) end();
    return moved;
  }
  return { step };
}
