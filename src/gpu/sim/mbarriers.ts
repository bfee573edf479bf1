/** Barriers in shared memory at which bulk loads arrive: their state, kept beside the memory that names them. */
import type { AccessReport } from './detector/detector.js';
import type { ByteAt, SimBuffer } from './memory.js';
import { PostedCopies } from './posted.js';
import type { Random } from './random.js';

export class MBarriers {
  readonly #all = new Map<SimBuffer, Map<number, MBarrier>>();
  readonly #random: Random | null;
  readonly #onPhase: (place: ByteAt) => void;

  /** `random` is null where loads are made at once; `onPhase` hears that the phase of the mbarrier there has ended. */
  constructor(random: Random | null, onPhase: (place: ByteAt) => void) {
    this.#random = random;
    this.#onPhase = onPhase;
  }

  init(place: ByteAt, count: number, isShown: boolean): void {
    const { buffer, offset } = place;
    const made = new MBarrier(place, count, new PostedCopies(this.#random), this.#onPhase);
    made.isShown = isShown;
    const here = this.#all.get(buffer);
    if (here === undefined) this.#all.set(buffer, new Map([[offset, made]]));
    else here.set(offset, made);
  }

  /** A fence has shown the copy engine what was initialised before it. */
  show(): void {
    for (const here of this.#all.values()) for (const one of here.values()) one.isShown = true;
  }

  at({ buffer, offset }: ByteAt): MBarrier | undefined {
    return this.#all.get(buffer)?.get(offset);
  }

  /** Where one lies among those bytes. */
  within(buffer: SimBuffer, offset: number, bytes: number): number | null {
    for (const at of this.#all.get(buffer)?.keys() ?? [])
      if (at < offset + bytes && offset < at + mbarrierBytes) return at;
    return null;
  }

  /** Loads that nobody has awaited. */
  *unawaited(): Iterable<LoadReport> {
    for (const here of this.#all.values()) for (const { unawaited } of here.values()) yield* unawaited;
  }
}

export const mbarrierBytes = 8;
/** The numbers to which an mbarrier can count: arrivals, and bytes in either direction. */
export const mostCounted = 2 ** 20 - 1;

export interface LoadReport {
  readonly to: ByteAt;
  readonly access: AccessReport;
}

export class MBarrier {
  /** Whether the copy engine may know of it. */
  isShown = true;
  #arrivals: number;
  #bytes = 0;
  #phase = 0;
  /** Loads that nobody has awaited; the phase in which each came, once it has. */
  #loads: { readonly report: LoadReport; phase: number }[] = [];
  #count: number;
  readonly #onPhase: (place: ByteAt) => void;

  constructor(
    readonly place: ByteAt,
    count: number,
    /** Loads put off that will complete on it. */
    readonly loads: PostedCopies,
    onPhase: (place: ByteAt) => void,
  ) {
    this.#count = count;
    this.#onPhase = onPhase;
    this.#arrivals = count;
  }

  get phase(): number {
    return this.#phase;
  }

  /** A thread arrives, so many times, and announces bytes. Returns what is wrong with that. */
  expect(bytes: number, arrivals = 1, drops = false): string | null {
    const tooMany =
      this.#arrivals < arrivals ? `this phase has had all ${this.#count} arrivals that it is for` : null;
    this.#bytes += bytes;
    const tooMuch =
      this.#bytes > mostCounted
        ? `an mbarrier counts up to ${mostCounted} bytes a phase: announce, and copy, less at a time`
        : null;
    this.#arrivals -= arrivals;
    if (drops) this.#count -= arrivals;
    this.#advance();
    return tooMany ?? tooMuch;
  }

  /** A load is on its way here; returns what to call once it has come. */
  expectLoad(bytes: number, report: LoadReport | null): () => void {
    const load = report && { report, phase: Number.POSITIVE_INFINITY };
    if (load !== null) this.#loads.push(load);
    return () => {
      if (load !== null) load.phase = this.#phase;
      this.#bytes -= bytes;
      this.#advance();
    };
  }

  /** A thread that waits makes the loads happen that it waits for, at the latest. */
  isOver(parity: number): boolean {
    this.loads.finish(Number.POSITIVE_INFINITY);
    if ((this.#phase & 1) === parity) return false;
    if (this.#loads.length > 0) this.#loads = this.#loads.filter(({ phase }) => phase >= this.#phase);
    return true;
  }

  get unawaited(): readonly LoadReport[] {
    return this.#loads.map(({ report }) => report);
  }

  /** Somebody has awaited it in vain, which has been said. */
  givenUp(): void {
    this.#loads = [];
  }

  /** The arrivals and bytes that its phase lacks, for people. */
  get lacking(): string {
    const arrivals = `${this.#arrivals} of ${this.#count} arrivals`;
    const bytes = this.#bytes;
    if (bytes === 0) return `lacks ${arrivals}`;
    const much =
      bytes > 0
        ? `${bytes} bytes that were announced and do not come`
        : `the announcement of ${-bytes} bytes that have come`;
    return this.#arrivals === 0 ? `lacks ${much}` : `lacks ${arrivals} and ${much}`;
  }

  /** Ends the phase once all have arrived and all announced bytes have. */
  #advance(): void {
    if (this.#arrivals > 0 || this.#bytes !== 0) return;
    this.#arrivals = this.#count;
    this.#phase++;
    this.#onPhase(this.place);
  }
}
