/**
 * The detector's memory of each byte: the accesses that a later one could still race with.
 *
 * Nearly all bytes are moved by whole, aligned accesses of 16 bytes and more, ordered with one another: one record of a last write
 * and a last read stands for as many. A page whose accesses are smaller is divided into finer records. A record
 * becomes a `Cell` where one write and two reads do not say enough: more readers that are not ordered among themselves,
 * atomics, races. Where neighbouring threads have accessed neighbouring places, the first record of a page stands for all.
 *
 * Lanes of a warp that read the same in the same epoch are one reader: nothing tells them apart but their numbers.
 *
 * An access is forgotten when a newer one stands for it: the newer happened after it, conflicts with everything
 * it conflicts with, and is no better protected by being atomic.
 */
import {
  isAtomic,
  isIncoherent,
  isRead,
  type Made,
  readsByL1,
  sameSize,
  scopeOf,
  strengthOf,
} from './access.js';
import {
  type Actor,
  type BlockState,
  distance,
  happenedBefore,
  isBeforeLaunch,
  isSettled,
  PastThreads,
} from './actors.js';
import type { Location } from './location.js';
import { mutual } from './sync.js';

/** Told of an earlier access that races with the present one. */
type RaceSink = (earlier: Made, now: Access, cell: Cell) => void;

export interface Access {
  /** The actor that knows what happened before it … */
  readonly me: Actor;
  /** … and who makes it: another one where that is an agent of copies. */
  readonly as: Actor;
  readonly meta: number;
  readonly offset: number;
}

/** Reads of one strength, by lanes of one warp. */
interface Reads {
  /** The `warp` of these actors, and their `bit`s. */
  warp: number;
  lanes: number;
  readonly epoch: number;
  meta: number;
}

/** A record in full. */
export class Cell {
  writes: Made[] = [];
  /** Writes behind those, of which none races with another: nor does one that is alike. */
  atomics: Made[] = [];
  /**
   * Reads that a write may race with. One of a thread's last epoch stands for all its reads of one strength, and it is in
   * no other entry: the last, or the first where other lanes have read with it.
   */
  reads: Reads[] = [];
  /** When there are so many reads, those that are not needed are forgotten. */
  sweepAt = fewReads;
  /** So are atomics. */
  sweepAtomicsAt = fewAtomics;
  /** The value that atomic accesses read here; null after a weak write. */
  location: Location | null = null;

  get allWrites(): readonly Made[] {
    return this.atomics.length === 0 ? this.writes : [...this.writes, ...this.atomics];
  }

  clone(): Cell {
    const copy = new Cell();
    copy.writes = this.writes.slice();
    copy.atomics = this.atomics.slice();
    copy.reads = this.reads.map((entry) => ({ ...entry }));
    copy.sweepAt = this.sweepAt;
    copy.location = this.location;
    return copy;
  }
}

const fewReads = 4;
const fewAtomics = 64;
const pageBits = 10;
const pageBytes = 1 << pageBits;

// A record's words: writer (actor index + 1, 0: none), its epoch, its access; two readers likewise, but by warp, each
// with its lanes; 1 if there is a Cell.
const stride = 12;
const reader = 3;
const reader2 = 7;
const readers = [reader, reader2];
const actorWords = [0, ...readers];
const lanesOf = 3;
const readerWords = reader2 - reader;
const hasCell = 11;
/** Pages of a buffer that are divided, before it is looked whose records are alike. */
const fewPages = 256;
const expected = new Int32Array(stride);

class Page {
  /** Records cover 1 << shift bytes. */
  shift = pageBits;
  words = new Int32Array(stride);
  cells: Cell[] | null = null;
  /** The first record stands for all, and these of its words, a bit each, grow by one actor from record to record; 0: all are there. */
  row = 0;

  get records(): number {
    return pageBytes >> this.shift;
  }

