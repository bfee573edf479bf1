/**
 * The stores that somebody may still read, of each location that is accessed atomically, in the order in which everybody sees
 * them. A store may come before others that the run made earlier, as long as nothing orders it behind them. A load may lag behind.
 * The stores that it cannot read any more:
 *
 * - what an older store left, once a newer one happened before the load (coherence of writes and reads);
 * - what is older than something that it, or a load that happened before it, has read (coherence of reads).
 */
import { kindOf, type Made } from './access.js';
import { type Actor, type AtomicWrite, happenedBefore, type ReleaseHead } from './actors.js';

export class Version {
  /** Set when the next store replaces them in memory. */
  words: readonly number[] = [];
  /** The first read by each thread, which from then on can read nothing older. Only of use while there is something older. */
  sightings: Made[] = [];
  /** How often a thread has read it although there was something newer. */
  #looks: Map<Actor, number> | null = null;

  /** `write` is null for what was there before the first atomic store. */
  constructor(readonly write: AtomicWrite | null) {}

  isKnownTo(me: Actor): boolean {
    const { write } = this;
    if (write !== null && happenedBefore(write.moment.by, write.moment.epoch, me)) return true;
    return this.sightings.some(({ by, epoch }) => happenedBefore(by, epoch, me));
  }

  mayStillMislead(me: Actor): boolean {
    return (this.#looks?.get(me) ?? 0) < mostLooks;
  }

  misled(me: Actor): void {
    this.#looks ??= new Map();
    this.#looks.set(me, (this.#looks.get(me) ?? 0) + 1);
  }

  wasSeenBy(reader: Actor, meta: number): boolean {
    return this.sightings.some((seen) => seen.by === reader && seen.meta === meta);
  }
}

/** After so many looks at an old store a thread sees a newer one: whoever polls gets on in the end. */
const mostLooks = 4;
/** Versions that are kept, the newest included. */
const mostVersions = 4;
const none: readonly Version[] = [];

export class Location {
  /** Oldest first. */
  #versions: Version[];
  /** The latest release of each thread that released here: its later stores carry it on. */
  #releases: readonly ReleaseHead[] = [];

  constructor(
    readonly offset: number,
    readonly bytes: number,
  ) {
    this.#versions = [new Version(null)];
  }

  is(offset: number, bytes: number): boolean {
    return this.offset === offset && this.bytes === bytes;
  }

  get newest(): Version {
    return this.#versions[this.#versions.length - 1]!;
  }

  /** The stores that `me` may read although there is something newer; latest first. */
  olderFor(me: Actor): readonly Version[] {
    const versions = this.#versions;
    let found: Version[] | null = null;
    for (let i = versions.length - 1; i > 0 && !versions[i]!.isKnownTo(me); i--) {
      const version = versions[i - 1]!;
      if (!version.mayStillMislead(me)) continue;
      found ??= [];
      found.push(version);
    }
    return found ?? none;
  }

  /**
   * How many of the newest stores one by `me` may come before: those that it does not know. A read-modify-write comes right behind
   * what it read.
   */
  newerFor(me: Actor): number {
    const versions = this.#versions;
    let count = 0;
    for (let i = versions.length - 1; i > 0 && !versions[i]!.isKnownTo(me); i--) {
      if (kindOf(versions[i]!.write!.meta) === 'update') break;
      count++;
    }
    return count;
  }

  /** `me` has read `version`, each one's scope including the other. */
  saw(version: Version, me: Actor, meta: number): void {
    if (version === this.#versions[0] || version.isKnownTo(me)) return;
    version.sightings.push({ by: me, epoch: me.epoch, meta });
  }

  /** The store replaces `words`, what is there; or comes before so many newer ones, and its own words will be told. */
  store(write: AtomicWrite, words: readonly number[], behind = 0): Version {
    const version = new Version(write);
    const versions = this.#versions;
    if (behind === 0) this.newest.words = words;
    versions.splice(versions.length - behind, 0, version);
    if (versions.length > mostVersions) {
      versions.shift();
      versions[0]!.sightings = [];
    }
    return version;
  }

  releasesOf(me: Actor): readonly ReleaseHead[] {
    return this.#releases.length === 0 ? this.#releases : this.#releases.filter((head) => head.by === me);
  }

  released(head: ReleaseHead): void {
    const others = this.#releases.filter(
      ({ by, scope }) => !by.retired && !(by === head.by && scope <= head.scope),
    );
    this.#releases = [...others, head];
  }
}

/** The words that hold `bytes` bytes at `offset`: aligned, so never across two. */
export function wordsAt(memory: Int32Array, offset: number, bytes: number): readonly number[] {
  const first = offset >>> 2;
  if (bytes <= 4) return [memory[first]!];
  return Array.from(memory.subarray(first, first + (bytes >>> 2)));
}
