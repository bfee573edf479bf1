/**
 * Products of tiles (wgmma). Each warp makes its 16 of the group's 64 rows: products of elements are exact; those of 32 bytes of
 * a row, as much as one instruction takes, are added in 64 bits and then, rounded to 32, to the sum.
 *
 * In fast mode that is at once. In checked mode a product reads its tiles, and changes the sums, when it is started or as late
 * as a wait allows; and what PTX forbids meanwhile is found.
 */
import { swizzled, type Tile } from '../../lang/index.js';
import { e4m3ToF32 } from '../index.js';
import { weakly } from './compiled.js';
import { type Issuer, requireInitialised } from './copies.js';
import type { NetworkServices } from './flights.js';
import type { ByteAt } from './memory.js';
import type { Random } from './random.js';

/** The part of a product that a lane brings; the lanes of a warp agree on all but the sums. */
export interface Factors {
  readonly sums: Float32Array;
  readonly a: ByteAt;
  readonly b: ByteAt;
  readonly begin: boolean;
  /** Rows of b. */
  readonly columns: number;
  /** Bytes of a row. */
  readonly swizzle: Tile['swizzle'];
  /** Which of them are multiplied, of a and of b. */
  readonly aFrom: number;
  readonly bFrom: number;
  readonly bytes: number;
  /** Its sums are in registers that may move: it is made when it is started. */
  readonly atOnce: boolean;
  readonly isE4m3: boolean;
  readonly site: number;
}

interface Multiplier extends Pick<Issuer, 'id' | 'refuse' | 'report'> {
  readonly index: number;
  readonly block: Issuer['block'] & {
    /** By warp. */
    readonly products: WarpProducts[];
    readonly firstThread: number;
  };
}

/** The products that a warp has started and not yet made, in order. */
export class WarpProducts {
  readonly #late: { readonly group: number; readonly make: () => void }[] = [];

  post(group: number, random: Random, make: () => void): void {
    if (this.#late.length === 0 && random.below(2) !== 0) make();
    else this.#late.push({ group, make });
  }

  finish(last: number): void {
    while (this.#late.length > 0 && this.#late[0]!.group <= last) this.#late.shift()!.make();
  }
}

/** The products of one thread, in checked mode: what it may do with its sums meanwhile. */
export class Products {
  readonly #thread: Multiplier;
  readonly #machine: NetworkServices;
  #group = 0;
  #committed: number[] = [];
  /** Groups up to this one are complete. */
  #awaited = -1;
  /** In which group each array was last added to. */
  readonly #lastGroup = new Map<Float32Array, number>();
  /** Arrays that the thread has used since its last fence. */
  readonly #used = new Set<Float32Array>();
  /** Where it started the last one. */
  #site: number | null = null;

  constructor(thread: Multiplier, machine: NetworkServices) {
    this.#thread = thread;
    this.#machine = machine;
  }

  fence(): void {
    this.#used.clear();
  }

  commit(): void {
    this.#committed.push(this.#group++);
  }

  wait(pending: number): void {
    const done = this.#committed.at(-1 - pending);
    if (done === undefined) return;
    this.#awaited = Math.max(this.#awaited, done);
    const { id, block } = this.#thread;
    block.products[this.#warp]?.finish(done);
    this.#machine.detector!.copiesAwaited(id, 'wgmma', done, true, block.firstThread + 32 * this.#warp);
  }

  touch(sums: Float32Array, site: number): void {
    this.#used.add(sums);
    if ((this.#lastGroup.get(sums) ?? -1) <= this.#awaited) return;
    this.#misuse(
      site,
      'these sums belong to a product that is still under way: commit its group and await that (g.wgmma.wait) before they are read or written',
    );
  }

  takePart({ sums, site }: Factors): void {
    this.#site = site;
    if (this.#used.has(sums)) {
      this.#misuse(
        site,
        'this thread has used the sums, and no g.wgmma.fence() stands between that and this product, which may then read or write them before',
      );
      this.#used.delete(sums);
    }
    this.#lastGroup.set(sums, this.#group);
  }

  /** The product of its warp, as whose first lane it speaks. */
  multiply(lanes: readonly Factors[]): void {
    const [first] = lanes as [Factors];
    if (!lanes.every((factors) => isSameProduct(factors, first))) {
      this.#misuse(
        first.site,
        'the lanes of a warp name different tiles: a product is the whole warp group’s',
      );
    }
    if (!this.#mayRead(first)) return;
    const { block } = this.#thread;
    const warp = this.#warp;
    block.products[warp] ??= new WarpProducts();
    if (first.atOnce) multiplyTiles(lanes, warp);
    else block.products[warp].post(this.#group, this.#machine.random, () => multiplyTiles(lanes, warp));
  }

  /** The thread has run to its end. `failed`: not as it was meant to. */
  end(failed: boolean): void {
    if (!failed && this.#site !== null && Math.max(...this.#lastGroup.values()) > this.#awaited) {
      this.#misuse(
        this.#site,
        'its thread ends while this product may still read shared memory, which is then the next block’s: await its group (g.wgmma.wait) before',
      );
    }
    this.#thread.block.products[this.#warp]?.finish(Number.POSITIVE_INFINITY);
    this.#group = 0;
    this.#committed = [];
    this.#awaited = -1;
    this.#lastGroup.clear();
    this.#used.clear();
    this.#site = null;
  }

  get #warp(): number {
    return this.#thread.index >>> 5;
  }

  /** Checks the rows that the warp multiplies, and tells the detector of them. */
  #mayRead({ a, b, columns, swizzle, site }: Factors): boolean {
    const thread = this.#thread;
    const first = rowsOfWarp * (this.#warp & 3);
    const operands = [
      { tile: a, skipped: first * swizzle, bytes: rowsOfWarp * swizzle },
      { tile: b, skipped: 0, bytes: columns * swizzle },
    ];
    let may = true;
    for (const { tile, skipped, bytes } of operands) {
      const { buffer } = tile;
      const offset = tile.offset + skipped;
      const access = weakly('read', bytes, site);
      const aligned = tile.offset % (8 * swizzle) === 0;
      if (aligned && offset >= 0 && offset + bytes <= buffer.bytes) {
        requireInitialised(thread, this.#machine.log, access, buffer, offset);
        const global = thread.block.launch.firstSite + site;
        const place = { buffer, offset };
        this.#machine.detector!.copyIssued(thread.id, 'wgmma', this.#group, 'read', place, bytes, global);
      } else {
        if (aligned) thread.refuse(access, buffer, offset);
        else thread.refuse(weakly('read', 8 * swizzle, site), buffer, tile.offset);
        may = false;
      }
    }
    return may;
  }

  #misuse(site: number, message: string): void {
    const access = this.#thread.report(weakly('update', 0, site));
    this.#machine.log.add({
      kind: 'misuse',
      message,
      buffer: 'registers',
      location: 'sums of products',
      access,
    });
  }
}

