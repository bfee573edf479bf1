/** Barriers in shared memory at which bulk loads arrive: their state, kept beside the memory that names them. */
import type { SimBuffer } from './memory.js';
import { PostedCopies } from './posted.js';
import type { Random } from './random.js';

interface Parts {
  /** Null where loads are made at once. */
  readonly random: Random | null;
  /** The phase of the mbarrier at `offset` of the buffer has ended. */
  onPhase(buffer: SimBuffer, offset: number): void;
}

export class MBarriers {
  readonly #all = new Map<SimBuffer, Map<number, MBarrier>>();
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  init(buffer: SimBuffer, offset: number, count: number): void {
    const { random, onPhase } = this.#parts;
    const made = new MBarrier(count, new PostedCopies(random), () => onPhase(buffer, offset));
    const here = this.#all.get(buffer);
    if (here === undefined) this.#all.set(buffer, new Map([[offset, made]]));
    else here.set(offset, made);
  }

  at(buffer: SimBuffer, offset: number): MBarrier | undefined {
    return this.#all.get(buffer)?.get(offset);
  }
}

export class MBarrier {
  #arrivals: number;
  #bytes = 0;
  #phase = 0;
  readonly #count: number;
  readonly #onPhase: () => void;

  constructor(
    count: number,
    /** Loads put off that will complete on it. */
    readonly loads: PostedCopies,
    onPhase: () => void,
  ) {
    this.#count = count;
    this.#onPhase = onPhase;
    this.#arrivals = count;
  }

  /** A thread arrives, and announces bytes. */
  expect(bytes: number): void {
    this.#bytes += bytes;
    this.#arrivals--;
    this.#advance();
  }

  /** Announced bytes have come. */
  landed(bytes: number): void {
    this.#bytes -= bytes;
    this.#advance();
  }

  /** Whoever waits makes the loads happen that it waits for, at the latest. */
  isOver(parity: number): boolean {
    this.loads.finish(Number.POSITIVE_INFINITY);
    return (this.#phase & 1) !== parity;
  }

  /** Ends the phase once all have arrived and all announced bytes have. */
  #advance(): void {
    if (this.#arrivals > 0 || this.#bytes !== 0) return;
    this.#arrivals = this.#count;
    this.#phase++;
    this.#onPhase();
  }
}