  /** Divides the records so that [from, to) begins and ends between two. True if there are more than before. */
  fit(from: number, to: number): boolean {
    const { row } = this;
    if (row !== 0) {
      const words = new Int32Array(stride * this.records);
      for (let i = 0; i < this.records; i++) this.#ofRow(row, i, words, i * stride);
      this.words = words;
      this.row = 0;
    }
    let shift = this.shift;
    while (((from | to) & ((1 << shift) - 1)) !== 0) shift--;
    if (shift === this.shift) return row !== 0;
    const parts = 1 << (this.shift - shift);
    const old = this.words;
    const words = new Int32Array(old.length * parts);
    const cells: Cell[] = [];
    for (let i = 0; i < this.records; i++) {
      const at = i * stride;
      // Most of a page is, when it is first divided.
      const isEmpty = [...actorWords, hasCell].every((word) => old[at + word] === 0);
      if (isEmpty) continue;
      for (let part = i * parts; part < (i + 1) * parts; part++) {
        for (let word = 0; word < stride; word++) words[part * stride + word] = old[at + word]!;
        if (old[at + hasCell] === 1) cells[part] = this.cells![i]!.clone();
      }
    }
    this.shift = shift;
    this.words = words;
    if (this.cells !== null) this.cells = cells;
    return true;
  }

  /** Writes the i-th record of a row there. */
  #ofRow(row: number, i: number, to: Int32Array, at: number): void {
    const { words } = this;
    for (let word = 0; word < stride; word++) to[at + word] = words[word]!;
    if ((row & 1) !== 0) to[at]! += i;
    for (let slot = reader; slot < hasCell; slot += readerWords) {
      if ((row & (1 << slot)) === 0) continue;
      const lane = lowest(words[slot + lanesOf]!) + i;
      to[at + slot]! += lane & ~31;
      to[at + slot + lanesOf] = 1 << lane;
    }
  }

  /** Keeps the first record alone where all others follow from it. True if they do not. */
  isUneven(): boolean {
    const { words } = this;
    if (words.length === stride) return false;
    if (words[hasCell] === 1) return true;
    let row = words[0] === words[stride] ? 0 : 1;
    for (const at of readers) if (words[at + lanesOf] !== words[stride + at + lanesOf]) row |= 1 << at;
    for (let i = 0; i < this.records; i++) {
      this.#ofRow(row, i, expected, 0);
      for (let word = 0; word < stride; word++) if (words[i * stride + word] !== expected[word]) return true;
    }
    if (row === 0) this.shift = pageBits;
    this.row = row;
    this.words = words.slice(0, stride);
    this.cells = null;
    return false;
  }

  renumber(of: (index: number) => number): number {
    const { words, row } = this;
    // All of a row are asked for: so they stay neighbours.
    for (let i = 1; row !== 0 && i < this.records; i++) {
      this.#ofRow(row, i, expected, 0);
      for (const who of actorWords) if (expected[who] !== 0) of(expected[who]! - 1);
    }
    for (let at = 0; at < words.length; at += stride)
      for (const who of actorWords) if (words[at + who] !== 0) words[at + who] = 1 + of(words[at + who]! - 1);
    this.cells?.forEach(({ reads }) => {
      for (const entry of reads) entry.warp = of(entry.warp);
    });
    return this.records;
  }
}

export class Shadow {
  readonly #pages: Page[] = [];
  /** Pages that are divided, and have not been found to be even since. */
  #divided: Page[] = [];
  #evenAt = fewPages;
  readonly #found: Cell[] = [];
  readonly #actors: readonly (Actor | PastThreads)[];
  readonly #race: RaceSink;

  constructor(actors: readonly (Actor | PastThreads)[], race: RaceSink) {
    this.#actors = actors;
    this.#race = race;
  }

  /** A weak access that `as` makes, knowing what `me` knows. */
  weak(me: Actor, as: Actor, meta: number, offset: number, bytes: number): void {
    const end = offset + bytes;
    const reads = isRead(meta);
    for (let from = offset; from < end; ) {
      const page = this.#page(from);
      const to = Math.min(end, (Math.floor(from / pageBytes) + 1) * pageBytes);
      this.#fit(page, from, to);
      const last = ((to - 1) & (pageBytes - 1)) >> page.shift;
      for (let record = (from & (pageBytes - 1)) >> page.shift; record <= last; record++) {
        if (isIncoherent(meta)) this.#full(this.#cell(page, record), { me, as, meta, offset: from });
        else if (reads) this.#weakRead(page, record, me, as, meta, from);
        else this.#weakWrite(page, record, me, as, meta, from);
      }
      from = to;
    }
  }

