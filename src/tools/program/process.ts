/** A process of the program: what it has told, and its memory. */
import { closeSync, openSync, readdirSync, readSync, writeSync } from 'node:fs';
import { ArgumentError } from '../../base/errors.js';
import { type Callers, callersOf } from './callers.js';
import { statOf } from './patience.js';

/** A function or a variable, and the PTX that has it. */
interface Named {
  readonly texts: readonly string[];
  readonly name: string;
}

/** Bytes of the process that a copy is still to read, as they were when it was enqueued. */
export interface Held {
  readonly at: number;
  readonly bytes: Buffer;
}

/** A function of the host in a stream. */
interface HostCall {
  readonly run: number;
  readonly value: number;
  done(): void;
}

/** Hundredths of a second. */
const pollingTicks = 10;

export class Process {
  /** The PTX of each fat binary, and of those that were linked with it. */
  readonly binaries = new Map<number, string[]>();
  /** By the address of its stub. */
  readonly functions = new Map<number, Named>();
  /** By its address on the host. */
  readonly variables = new Map<number, Named>();
  /** One for each thread that has called. */
  connections = 0;
  readonly #held = new Set<Held>();
  #memory: number | null = null;
  #hasEnded = false;
  #ticks: number | null = null;
  readonly #callers = new Map<string, Callers>();
  readonly #calls: HostCall[] = [];
  #running: HostCall | null = null;
  #wake: () => void = () => {};

  constructor(readonly id: number) {}

  /** Says from where in the program a call comes: found out once it is asked, and the program may be gone by then. It holds nothing else of the call. */
  originOf(stack: Buffer, kernel: string): () => string | null {
    const key = stack.toString('latin1');
    const callers = this.#callers.get(key) ?? callersOf(this.id, Buffer.from(stack));
    this.#callers.set(key, callers);
    return () => callers(kernel);
  }

  /**
   * Whether it waits, as far as one can tell from outside: all its threads sleep, or they have used the processor for so long since
   * this was asked first that they seem to poll. Asked where no call comes.
   */
  waits(): boolean {
    if (this.#hasEnded) return false;
    try {
      const folder = `/proc/${this.id}/task`;
      const fields = readdirSync(folder).map((thread) => statOf(`${folder}/${thread}`));
      const ticks = fields.reduce((sum, of) => sum + Number(of[11]) + Number(of[12]), 0);
      this.#ticks ??= ticks;
      return fields.every(([state]) => state === 'S') || ticks - this.#ticks > pollingTicks;
    } catch {
      return false;
    }
  }

  /** It calls, so it does not poll. */
  calls(): void {
    this.#ticks = null;
  }

  textsOf(binary: number): string[] {
    const texts = this.binaries.get(binary) ?? [];
    this.binaries.set(binary, texts);
    return texts;
  }

  /** Bytes of its memory; zeros once it has ended. */
  read(at: number, length: number): Buffer {
    const bytes = Buffer.alloc(length);
    this.#move(readSync, at, bytes);
    return bytes;
  }

  write(at: number, bytes: Uint8Array): void {
    this.#move(writeSync, at, bytes);
    for (const held of this.#held) {
      const [from, to] = [Math.max(at, held.at), Math.min(at + bytes.length, held.at + held.bytes.length)];
      if (from < to) held.bytes.set(bytes.subarray(from - at, to - at), from - held.at);
    }
  }

  #move(
    move: (file: number, bytes: Uint8Array, from: number, length: number, at: number) => number,
    at: number,
    bytes: Uint8Array,
  ): void {
    if (this.#hasEnded) return;
    try {
      this.#memory ??= openSync(`/proc/${this.id}/mem`, 'r+');
      for (let done = 0; done < bytes.length; ) {
        const moved = move(this.#memory, bytes, done, Math.min(bytes.length - done, 2 ** 30), at + done);
        if (moved === 0) {
          this.#hasEnded = true;
          return;
        }
        done += moved;
      }
    } catch {
      throw new ArgumentError(
        'address',
        `0x${at.toString(16)}`,
        `that of ${bytes.length} bytes of the program`,
      );
    }
  }

  /** What a copy that is enqueued now is to read. `fixed`: it must stay until then. */
  hold(at: number, bytes: number, fixed: boolean): Held {
    const held = { at, bytes: this.read(at, bytes) };
    if (fixed) this.#held.add(held);
    return held;
  }

  /** The bytes that a copy reads by now, and whether the program has changed them though they were fixed. */
  readHeld(held: Held): { readonly bytes: Buffer; readonly isChanged: boolean } {
    const bytes = this.read(held.at, held.bytes.length);
    const isChanged = this.#held.delete(held) && !this.#hasEnded && !held.bytes.equals(bytes);
    return { bytes: this.#hasEnded ? held.bytes : bytes, isChanged };
  }

  /** Has the thread of the process that runs such functions run one of the host. */
  call(run: number, value: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        // It may have changed anything, in good order.
        this.#held.clear();
        resolve();
      };
      this.#calls.push({ run, value, done });
      if (this.#hasEnded) done();
      else this.#wake();
    });
  }

  /** The next such function and its argument. The one before is done. */
  async nextCall(): Promise<readonly [number, number]> {
    this.#running?.done();
    while (this.#calls.length === 0)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    this.#running = this.#calls.shift()!;
    return [this.#running.run, this.#running.value];
  }

  /** It has ended, or is about to. */
  close(): void {
    this.#hasEnded = true;
    if (this.#memory !== null) closeSync(this.#memory);
    this.#memory = null;
    for (const { done } of [this.#running, ...this.#calls].filter((one) => one !== null)) done();
  }
}