const isSamePlace = (x: ByteAt, y: ByteAt): boolean => x.buffer === y.buffer && x.offset === y.offset;
const isSameProduct = (x: Factors, y: Factors): boolean =>
  isSamePlace(x.a, y.a) &&
  isSamePlace(x.b, y.b) &&
  x.aFrom === y.aFrom &&
  x.bFrom === y.bFrom &&
  x.begin === y.begin &&
  x.site === y.site;

const rowsOfWarp = 16;
/** Bytes of a row that one instruction multiplies. */
const stepBytes = 32;
const mostColumns = 256;
/** Elements of the widest row: e4m3, 128 bytes. */
const mostDepth = 128;

const a = new Float32Array(rowsOfWarp * mostDepth);
const b = new Float32Array(mostColumns * mostDepth);
const aWords = new Int32Array(a.buffer);
const bWords = new Int32Array(b.buffer);
const e4m3Words = new Int32Array(Float32Array.from({ length: 256 }, (_, bits) => e4m3ToF32(bits)).buffer);

/** The product of one warp: `lanes` are those of its 32 threads, in their order. */
export function multiplyTiles(lanes: readonly Factors[], warp: number): void {
  const { swizzle, bytes, isE4m3, columns, begin, ...of } = lanes[0]!;
  const depth = isE4m3 ? bytes : bytes / 2;
  const step = isE4m3 ? stepBytes : stepBytes / 2;
  const form = { swizzle, bytes, isE4m3 };
  open(of.a, { ...form, first: rowsOfWarp * (warp & 3), rows: rowsOfWarp, from: of.aFrom }, aWords);
  open(of.b, { ...form, first: 0, rows: columns, from: of.bFrom }, bWords);
  for (let pair = 0; pair < 8; pair++) {
    // Of each lane are columns 2c and 2c + 1 of every eight, in two rows eight apart.
    const upper = pair * depth;
    const lower = upper + 8 * depth;
    for (let column = 0; column < columns; column += 2) {
      const left = column * depth;
      const right = left + depth;
      const { sums } = lanes[4 * pair + ((column & 7) >> 1)]!;
      const at = 4 * (column >> 3);
      if (begin) sums.fill(0, at, at + 4);
      for (let first = 0; first < depth; first += step) {
        let s00 = 0;
        let s01 = 0;
        let s10 = 0;
        let s11 = 0;
        for (let k = first; k < first + step; k++) {
          const x = a[upper + k]!;
          const y = a[lower + k]!;
          const p = b[left + k]!;
          const q = b[right + k]!;
          s00 += x * p;
          s01 += x * q;
          s10 += y * p;
          s11 += y * q;
        }
        sums[at]! += s00;
        sums[at + 1]! += s01;
        sums[at + 2]! += s10;
        sums[at + 3]! += s11;
      }
    }
  }
}

interface Rows {
  readonly first: number;
  readonly rows: number;
  readonly swizzle: Tile['swizzle'];
  /** The bytes of each row that it multiplies: from where, and how many. */
  readonly from: number;
  readonly bytes: number;
  readonly isE4m3: boolean;
}

/** Rows of a tile, or parts of them, as f32, one behind the other, as the words that they are. */
function open(
  { buffer, offset }: ByteAt,
  { first, rows, swizzle, from, bytes, isE4m3 }: Rows,
  into: Int32Array,
): void {
  const { i32 } = buffer;
  const pieces = bytes / 16;
  let to = 0;
  for (let n = 0; n < rows * pieces; n++) {
    const piece = (first + Math.floor(n / pieces)) * swizzle + from + 16 * (n % pieces);
    const source = (offset + swizzled(swizzle, piece)) >>> 2;
    for (let i = 0; i < 4; i++) {
      const word = i32[source + i]!;
      if (isE4m3) {
        into[to] = e4m3Words[word & 255]!;
        into[to + 1] = e4m3Words[(word >>> 8) & 255]!;
        into[to + 2] = e4m3Words[(word >>> 16) & 255]!;
        into[to + 3] = e4m3Words[word >>> 24]!;
        to += 4;
      } else {
        into[to] = word << 16;
        into[to + 1] = word & -65536;
        to += 2;
      }
    }
  }
}
