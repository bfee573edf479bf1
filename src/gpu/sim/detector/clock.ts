/**
 * The events that a thread knows to have happened, as immutable values that threads share.
 *
 * A flat vector clock over every thread of every rank would be far too large (64 ranks × 8 blocks × 64 threads,
 * times the launches). Three observations make it small:
 * - Threads of one block meet often, and after a barrier they all know the same: one number, the `floor`, says
 *   'everything of this block up to epoch n'. Warps have floors of their own; single threads are exceptions.
 * - About other blocks a thread knows what somebody released: a snapshot that never changes afterwards. Snapshots
 *   are compared by identity first, and joins return one of their arguments whenever it already says everything.
 * - A stream finishes its work in order, so everything finished is one counter per stream; only blocks of launches
 *   beyond that counter need entries.
 */

import type { ProxyPath } from './detector.js';

/** A sparse map number → epoch: key, value, key, value …, keys ascending. */
type Pairs = readonly number[];
const none: Pairs = [];

function valueAt(pairs: Pairs, key: number): number {
  let low = 0;
  let high = pairs.length >> 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    const found = pairs[2 * middle]!;
    if (found === key) return pairs[2 * middle + 1]!;
    if (found < key) low = middle + 1;
    else high = middle;
  }
  return 0;
}

function withPair(pairs: Pairs, key: number, value: number): Pairs {
  if (valueAt(pairs, key) >= value) return pairs;
  return joinPairs(pairs, [key, value], 0);
}

/** True if `a` has every entry of `b` that `floor` does not cover. */
function pairsInclude(a: Pairs, b: Pairs, floor: number): boolean {
  if (a === b) return true;
  let i = 0;
  for (let j = 0; j < b.length; j += 2) {
    if (b[j + 1]! <= floor) continue;
    while (i < a.length && a[i]! < b[j]!) i += 2;
    if (a[i] !== b[j] || a[i + 1]! < b[j + 1]!) return false;
  }
  return true;
}

/** Pairs are joined here, and then copied at their length: arrays that grow leave more garbage than all else. */
const joined: number[] = [];

/**
 * The larger value of each key, without entries that `floor` covers; `a` has none of those. Returns `a` where it
 * says it all.
 */
function joinPairs(a: Pairs, b: Pairs, floor: number): Pairs {
  if (pairsInclude(a, b, floor)) return a;
  let length = 0;
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const left = i < a.length ? a[i]! : Number.POSITIVE_INFINITY;
    const right = j < b.length ? b[j]! : Number.POSITIVE_INFINITY;
    const key = Math.min(left, right);
    const value = Math.max(left === key ? a[i + 1]! : 0, right === key ? b[j + 1]! : 0);
    if (left === key) i += 2;
    if (right === key) j += 2;
    if (value <= floor) continue;
    joined[length++] = key;
    joined[length++] = value;
  }
  return joined.slice(0, length);
}

/** The knowledge about one block. Epochs start at 1, so 0 is 'nothing'. */
export class BlockClock {
  constructor(
    /** Everything every thread of the block did up to this epoch. Says nothing about bulk copies. */
    readonly floor: number,
    readonly warps: Pairs,
    readonly lanes: Pairs,
    /** Bulk copies: keyed by agent, up to a group. */
    readonly agents: Pairs,
    /** The knowledge on which the block's asynchronous operations may rely; null: what its launch began with. */
    readonly relied: Reliances | null = null,
  ) {}

  coversLane(lane: number, epoch: number): boolean {
    if (epoch <= this.floor) return true;
    if (this.warps.length > 0 && epoch <= valueAt(this.warps, lane >> 5)) return true;
    return this.lanes.length > 0 && epoch <= valueAt(this.lanes, lane);
  }

  coversAgent(agent: number, epoch: number): boolean {
    if (this === wholeBlock) return true;
    return this.agents.length > 0 && epoch <= valueAt(this.agents, agent);
  }

  withFloor(floor: number): BlockClock {
    return new BlockClock(floor, none, none, this.agents, this.relied);
  }

  withWarp(warp: number, epoch: number): BlockClock {
    const warps = withPair(this.warps, warp, epoch);
    return new BlockClock(this.floor, warps, this.lanes, this.agents, this.relied);
  }

  withLane(lane: number, epoch: number): BlockClock {
    if (this.coversLane(lane, epoch)) return this;
    const lanes = withPair(this.lanes, lane, epoch);
    return new BlockClock(this.floor, this.warps, lanes, this.agents, this.relied);
  }

  /** With what these agents, in ascending order, did up to `epoch`. */
  withAgents(keys: readonly number[], epoch: number): BlockClock {
    const done = keys.flatMap((agent) => [agent, epoch]);
    return this.#withPairs(joinPairs(this.agents, done, 0));
  }