  /** Looks for races of an atomic access and remembers it. */
  strong(cells: readonly Cell[], now: Access): void {
    for (const cell of cells) this.#full(cell, now);
  }

  /** The cells of an atomic access, which is aligned and therefore lies in one page. Valid until the next call. */
  cells(offset: number, bytes: number): readonly Cell[] {
    const page = this.#page(offset);
    this.#fit(page, offset, offset + bytes);
    const found = this.#found;
    found.length = 0;
    const last = ((offset + bytes - 1) & (pageBytes - 1)) >> page.shift;
    for (let record = (offset & (pageBytes - 1)) >> page.shift; record <= last; record++) {
      found.push(this.#cell(page, record));
    }
    return found;
  }

  /** Gives new numbers to the actors of all records, and says how many records there are. */
  renumber(of: (index: number) => number): number {
    return this.#pages.reduce((records, page) => records + page.renumber(of), 0);
  }

  #page(offset: number): Page {
    const index = Math.floor(offset / pageBytes);
    const page = this.#pages[index];
    if (page !== undefined) return page;
    const made = new Page();
    this.#pages[index] = made;
    return made;
  }

  #fit(page: Page, from: number, to: number): void {
    if (!page.fit(from, to) || this.#divided.push(page) < this.#evenAt) return;
    this.#divided = this.#divided.filter((one) => one === page || one.isUneven());
    this.#evenAt = fewPages + 2 * this.#divided.length;
  }

  #weakRead(page: Page, record: number, me: Actor, as: Actor, meta: number, offset: number): void {
    const { words } = page;
    const at = record * stride;
    if (words[at + hasCell] === 0 && as.settled === null) {
      const { warp, bit, epoch } = as;
      const [one, other] = [at + reader, at + reader2];
      const together =
        words[one] === warp + 1 && words[one + 1] === epoch
          ? one
          : words[other] === warp + 1 && words[other + 1] === epoch
            ? other
            : 0;
      const lanes = together === 0 ? 0 : words[together + lanesOf]!;
      if ((lanes & bit) !== 0) {
        if (lanes === bit) words[together + 2] = meta;
        return;
      }
      const same = together > 0 && words[together + 2] === meta;
      const writer = words[at]!;
      if (
        writer === 0 ||
        (same && this.#knewWriter(lanes, warp, this.#actors[writer - 1]!.block, me)) ||
        this.#isBefore(writer - 1, words[at + 1]!, me)
      ) {
        const by = same
          ? together
          : this.#hasRoom(words, one, as, me)
            ? one
            : this.#hasRoom(words, other, as, me)
              ? other
              : 0;
        if (by > 0) {
          leave(words, by === one ? other : one, as);
          words[by] = warp + 1;
          words[by + 1] = epoch;
          words[by + 2] = meta;
          words[by + lanesOf] = same ? lanes | bit : bit;
          return;
        }
      }
    }
    this.#full(this.#cell(page, record), { me, as, meta, offset });
  }

