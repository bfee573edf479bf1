/**
 * The same definition of a race, told a second time as plainly as possible: an explicit graph of everything that
 * happened, with an edge for each rule, and reachability. Quadratic, and without a single clever idea.
 */

import type { AccessKind } from '../../../../src/gpu/sim/detector/detector.js';
import type { FenceOrder, Order, Scope } from '../../../../src/lang/index.js';

const wide: Readonly<Record<Scope, number>> = { cta: 0, gpu: 1, sys: 2 };

export interface Place {
  readonly rank: number;
  readonly block: number;
  readonly thread: number;
}

export interface Node {
  readonly index: number;
  readonly before: Set<Node>;
  readonly place: Place;
  readonly access: {
    kind: AccessKind;
    order: Order;
    scope: Scope;
    offset: number;
    bytes: number;
    label: string;
    /** The write whose value it read, if one atomic write of these very bytes. */
    from: Node | null;
    /** Where, as far as atomic accesses are concerned. */
    location: Location | null;
  } | null;
  readonly fence: { scope: Scope; order: FenceOrder } | null;
  /** By another path to memory than ordinary accesses. */
  asynchronous: boolean;
  /** What came before this, asynchronous accesses of its block that come after it may rely on. */
  links: boolean;
}

/** The atomic stores to just these bytes since anything else was stored there, and what each replaced. */
interface Location {
  readonly offset: number;
  readonly bytes: number;
  readonly stores: { readonly node: Node; readonly replaced: number }[];
}

/** Stores of which the older ones can still be read. */
const latestStores = 3;
/** How often one thread reads one of them although there is something newer. */
const looks = 4;

export class Reference {
  readonly #nodes: Node[] = [];
  readonly #memory: Int32Array;

  /** `memory` is what the accesses have left so far. */
  constructor(memory: Int32Array) {
    this.#memory = memory;
  }

  /** Program order of each thread. */
  readonly #order = new Map<number, Node[]>();
  readonly #lastWrites = new Map<number, Node>();
  readonly #locations = new Map<number, Location | null>();
  readonly #misled = new Map<string, number>();
  readonly pairs = new Set<string>();
  /** By thread, until awaitPrevious: all that its reads by way of L1 may rely on. */
  readonly settled = new Map<number, Node>();
  /** Conflicts between different threads that something other than program order ordered. */
  orderedConflicts = 0;

  /** Adds something that happened after `after`; returns it. */
  node(
    place: Place,
    after: readonly (Node | null)[],
    access: Node['access'] = null,
    fence: Node['fence'] = null,
  ) {
    const before = new Set<Node>();
    for (const node of after) {
      if (node === null) continue;
      before.add(node);
      for (const earlier of node.before) before.add(earlier);
    }
    const index = this.#nodes.length;
    const node: Node = { index, before, place, access, fence, asynchronous: false, links: false };
    this.#nodes.push(node);
    return node;
  }

  last(thread: number): Node | null {
    return this.#order.get(thread)?.at(-1) ?? null;
  }

  /** Appends to the program order of threads. */
  follow(threads: readonly number[], node: Node): void {
    for (const thread of threads) this.#order.set(thread, [...(this.#order.get(thread) ?? []), node]);
  }