  #withPairs(agents: Pairs): BlockClock {
    if (agents === this.agents) return this;
    return new BlockClock(this.floor, this.warps, this.lanes, agents, this.relied);
  }

  /** With what the agents that `which` names did, as far as `other` knows. */
  withAgentsOf(other: BlockClock, which: (agent: number) => boolean): BlockClock {
    let agents = this.agents;
    for (let i = 0; i < other.agents.length; i += 2) {
      const agent = other.agents[i]!;
      if (which(agent)) agents = withPair(agents, agent, other.agents[i + 1]!);
    }
    return this.#withPairs(agents);
  }

  /** Relying on that, besides what is relied on already. */
  relying(on: Reliances): BlockClock {
    const relied = joinReliances(this.relied, on);
    if (relied === this.relied) return this;
    return new BlockClock(this.floor, this.warps, this.lanes, this.agents, relied);
  }

  withoutReliance(): BlockClock {
    return this.relied === null ? this : new BlockClock(this.floor, this.warps, this.lanes, this.agents);
  }
}

/** The knowledge that a thread had when it passed a proxy fence: of other blocks, and of its own. */
export interface Reliance {
  readonly others: Clock;
  readonly own: BlockClock;
}

/**
 * The knowledge on which a block's asynchronous operations may rely, in each space of memory. It travels with the knowledge of the thread
 * that fenced, and is of use to threads of the block alone.
 */
export type Reliances = { readonly [P in ProxyPath]: Reliance | null };

/** Returns one of its arguments where that one says everything. */
function joinReliances(a: Reliances | null, b: Reliances | null): Reliances | null {
  if (a === b || b === null) return a;
  if (a === null) return b;
  const shared = joinReliance(a.shared, b.shared);
  const global = joinReliance(a.global, b.global);
  const map = joinReliance(a.map, b.map);
  if (shared === a.shared && global === a.global && map === a.map) return a;
  return shared === b.shared && global === b.global && map === b.map ? b : { shared, global, map };
}

function joinReliance(a: Reliance | null, b: Reliance | null): Reliance | null {
  if (a === b || b === null) return a;
  if (a === null) return b;
  const others = a.others.join(b.others);
  const own = joinBlocks(a.own, b.own);
  if (others === a.others && own === a.own) return a;
  return others === b.others && own === b.own ? b : { others, own };
}

export const nothingOfBlock = new BlockClock(0, none, none, none);
/** All a block ever did, its bulk copies included: it has ended. */
export const wholeBlock = new BlockClock(Number.POSITIVE_INFINITY, none, none, none);

/** Returns one of its arguments where that one says everything (the likelier one is tried). */
export function joinBlocks(one: BlockClock, other: BlockClock): BlockClock {
  if (one === other || other === nothingOfBlock || one === wholeBlock) return one;
  if (one === nothingOfBlock || other === wholeBlock) return other;
  const otherIsNewer =
    other.floor > one.floor || (other.floor === one.floor && other.lanes.length > one.lanes.length);
  const [a, b] = otherIsNewer ? [other, one] : [one, other];
  const floor = a.floor;
  const warps = joinPairs(a.warps, b.warps, floor);
  const lanes = joinPairs(a.lanes, b.lanes, floor);
  const agents = joinPairs(a.agents, b.agents, 0);
  const relied = joinReliances(a.relied, b.relied);
  if (warps === a.warps && lanes === a.lanes && agents === a.agents && relied === a.relied) return a;
  return new BlockClock(floor, warps, lanes, agents, relied);
}

/** True if `a` says everything that `b` says. */
function blockIncludes(a: BlockClock, b: BlockClock): boolean {
  if (a === b || b === nothingOfBlock || a === wholeBlock) return true;
  return (
    a.floor >= b.floor &&
    pairsInclude(a.warps, b.warps, a.floor) &&
    pairsInclude(a.lanes, b.lanes, a.floor) &&
    pairsInclude(a.agents, b.agents, 0) &&
    joinReliances(a.relied, b.relied) === a.relied
  );
}

export interface ClockedBlock {
  /** Unique and growing: the order in which blocks started. */
  readonly sequence: number;
  readonly stream: number;
  /** The position of its launch in the stream, from 1. */
  readonly step: number;
}

/** The knowledge about one stream: all its steps up to `completed`, and parts of later ones. */
class StreamClock {
  constructor(
    readonly completed: number,
    readonly blocks: readonly ClockedBlock[],
    readonly clocks: readonly BlockClock[],
  ) {}

  about(block: ClockedBlock): BlockClock {
    let low = 0;
    let high = this.blocks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const found = this.blocks[middle]!;
      if (found === block) return this.clocks[middle]!;
      if (found.sequence < block.sequence) low = middle + 1;
      else high = middle;
    }
    return nothingOfBlock;
  }

  withoutReliances(): StreamClock {
    if (this.clocks.every(({ relied }) => relied === null)) return this;
    const clocks = this.clocks.map((clock) => clock.withoutReliance());
    return new StreamClock(this.completed, this.blocks, clocks);
  }
}

const nothingOfStream = new StreamClock(0, [], []);