  /** True if a reader stands for all that has read there. */
  #hasRoom(words: Int32Array, by: number, { warp, bit }: Actor, me: Actor): boolean {
    if (words[by] === warp + 1 && words[by + lanesOf] === bit) return true;
    return this.#isReadBefore(words, by, me);
  }

  /** True if all that has read there happened before what `me` does now. */
  #isReadBefore(words: Int32Array, by: number, me: Actor): boolean {
    return words[by] === 0 || this.#allBefore(words[by]! - 1, words[by + lanesOf]!, words[by + 1]!, me);
  }

  /** Another lane has read after the writer, and what it knows of others, `me` knows. */
  #knewWriter(lanes: number, warp: number, writer: BlockState, me: Actor): boolean {
    return writer !== me.block && this.#actor(warp + lowest(lanes)).knowsAs(me);
  }

  #actor(index: number): Actor {
    const found = this.#actors[index]!;
    return found instanceof PastThreads ? found.at(index) : found;
  }

  /** True if what the actor of that index did in `epoch` happened before what `me` does now. */
  #isBefore(index: number, epoch: number, me: Actor): boolean {
    const by = this.#actors[index]!;
    if (!(by instanceof PastThreads)) return happenedBefore(by, epoch, me);
    return me.knowsEndOf(by.block) || happenedBefore(by.at(index), epoch, me);
  }

  /** True if what these lanes of a warp did in `epoch` happened before what `me` does now. */
  #allBefore(warp: number, lanes: number, epoch: number, me: Actor): boolean {
    const { block } = this.#actors[warp]!;
    if (block !== me.block && me.knowsEndOf(block)) return true;
    for (let left = lanes; left !== 0; left &= left - 1) {
      if (!this.#isBefore(warp + lowest(left), epoch, me)) return false;
    }
    return true;
  }

  #weakWrite(page: Page, record: number, me: Actor, as: Actor, meta: number, offset: number): void {
    const { words } = page;
    const at = record * stride;
    if (words[at + hasCell] === 0) {
      const writer = words[at]!;
      if (
        (writer === 0 || this.#isBefore(writer - 1, words[at + 1]!, me)) &&
        this.#isReadBefore(words, at + reader, me) &&
        this.#isReadBefore(words, at + reader2, me)
      ) {
        setWriter(words, at, as, meta);
        return;
      }
    }
    const cell = this.#cell(page, record);
    this.#full(cell, { me, as, meta, offset });
    cell.location = null;
    if (cell.writes.length === 1 && cell.reads.length === 0) {
      words[at + hasCell] = 0;
      delete page.cells![record];
      setWriter(words, at, as, meta);
    }
  }

  #cell(page: Page, record: number): Cell {
    const at = record * stride;
    const { words } = page;
    page.cells ??= [];
    if (words[at + hasCell] === 1) return page.cells[record]!;
    const cell = new Cell();
    if (words[at] !== 0) {
      cell.writes.push({ by: this.#actor(words[at]! - 1), epoch: words[at + 1]!, meta: words[at + 2]! });
    }
    for (const slot of readers) {
      const by = at + slot;
      if (words[by] === 0) continue;
      const [warp, epoch, meta] = [words[by]! - 1, words[by + 1]!, words[by + 2]!];
      cell.reads.push({ warp, lanes: words[by + lanesOf]!, epoch, meta });
    }
    words[at + hasCell] = 1;
    page.cells[record] = cell;
    return cell;
  }

  /** The whole rule: reports what races with the access, forgets what it stands for, remembers it. */
  #full(cell: Cell, now: Access): void {
    const joins = cell.atomics.length > 0 && areAlike(cell.atomics[0]!, now);
    for (const entry of joins ? cell.writes : cell.allWrites) this.#compare(cell, entry, now);
    if (isRead(now.meta)) {
      this.#addRead(cell, now);
      return;
    }
    for (const { warp, lanes, epoch, meta } of cell.reads) {
      for (let left = lanes; left !== 0; left &= left - 1) {
        this.#compare(cell, { by: this.#actor(warp + lowest(left)), epoch, meta }, now);
      }
    }
    this.#forgetReads(cell, now);
    const stays = (entry: Made): boolean => !standsFor(now, entry);
    cell.writes = (joins ? cell.writes : cell.allWrites).filter(stays);
    if (!joins) cell.atomics = [];
    const { length } = cell.atomics;
    if (length < fewAtomics || length >= cell.sweepAtomicsAt) {
      cell.atomics = cell.atomics.filter(stays);
      cell.sweepAtomicsAt = 2 * cell.atomics.length;
    }
    const to = isAtomic(now.meta) ? cell.atomics : cell.writes;
    to.push({ by: now.as, epoch: now.as.epoch, meta: now.meta });
  }

  #addRead(cell: Cell, now: Access): void {
    const { as, meta } = now;
    const { warp, bit, epoch } = as;
    let same: Reads | null = null;
    let emptied = false;
    for (const entry of cell.reads) {
      if (entry.warp !== warp || strengthOf(entry.meta) !== strengthOf(meta)) continue;
      const mine = (entry.lanes & bit) !== 0;
      if (entry.epoch === epoch) {
        if (mine) {
          if (entry.lanes === bit) entry.meta = meta;
          return;
        }
        if (entry.meta === meta) same = entry;
      } else if (mine) {
        entry.lanes &= ~bit;
        emptied ||= entry.lanes === 0;
      }
    }
    if (emptied) cell.reads = cell.reads.filter(({ lanes }) => lanes !== 0);
    if (same !== null) {
      same.lanes |= bit;
      return;
    }
    if (cell.reads.length >= cell.sweepAt) {
      this.#forgetReads(cell, now);
      cell.sweepAt = Math.max(fewReads, 2 * cell.reads.length);
    }
    cell.reads.push({ warp, lanes: bit, epoch, meta });
  }

  /** Forgets the reads that the access stands for. */
  #forgetReads(cell: Cell, now: Access): void {
    for (const entry of cell.reads) {
      const { warp, lanes, epoch, meta } = entry;
      for (let left = lanes; left !== 0; left &= left - 1) {
        const lane = lowest(left);
        if (standsFor(now, { by: this.#actor(warp + lane), epoch, meta })) entry.lanes &= ~(1 << lane);
      }
    }
    cell.reads = cell.reads.filter(({ lanes }) => lanes !== 0);
  }

  #compare(cell: Cell, earlier: Made, now: Access): void {
    const { me, as, meta } = now;
    if (isIncoherent(meta)) {
      if (isBeforeLaunch(earlier.by, earlier.epoch, as)) return;
    } else {
      const settled = !readsByL1(meta) || isSettled(earlier.by, earlier.epoch, as);
      if (settled && isOver(earlier, me)) return;
    }
    if (mutual(earlier.meta, meta, distance(earlier.by, me))) return;
    this.#race(earlier, now, cell);
  }
}

