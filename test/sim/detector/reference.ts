/**
 * The same definition of a race, told a second time as plainly as possible: an explicit graph of everything that
 * happened, with an edge for each rule, and reachability. Quadratic, and without a single clever idea.
 */
import type { Order, Scope } from '../../../src/lang/index.js';
import type { AccessKind } from '../../../src/sim/detector.js';

const wide: Readonly<Record<Scope, number>> = { cta: 0, gpu: 1, sys: 2 };

export interface Place {
  readonly rank: number;
  readonly block: number;
  readonly thread: number;
}

interface Node {
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
  } | null;
  readonly fence: Scope | null;
}

export class Reference {
  private readonly nodes: Node[] = [];
  /** Program order of each thread. */
  private readonly order = new Map<number, Node[]>();
  private readonly lastWrites = new Map<number, Node>();
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
    fence: Scope | null = null,
  ) {
    const before = new Set<Node>();
    for (const node of after) {
      if (node === null) continue;
      before.add(node);
      for (const earlier of node.before) before.add(earlier);
    }
    const node: Node = { index: this.nodes.length, before, place, access, fence };
    this.nodes.push(node);
    return node;
  }

  last(thread: number): Node | null {
    return this.order.get(thread)?.at(-1) ?? null;
  }

  /** Appends to the program order of threads. */
  follow(threads: readonly number[], node: Node): void {
    for (const thread of threads) this.order.set(thread, [...(this.order.get(thread) ?? []), node]);
  }

  access(
    place: Place,
    kind: AccessKind,
    order: Order,
    scope: Scope,
    offset: number,
    bytes: number,
    label: string,
  ): void {
    const from = kind === 'write' ? null : this.readsFrom(order, offset, bytes);
    const draft = { kind, order, scope, offset, bytes, label, from };
    const after: (Node | null)[] = [this.last(place.thread)];
    if (order === 'acquire' || order === 'acq_rel') {
      after.push(...this.releasesSeen(place, scope, { place, scope, bytes, from }));
    }
    const node = this.node(place, after, draft);
    this.follow([place.thread], node);
    this.touch(node);
  }

  fence(place: Place, scope: Scope): void {
    const after: (Node | null)[] = [this.last(place.thread)];
    for (const node of this.order.get(place.thread) ?? []) {
      if (node.access === null || node.access.order === 'weak') continue;
      after.push(...this.releasesSeen(place, scope, { place, ...node.access }));
    }
    this.follow([place.thread], this.node(place, after, null, scope));
  }

  /** Accesses of an agent or a stream: weak, at the end of no thread's program order. */
  aside(
    place: Place,
    after: readonly (Node | null)[],
    kind: 'read' | 'write',
    offset: number,
    bytes: number,
    label: string,
  ): Node {
    const access = { kind, order: 'weak', scope: 'cta', offset, bytes, label, from: null } as const;
    const node = this.node(place, after, access);
    this.touch(node);
    return node;
  }

  /** Looks for races with everything earlier, then writes. */
  private touch(node: Node): void {
    const mine = node.access!;
    for (const earlier of this.nodes) {
      const theirs = earlier.access;
      if (theirs === null || earlier === node) continue;
      if (theirs.kind === 'read' && mine.kind === 'read') continue;
      if (theirs.offset + theirs.bytes <= mine.offset || mine.offset + mine.bytes <= theirs.offset) continue;
      if (node.before.has(earlier) && this.isSettled(earlier, node)) {
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
    for (let byte = mine.offset; byte < mine.offset + mine.bytes; byte++) this.lastWrites.set(byte, node);
  }

  /** Weak loads and loads at cta scope may be answered by L1, which may be older than the launch before. */
  private isSettled(earlier: Node, { place, access }: Node): boolean {
    const byL1 = access!.kind === 'read' && (access!.order === 'weak' || access!.scope === 'cta');
    const settled = byL1 ? this.settled.get(place.thread) : undefined;
    if (settled === undefined || earlier.place.block === place.block) return true;
    return settled === earlier || settled.before.has(earlier);
  }

  private readsFrom(order: Order, offset: number, bytes: number): Node | null {
    const write = this.lastWrites.get(offset);
    if (order === 'weak' || write === undefined || write.access!.order === 'weak') return null;
    for (let byte = offset; byte < offset + bytes; byte++) {
      if (this.lastWrites.get(byte) !== write) return null;
    }
    return write.access!.bytes === bytes ? write : null;
  }

  /** First operations of the release patterns that an acquire at `place` through this read synchronises with. */
  private releasesSeen(
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
      for (const node of this.order.get(write.place.thread)!) {
        if (node === write) break;
        if (node.fence !== null) patterns.push({ node, scope: node.fence });
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
