/**
 * Products of tiles (wgmma). Each warp makes its 16 of the group's 64 rows: products of elements are exact; those of 32 bytes of
 * a row, as much as one instruction takes, are added in 64 bits and then, rounded to 32, to the sum.
 *
 * In fast mode that is at once. In checked mode a product reads its tiles, and changes the sums, when it is started or as late
 * as a wait allows; and what PTX forbids meanwhile is found.
 */
import { weakly } from './compiled.js';
import { type Issuer, requireInitialised } from './copies.js';
import {
  alignmentOf,
  type ElementType,
  elementTypes,
  type Factor,
  readFactor,
  readWord,
  startOf,
  stretchesOf,
} from './factors.js';
import type { NetworkServices } from './flights.js';
import type { Random } from './random.js';

/** The part of a product that a lane brings; the lanes of a warp agree on all but the sums. */
export interface Factors {
  /** Sums of integers lie there as their bits. */
  readonly sums: Float32Array;
  /** The lane's words of the warp's rows, where they lie in registers. */
  readonly a: Factor | Int32Array;
  readonly b: Factor;
  readonly begin: boolean;
  /** Rows of b. */
  readonly columns: number;
  readonly type: ElementType;
  /** The bytes of each row that are multiplied. */
  readonly bytes: number;
  /** -1 where one of the two factors is negated, else 1. */
  readonly sign: number;
  /** Its sums are in registers that may move: it is made when it is started. */
  readonly atOnce: boolean;
  readonly site: number;
}

interface Multiplier extends Pick<Issuer, 'id' | 'refuse' | 'report'> {
  readonly index: number;
  readonly block: Issuer['block'] & {
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
  readonly #lastGroup = new Map<Float32Array | Int32Array, number>();
  /** Arrays that the thread has used since its last fence. */
  readonly #used = new Set<Float32Array | Int32Array>();
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

  touch(sums: Float32Array | Int32Array, site: number): void {
    this.#used.add(sums);
    if ((this.#lastGroup.get(sums) ?? -1) <= this.#awaited) return;
    this.#misuse(
      site,
      'these registers belong to a product that is still under way: commit its group and await that (g.wgmma.wait) before they are read or written',
    );
  }

  takePart({ sums, a, atOnce, site }: Factors): void {
    this.#site = site;
    const held = isFactor(a) || atOnce ? null : a;
    if (this.#used.has(sums) || (held !== null && this.#used.has(held))) {
      this.#misuse(
        site,
        'this thread has used the sums, and no g.wgmma.fence() stands between that and this product, which may then read or write them before',
      );
      this.#used.delete(sums);
      if (held !== null) this.#used.delete(held);
    }
    if (held !== null) this.#lastGroup.set(held, this.#group);
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
  #mayRead({ a, b, columns, bytes, type, site }: Factors): boolean {
    const first = rowsOfWarp * (this.#warp & 3);
    let may = this.#mayReadRows(b, 0, columns, bytes, type, site);
    if (isFactor(a)) may = this.#mayReadRows(a, first, rowsOfWarp, bytes, type, site) && may;
    return may;
  }

  #mayReadRows(
    of: Factor,
    first: number,
    rows: number,
    depth: number,
    type: ElementType,
    site: number,
  ): boolean {
    const thread = this.#thread;
    const start = startOf(of);
    if (start % alignmentOf(of) !== 0) {
      thread.refuse(weakly('read', alignmentOf(of), site), of.buffer, start);
      return false;
    }
    const global = thread.block.launch.firstSite + site;
    return stretchesOf(of, first, rows, depth, type).every((place) => {
      const { buffer, offset, bytes } = place;
      const access = weakly('read', bytes, site);
      if (offset < 0 || offset + bytes > buffer.bytes) {
        thread.refuse(access, buffer, offset);
        return false;
      }
      requireInitialised(thread, this.#machine.log, access, buffer, offset);
      this.#machine.detector!.copyIssued(thread.id, 'wgmma', this.#group, 'read', place, bytes, global);
      return true;
    });
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

const isFactor = (a: Factor | Int32Array): a is Factor => !(a instanceof Int32Array);
const isSame = (x: Factor | Int32Array, y: Factor | Int32Array): boolean =>
  !isFactor(x) || !isFactor(y) || (x.buffer === y.buffer && x.offset === y.offset);
const isSameProduct = (x: Factors, y: Factors): boolean =>
  isSame(x.a, y.a) && isSame(x.b, y.b) && x.begin === y.begin && x.site === y.site;

const rowsOfWarp = 16;
/** Bytes of a row that one instruction multiplies. */
const stepBytes = 32;
const mostColumns = 256;
/** Elements of the widest row: 128 bytes. */
const mostDepth = 128;

const a = new Float32Array(rowsOfWarp * mostDepth);
const b = new Float32Array(mostColumns * mostDepth);
const aWords = new Int32Array(a.buffer);
const bWords = new Int32Array(b.buffer);

/** The product of one warp: `lanes` are those of its 32 threads, in their order. */
export function multiplyTiles(lanes: readonly Factors[], warp: number): void {
  const { type, bytes, sign, columns, begin, ...of } = lanes[0]!;
  const size = elementTypes[type].bytes;
  const depth = bytes / size;
  const step = stepBytes / size;
  if (isFactor(of.a)) readFactor(of.a, rowsOfWarp * (warp & 3), rowsOfWarp, bytes, type, aWords);
  else readRegisters(lanes, type, depth);
  readFactor(of.b, 0, columns, bytes, type, bWords);
  if (elementTypes[type].isInteger) {
    multiplyIntegers(lanes);
    return;
  }
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
        sums[at]! += sign * s00;
        sums[at + 1]! += sign * s01;
        sums[at + 2]! += sign * s10;
        sums[at + 3]! += sign * s11;
      }
    }
  }
}

/** As many of one instruction: 32 bytes of each row. */
function multiplyIntegers(lanes: readonly Factors[]): void {
  const { begin, columns } = lanes[0]!;
  for (const [lane, { sums }] of lanes.entries()) {
    const integers = new Int32Array(sums.buffer);
    for (let i = 0; i < columns / 2; i++) {
      const row = stepBytes * ((lane >> 2) + 8 * ((i >> 1) & 1));
      const column = stepBytes * (8 * (i >> 2) + 2 * (lane & 3) + (i & 1));
      let sum = begin ? 0 : integers[i]!;
      for (let k = 0; k < stepBytes; k++) sum += a[row + k]! * b[column + k]!;
      integers[i] = sum;
    }
  }
}

/** Word i of a lane, of each 32 bytes four, is of the row that its number says, or of the eighth behind that, and of the first or the second half. */
function readRegisters(lanes: readonly Factors[], type: ElementType, depth: number): void {
  const each = 4 / elementTypes[type].bytes;
  for (const [lane, { a }] of lanes.entries())
    for (let i = 0; i < (a as Int32Array).length; i++) {
      const [row, word] = [(lane >> 2) + 8 * (i & 1), (lane & 3) + 4 * (i >> 1)];
      readWord((a as Int32Array)[i]!, type, aWords, row * depth + each * word, 1);
    }
}