/** The number of the lowest bit that is set. */
const lowest = (bits: number): number => 31 - Math.clz32(bits & -bits);

function setWriter(words: Int32Array, at: number, as: Actor, meta: number): void {
  words[at] = as.index + 1;
  words[at + 1] = as.epoch;
  words[at + 2] = meta;
  if (words[at + reader] !== 0) clear(words, at + reader);
  if (words[at + reader2] !== 0) clear(words, at + reader2);
}

/** The lane has not read there. */
function leave(words: Int32Array, by: number, { warp, bit }: Actor): void {
  if (words[by] !== warp + 1) return;
  const lanes = words[by + lanesOf]! & ~bit;
  words[by + lanesOf] = lanes;
  if (lanes === 0) clear(words, by);
}

/** Nobody has read there. */
function clear(words: Int32Array, by: number): void {
  for (let word = by; word <= by + lanesOf; word++) words[word] = 0;
}

/** The location whose newest atomic store wrote all of these cells. */
export function locationOf(cells: readonly Cell[]): Location | null {
  const { location } = cells[0]!;
  return cells.every((cell) => cell.location === location) ? location : null;
}

/** True if `made` happened before what `me` does now; of an incoherent load, all that its block does. */
function isOver({ by, epoch, meta }: Made, me: Actor): boolean {
  return isIncoherent(meta) ? me.knowsEndOf(by.block) : happenedBefore(by, epoch, me);
}

/** Atomics of one strength that do not race: of three, if the second is like the first and the third, the first is like the third. */
function areAlike({ by, meta }: Made, now: Access): boolean {
  return strengthOf(meta) === strengthOf(now.meta) && mutual(meta, now.meta, distance(by, now.me));
}

function standsFor({ me, as, meta }: Access, made: Made): boolean {
  if (!isOver(made, me)) return false;
  const { by, meta: earlier } = made;
  if (!isAtomic(meta)) return true;
  // An access that is protected from the new access by scopes must be protected from the earlier one as well.
  if (!isAtomic(earlier) || !sameSize(earlier, meta) || scopeOf(earlier) < scopeOf(meta)) return false;
  const [before, now] = [by.block, as.block];
  if (before === now) return true;
  // Another block of the rank is as far from everybody else; and this block's threads all start after it.
  return before.rank === now.rank && before.step <= (now.launch?.start.completed(before.stream) ?? 0);
}