  /** What an atomic load may read besides the newest: the values, latest first, and who stored them. */
  older(place: Place, offset: number, bytes: number): { value: number; node: Node | null }[] {
    const location = this.#locationOf(offset, bytes);
    if (location === null || location.offset !== offset || location.bytes !== bytes) return [];
    const found: { value: number; node: Node | null }[] = [];
    const latest = location.stores.slice(-latestStores).reverse();
    for (const [i, { node, replaced }] of latest.entries()) {
      if (this.#knows(place.thread, node)) break;
      if ((this.#misled.get(`${place.thread} ${node.index}`) ?? 0) === looks) continue;
      found.push({ value: replaced, node: location.stores.at(-2 - i)?.node ?? null });
    }
    return found;
  }

  /** The store, or a load that read it, came before what the thread does next. */
  #knows(thread: number, store: Node): boolean {
    const last = this.last(thread);
    const isBefore = (node: Node) => node === last || last?.before.has(node) === true;
    return this.#nodes.some(
      (node) =>
        isBefore(node) &&
        (node === store ||
          (node.access?.kind === 'read' &&
            node.access.from === store &&
            strong(node.place, node.access, store.place, store.access!))),
    );
  }

  access(
    place: Place,
    kind: AccessKind,
    order: Order,
    scope: Scope,
    offset: number,
    bytes: number,
    label: string,
    older: Node | null | undefined = undefined,
  ): void {
    const location = order === 'weak' ? null : this.#locationOf(offset, bytes);
    let from = kind === 'write' ? null : this.#readsFrom(order, offset, bytes);
    if (older !== undefined) {
      from = older;
      const newer = location!.stores[location!.stores.findIndex(({ node }) => node === older) + 1]!.node;
      const key = `${place.thread} ${newer.index}`;
      this.#misled.set(key, (this.#misled.get(key) ?? 0) + 1);
    }
    const draft = { kind, order, scope, offset, bytes, label, from, location };
    const after: (Node | null)[] = [this.last(place.thread)];
    if (kind !== 'write' && (order === 'acquire' || order === 'acq_rel')) {
      after.push(...this.#releasesSeen(place, scope, { place, scope, bytes, from }));
      for (const { access } of this.#order.get(place.thread) ?? []) {
        if (access === null || access.kind === 'write' || access.location !== location) continue;
        if (location === null || location.offset !== offset || location.bytes !== bytes) continue;
        after.push(...this.#releasesSeen(place, scope, { place, ...access }));
      }
    }
    const node = this.node(place, after, draft);
    this.follow([place.thread], node);
    this.#touch(node);
  }

  fence(place: Place, scope: Scope, order: FenceOrder): void {
    const after: (Node | null)[] = [this.last(place.thread)];
    for (const node of this.#order.get(place.thread) ?? []) {
      if (node.access === null || node.access.order === 'weak') continue;
      after.push(...this.#releasesSeen(place, scope, { place, ...node.access }));
    }
    if (order === 'seq_cst') {
      for (const node of this.#nodes) {
        if (node.fence?.order !== 'seq_cst') continue;
        const apart = distance(node.place, place);
        if (wide[node.fence.scope] >= apart && wide[scope] >= apart) after.push(node);
      }
    }
    this.follow([place.thread], this.node(place, after, null, { scope, order }));
  }

  /** A proxy fence, or the start of a thread. */
  link(place: Place, after: readonly (Node | null)[]): Node {
    const node = this.node(place, after);
    node.links = true;
    this.follow([place.thread], node);
    return node;
  }

  /** Accesses of an agent or a stream: weak, at the end of no thread's program order. */
  aside(
    place: Place,
    after: readonly (Node | null)[],
    kind: 'read' | 'write',
    offset: number,
    bytes: number,
    label: string,
    asynchronous = false,
  ): Node {
    const access: Node['access'] = {
      kind,
      order: 'weak',
      scope: 'cta',
      offset,
      bytes,
      label,
      from: null,
      location: null,
    };
    const node = this.node(place, after, access);
    node.asynchronous = asynchronous;
    this.#touch(node);
    return node;
  }

  /** Looks for races with everything earlier, then writes. */
  #touch(node: Node): void {
    const mine = node.access!;
    for (const earlier of this.#nodes) {
      const theirs = earlier.access;
      if (theirs === null || earlier === node) continue;
      if (theirs.kind === 'read' && mine.kind === 'read') continue;
      if (theirs.offset + theirs.bytes <= mine.offset || mine.offset + mine.bytes <= theirs.offset) continue;
      if (node.before.has(earlier) && this.#isSettled(earlier, node) && isOnItsPath(earlier, node)) {
        if (earlier.place.thread !== node.place.thread) this.orderedConflicts++;
        continue;
      }
      if (
        theirs.order !== 'weak' &&
        mine.order !== 'weak' &&
        strong(earlier.place, theirs, node.place, mine)
      ) {
        continue;
      }
      this.pairs.add(`${theirs.label} ${mine.label}`);
    }
    if (mine.kind === 'read') return;
    let location: Location | null = null;
    if (mine.order !== 'weak') {
      const known = this.#locationOf(mine.offset, mine.bytes);
      const same = known !== null && known.offset === mine.offset && known.bytes === mine.bytes;
      location = same ? known : { offset: mine.offset, bytes: mine.bytes, stores: [] };
      location.stores.push({ node, replaced: this.#memory[mine.offset >> 2]! });
      mine.location = location;
    }
    for (let byte = mine.offset; byte < mine.offset + mine.bytes; byte++) {
      this.#lastWrites.set(byte, node);
      this.#locations.set(byte, location);
    }
  }

  /** The location that all of these bytes belong to. */
  #locationOf(offset: number, bytes: number): Location | null {
    const location = this.#locations.get(offset) ?? null;
    for (let byte = offset; byte < offset + bytes; byte++) {
      if ((this.#locations.get(byte) ?? null) !== location) return null;
    }
    return location;
  }

  /** Weak loads and loads at cta scope may be answered by L1, which may be older than the launch before. */
  #isSettled(earlier: Node, { place, access }: Node): boolean {
    const byL1 = access!.kind === 'read' && (access!.order === 'weak' || access!.scope === 'cta');
    const settled = byL1 ? this.settled.get(place.thread) : undefined;
    if (settled === undefined || earlier.place.block === place.block) return true;
    return settled === earlier || settled.before.has(earlier);
  }

  #readsFrom(order: Order, offset: number, bytes: number): Node | null {
    const write = this.#lastWrites.get(offset);
    if (order === 'weak' || write === undefined || write.access!.order === 'weak') return null;
    for (let byte = offset; byte < offset + bytes; byte++) {
      if (this.#lastWrites.get(byte) !== write) return null;
    }
    return write.access!.bytes === bytes ? write : null;
  }

  /** First operations of the release patterns that an acquire at `place` through this read synchronises with. */
  #releasesSeen(
    place: Place,
    scope: Scope,
    read: { place: Place; scope: Scope; bytes: number; from: Node | null },
  ): Node[] {
    const seen: Node[] = [];
    let observer: { place: Place; scope: Scope; bytes: number; from: Node | null } = read;
    while (observer.from !== null) {
      const write = observer.from;
      const access = write.access!;
      if (!strong(write.place, access, observer.place, observer)) break;
      const patterns: { node: Node; scope: Scope }[] = [];
      if (access.order === 'release' || access.order === 'acq_rel') {
        patterns.push({ node: write, scope: access.scope });
      }
      for (const node of this.#order.get(write.place.thread)!) {
        if (node === write) break;
        if (node.fence !== null) patterns.push({ node, scope: node.fence.scope });
        const earlier = node.access;
        const releases = earlier?.order === 'release' || earlier?.order === 'acq_rel';
        if (releases && earlier.location === access.location) patterns.push({ node, scope: earlier.scope });
      }
      for (const { node, scope: released } of patterns) {
        const apart = distance(write.place, place);
        if (wide[released] >= apart && wide[scope] >= apart) seen.push(node);
      }
      if (access.kind !== 'update') break;
      observer = { place: write.place, ...access };
    }
    return seen;
  }
}

/** Asynchronous accesses rely on those of their block, and on what came before a link of their block. */
function isOnItsPath(earlier: Node, { asynchronous, before, place: { block } }: Node): boolean {
  if (!asynchronous || (earlier.asynchronous && earlier.place.block === block)) return true;
  for (const node of before)
    if (node.links && node.place.block === block && node.before.has(earlier)) return true;
  return false;
}

function distance(a: Place, b: Place): number {
  if (a.block === b.block) return 0;
  return a.rank === b.rank ? 1 : 2;
}

/** Morally strong: each scope includes the other thread, and the bytes are the same. */
function strong(
  a: Place,
  mine: { scope: Scope; bytes: number },
  b: Place,
  theirs: { scope: Scope; bytes: number },
): boolean {
  const apart = distance(a, b);
  return mine.bytes === theirs.bytes && wide[mine.scope] >= apart && wide[theirs.scope] >= apart;
}