/** True if `a` says everything that `b` says. Allocates nothing: nearly all joins end here. */
function includes(a: StreamClock, b: StreamClock): boolean {
  if (b.completed > a.completed) return false;
  let i = 0;
  for (let j = 0; j < b.blocks.length; j++) {
    const block = b.blocks[j]!;
    if (block.step <= a.completed) continue;
    while (i < a.blocks.length && a.blocks[i]!.sequence < block.sequence) i++;
    if (a.blocks[i] !== block) return false;
    if (!blockIncludes(a.clocks[i]!, b.clocks[j]!)) return false;
  }
  return true;
}

function joinStreams(a: StreamClock, b: StreamClock): StreamClock {
  if (includes(a, b)) return a;
  if (includes(b, a)) return b;
  const completed = Math.max(a.completed, b.completed);
  const blocks: ClockedBlock[] = [];
  const clocks: BlockClock[] = [];
  let i = 0;
  let j = 0;
  while (i < a.blocks.length || j < b.blocks.length) {
    const left = a.blocks[i];
    const right = b.blocks[j];
    const takeLeft = left !== undefined && (right === undefined || left.sequence <= right.sequence);
    const takeRight = right !== undefined && (left === undefined || right.sequence <= left.sequence);
    const block = takeLeft ? left : right!;
    const mine = takeLeft ? a.clocks[i++]! : nothingOfBlock;
    const theirs = takeRight ? b.clocks[j++]! : nothingOfBlock;
    if (block.step <= completed) continue;
    blocks.push(block);
    clocks.push(joinBlocks(mine, theirs));
  }
  return new StreamClock(completed, blocks, clocks);
}

/** Everything known about every stream of every rank. */
export class Clock {
  readonly #streams: readonly StreamClock[];
  #bare: Clock | null = null;

  constructor(streams: readonly StreamClock[]) {
    this.#streams = streams;
  }

  completed(stream: number): number {
    return this.#streams[stream]?.completed ?? 0;
  }

  /** The knowledge about a block whose step is not among the completed ones. */
  about(block: ClockedBlock): BlockClock {
    return this.#streams[block.stream]?.about(block) ?? nothingOfBlock;
  }

  join(other: Clock): Clock {
    if (other === this || other === nothing) return this;
    if (this === nothing) return other;
    const count = Math.max(this.#streams.length, other.#streams.length);
    let streams: StreamClock[] | null = null;
    let sameAsOther = true;
    for (let i = 0; i < count; i++) {
      const mine = this.#streams[i] ?? nothingOfStream;
      const theirs = other.#streams[i] ?? nothingOfStream;
      const stream = mine === theirs ? mine : joinStreams(mine, theirs);
      if (stream !== theirs) sameAsOther = false;
      if (stream !== mine || streams !== null) {
        streams ??= this.#streams.slice(0, i);
        while (streams.length < i) streams.push(nothingOfStream);
        streams[i] = stream;
      }
    }
    return streams === null ? this : sameAsOther ? other : new Clock(streams);
  }

  /**
   * The join of many, which is cheaper than one by one: per stream it begins with whoever knows most of it, and
   * what the others know in part is then mostly included.
   */
  static joinAll(clocks: readonly Clock[]): Clock {
    const first = clocks[0]!;
    const others = new Set(clocks);
    if (others.size <= 2) {
      let joined = first;
      for (const clock of others) joined = joined.join(clock);
      return joined;
    }
    let count = 0;
    for (const clock of others) count = Math.max(count, clock.#streams.length);
    const streams: StreamClock[] = [];
    for (let i = 0; i < count; i++) {
      let joined = first.#streams[i] ?? nothingOfStream;
      for (const clock of others) {
        const stream = clock.#streams[i];
        if (stream !== undefined && stream.completed > joined.completed) joined = stream;
      }
      for (const clock of others) {
        const stream = clock.#streams[i];
        if (stream !== undefined && stream !== joined) joined = joinStreams(joined, stream);
      }
      streams.push(joined);
    }
    return new Clock(streams);
  }

  /** Without what blocks rely on, which others can do nothing with: reliances would keep each other alive. */
  withoutReliances(): Clock {
    if (this.#bare === null) {
      const streams = this.#streams.map((stream) => stream.withoutReliances());
      this.#bare = streams.every((stream, i) => stream === this.#streams[i]) ? this : new Clock(streams);
    }
    return this.#bare;
  }

  /** With that of each of these, of one stream and in order. */
  withBlocks(blocks: readonly ClockedBlock[], clock: BlockClock): Clock {
    return this.#withStream(blocks[0]!.stream, new StreamClock(0, blocks, Array(blocks.length).fill(clock)));
  }

  withCompleted(stream: number, step: number): Clock {
    return this.#withStream(stream, new StreamClock(step, [], []));
  }

  #withStream(index: number, addition: StreamClock): Clock {
    const streams = this.#streams.slice();
    while (streams.length <= index) streams.push(nothingOfStream);
    streams[index] = joinStreams(streams[index]!, addition);
    return new Clock(streams);
  }
}

export const nothing = new Clock([]);
