import { command, commandWords, ringMask, type Shared, transferHeader, word } from '../core/shared.js';
import type { Driver } from './driver.js';

/** The objects that the core knows by number. */
interface Numbered {
  readonly index: number;
}

/** Empty writes name this region as their source. */
const mailbox: Numbered = { index: 0 };

/** The caller's end of the ring of commands: what is written at the tail is the core's once it is published. */
export class CommandRing {
  readonly words: Float64Array;
  /** Where the next command begins. */
  tail = 0;
  readonly #control: Int32Array;
  #head = 0;
  readonly #driver: Driver;

  constructor(shared: Shared, driver: Driver) {
    this.#driver = driver;
    this.words = new Float64Array(shared.commands);
    this.#control = new Int32Array(shared.control);
  }

  /** Whether a command of `n` triples fits. */
  fits(n: number): boolean {
    const words = transferHeader + 3 * n;
    if (commandWords - ((this.tail - this.#head) | 0) < words) {
      this.#head = Atomics.load(this.#control, word.commandHead);
    }
    return commandWords - ((this.tail - this.#head) | 0) >= words;
  }

  /** Writes the header of a transfer from a region to a peer's, or a group's; returns where its triples begin. */
  begin(
    kind: number,
    ticket: number,
    source: Numbered,
    immediate: number | undefined,
    target: Numbered,
    n: number,
  ): number {
    const { words, tail } = this;
    words[tail & ringMask] = kind;
    words[(tail + 1) & ringMask] = ticket;
    words[(tail + 2) & ringMask] = source.index;
    words[(tail + 3) & ringMask] = immediate ?? -1;
    words[(tail + 4) & ringMask] = target.index;
    words[(tail + 5) & ringMask] = n;
    return tail + transferHeader;
  }

  /** A write of nothing to every member of a group, with or without an immediate. */
  barrier(ticket: number, group: Numbered, immediate: number | undefined): void {
    const to = this.begin(command.barrier, ticket, mailbox, immediate, group, 1);
    for (let i = 0; i < 3; i++) this.words[(to + i) & ringMask] = 0;
    this.publish(to + 3);
  }

  /** Hands over everything before `tail`. */
  publish(tail: number): void {
    this.tail = tail | 0;
    Atomics.store(this.#control, word.commandTail, this.tail);
    this.#driver.commandsWritten();
  }
}
