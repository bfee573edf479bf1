/**
 * The discrete-event check of the closed form: the same phase, message by message, from routes that were drawn. Every
 * GPU has a queue out of and into NVLink, every rank's NICs one out and one in; a message holds both ends for its bytes.
 * What the closed form cannot say shows here: how far ranks differ, bursts at a receiver, what one late rank does.
 */
import { requireInteger } from '../../base/errors.js';
import { limits, ownerOf, type Profile, type Shape } from '../../moe/layer/index.js';
import { drawRoutes } from './draw.js';
import { networkTime, type Parameters, partsOf, phaseTime, serial, time, type Work } from './model.js';
import { nodesOf, type RankPlacement, type RoutingLaw } from './routing.js';
import { chunksOf, type RoundHalf, type Way } from './traffic.js';

export interface Round {
  readonly layer: Profile;
  readonly place: RankPlacement;
  readonly way: Way;
  readonly phase: RoundHalf;
  readonly tokens: number;
  readonly rowBytes: number;
  readonly law: RoutingLaw;
  readonly parameters: Parameters;
  readonly replicas: number;
  readonly seed: number;
  /** µs by which rank 0 starts later than the others. */
  readonly late: number;
}

export interface Simulated {
  /** µs until each rank has all that is for it. */
  readonly ranks: readonly number[];
  /** The slowest's. */
  readonly time: number;
  /** The longest that a message waited for a receiver that was busy with others, µs. */
  readonly burst: number;
  readonly transfers: number;
  /** What the closed form says of these very routes. */
  readonly closed: number;
}

/** Messages of one row each beyond this are simulated in bundles for a peer. */
const mostRowMessages = 2_000_000;

/** What a rail forwards at a time. */
const pieceBytes = 64 * 1024;

export function simulate(round: Round): Simulated {
  const { place, parameters, late, tokens } = round;
  const { ranks } = place;
  requireInteger('ep', ranks, 1, limits.worldRanks);
  requireInteger('tokens', tokens, 1, 1 << 16);
  const transfers = transfersOf(round);
  const moved = movedBy(transfers, round);
  const size = { ranks, nodes: nodesOf(place) };
  const parts = partsOf(parameters, { ...moved.busiest, ...size });
  const start = Float64Array.from({ length: ranks }, (_, rank) => {
    // What cannot overlap comes first: the share of the shorter that is serial.
    const own = partsOf(parameters, { ...moved.of(rank), ...size });
    return (rank === 0 ? late : 0) + serial * Math.min(own.nvlink, networkTime(own));
  });
  const { ends, burst } = run(transfers, start, parameters, parts.network.latency);
  const times = Array.from(ends, (end) => phaseTime(parts, end));
  return {
    ranks: times,
    time: Math.max(...times),
    burst,
    transfers: transfers.count,
    closed: time(parameters, { ...moved.busiest, ...size }),
  };
}

const links = ['nvlink', 'network'] as const;
type Link = 0 | 1;

/** Transfers as columns, because there may be millions. */
class Transfers {
  count = 0;
  from = new Int32Array(1024);
  to = new Int32Array(1024);
  /** Index of `links`. */
  link = new Uint8Array(1024);
  bytes = new Float64Array(1024);
  posts = new Int32Array(1024);
  /** The transfer that waits for this one, or −1; or the first of those that this one lets go. */
  next = new Int32Array(1024);
  /** The following one of those that the same transfer lets go. */
  sibling = new Int32Array(1024);
  /** Transfers that must have arrived before. */
  waits = new Int32Array(1024);

  add(from: number, to: number, link: Link, bytes: number, posts: number): number {
    if (this.count === this.from.length) this.#grow();
    const i = this.count++;
    this.from[i] = from;
    this.to[i] = to;
    this.link[i] = link;
    this.bytes[i] = bytes;
    this.posts[i] = posts;
    this.next[i] = -1;
    this.sibling[i] = -1;
    return i;
  }

  /** `after` may start once `before` has arrived. */
  follow(before: number, after: number): void {
    this.waits[after]!++;
    this.sibling[after] = this.next[before]!;
    this.next[before] = after;
  }

  #grow(): void {
    const wider = <T extends Int32Array | Uint8Array | Float64Array>(old: T, made: T): T => {
      made.set(old);
      return made;
    };
    const size = 2 * this.count;
    this.from = wider(this.from, new Int32Array(size));
    this.to = wider(this.to, new Int32Array(size));
    this.link = wider(this.link, new Uint8Array(size));
    this.bytes = wider(this.bytes, new Float64Array(size));
    this.posts = wider(this.posts, new Int32Array(size));
    this.next = wider(this.next, new Int32Array(size));
    this.sibling = wider(this.sibling, new Int32Array(size));
    this.waits = wider(this.waits, new Int32Array(size));
  }
}

/** All transfers of a phase. Those of a rank that wait for nothing are in the order in which it sends them. */
function transfersOf(round: Round): Transfers {
  const { layer, place, way, phase, tokens, rowBytes, replicas } = round;
  const { ranks, perNode } = place;
  const shape = { ranks, experts: Math.max(layer.experts, ranks) };
  const routes = drawRoutes(layer, place, round.law, round);
  const nodeOf = (rank: number): number => Math.floor(rank / perNode);
  const out = new Transfers();
  /** Replicas share the sending, and each gets all of combine: as rows, or by rails as sums of the others. */
  const shares = phase === 'dispatch' || way.rows === 'rails';
  const shared = shares ? tokens / replicas : tokens;
  const metadata = phase === 'dispatch' && way.metadata === 'rows' ? 8 * layer.topK : 0;
  const row = rowBytes + metadata;
  const told = phase === 'dispatch' && way.metadata === 'every rank' ? 8 * layer.topK * shared : 0;
  const chunks = chunksOf(way, shared);
  const single =
    way.message === 'row' && way.rows !== 'rails' && ranks * tokens * layer.topK <= mostRowMessages;
  /** In combine everything goes the other way. */
  const send = (a: number, b: number, bytes: number, posts: number): number => {
    const link: Link = nodeOf(a) === nodeOf(b) ? 0 : 1;
    return phase === 'dispatch' ? out.add(a, b, link, bytes, posts) : out.add(b, a, link, bytes, posts);
  };
  /** Rows of a node cross the network one by one. */
  const unsummed = phase === 'combine' && way.sum === 'source';
  /** [source][rank] and [source][node]: rows. */
  const rowsTo = new Int32Array(ranks * ranks);
  const railRows = new Int32Array(ranks * nodesOf(place));
  const nodes = nodesOf(place);
  for (let token = 0; token < tokens; token++) {
    for (let source = 0; source < ranks; source++) {
      if (shares && token % replicas !== source % replicas) continue;
      const ids = routes[source]![token]!;
      const seen: number[] = [];
      for (const owner of ownersOf(shape, way, ids)) {
        rowsTo[source * ranks + owner]!++;
        seen.push(nodeOf(owner));
        if (single && owner !== source) send(source, owner, row, 1);
      }
      for (const node of unsummed ? seen : new Set(seen)) railRows[source * nodes + node]!++;
    }
  }
  // Everybody starts with its neighbour, so that not all send to the same.
  if (way.rows === 'rails') {
    // What crosses the network comes early: first where it is summed over NVLink before it goes.
    for (let n = 0; n < nodes; n++) addRails(phase === 'dispatch' ? n : (n + 1) % nodes);
    if (phase === 'combine') handSums();
  } else if (!single || told > 0) {
    for (let n = 1; n < ranks; n++) {
      for (let source = 0; source < ranks; source++) {
        const owner = (source + n) % ranks;
        const rows = single ? 0 : rowsTo[source * ranks + owner]!;
        const posts = (way.message === 'row' ? rows : Math.min(1, rows)) + (told > 0 ? chunks : 0);
        if (rows + told > 0) send(source, owner, rows * row + told, posts);
      }
    }
  }
  return out;

  /** Each rank's sums for the others of its group. */
  function handSums(): void {
    for (let rank = 0; rank < ranks; rank++) {
      for (let n = 1; n < replicas; n++) {
        const mate = rank - (rank % replicas) + ((rank + n) % replicas);
        out.add(rank, mate, 0, shared * rowBytes, 0);
      }
    }
  }

  /** Rows for the n-th node after the sender's, in pieces, so that a piece is forwarded while the next one comes. */
  function addRails(n: number): void {
    const node = (source: number): number => (nodeOf(source) + n) % nodes;
    const bytes = (source: number): number => railRows[source * nodes + node(source)]! * row + told;
    const least = way.message === 'chunk' ? 1 : 0;
    const pieces = Int32Array.from({ length: ranks }, (_, source) =>
      n === 0 ? 1 : Math.max(least, Math.ceil(bytes(source) / pieceBytes)),
    );
    /** Messages of a piece: one, or its share of the chunks. */
    const posts = (source: number, piece: number): number => {
      if (way.message !== 'chunk') return 1;
      const until = (end: number): number => Math.floor((end * chunks) / pieces[source]!);
      return until(piece + 1) - until(piece);
    };
    const most = Math.max(...pieces);
    for (let piece = 0; piece < most; piece++) {
      const going = [...pieces.keys()].filter((source) => piece < pieces[source]!);
      const rail = (source: number): number => node(source) * perNode + (source % perNode);
      const across = going.map((source) =>
        n === 0 ? -1 : send(source, rail(source), bytes(source) / pieces[source]!, posts(source, piece)),
      );
      for (let l = 1; l < perNode; l++) {
        for (const [i, source] of going.entries()) {
          const owner = node(source) * perNode + ((source + l) % perNode);
          const forwarded = (rowsTo[source * ranks + owner]! * row + told) / pieces[source]!;
          if (forwarded === 0) continue;
          const inside = send(rail(source), owner, forwarded, 0);
          if (n === 0) continue;
          if (phase === 'dispatch') out.follow(across[i]!, inside);
          else out.follow(inside, across[i]!);
        }
      }
    }
  }
}

/** With a rank for every row. */
function ownersOf(
  shape: Pick<Shape, 'ranks' | 'experts'>,
  way: Way,
  ids: ArrayLike<number>,
): readonly number[] {
  const owners = Array.from(ids, (id) => ownerOf(shape, id));
  return way.rows === 'expert' ? owners : [...new Set(owners)];
}

/** What every rank sends and gets, and the most of either. */
function movedBy(all: Transfers, { place }: Round) {
  const { ranks } = place;
  const zero = () => new Float64Array(ranks);
  const sides = { out: [zero(), zero()], in: [zero(), zero()] };
  const posts = zero();
  for (let i = 0; i < all.count; i++) {
    const link = all.link[i]!;
    sides.out[link]![all.from[i]!]! += all.bytes[i]!;
    sides.in[link]![all.to[i]!]! += all.bytes[i]!;
    if (link === 1) posts[all.from[i]!]! += all.posts[i]!;
  }
  const of = (rank: number): Omit<Work, 'ranks' | 'nodes'> => ({
    nvlinkBytes: sides.out[0]![rank]!,
    networkBytes: sides.out[1]![rank]!,
    messages: posts[rank]!,
  });
  const most = (link: 0 | 1) => Math.max(...sides.out[link]!, ...sides.in[link]!);
  const busiest = {
    nvlinkBytes: most(0),
    networkBytes: most(1),
    messages: Math.max(...posts),
  };
  return { of, busiest };
}

/** Runs the transfers; µs at which each rank had its last. */
function run(
  all: Transfers,
  start: Float64Array,
  of: Parameters,
  latency: number,
): { readonly ends: Float64Array; readonly burst: number } {
  const ranks = start.length;
  const nvlink = of.nvlink / 1e6;
  const nic = of.nic / 1e6;
  const free = links.map(() => ({ out: start.slice(), in: new Float64Array(ranks) }));
  const queues = new Queues(all, ranks);
  const ends = start.slice();
  const events = new Events();
  let burst = 0;
  for (let queue = 0; queue < 2 * ranks; queue++) {
    const first = queues.take(queue);
    if (first >= 0) events.push(start[queue >> 1]!, first << 1);
  }
  for (let event = events.pop(); event !== null; event = events.pop()) {
    const i = event.id >> 1;
    const link = all.link[i]! as Link;
    const { out, in: into } = free[link]!;
    const [from, to] = [all.from[i]!, all.to[i]!];
    const service =
      link === 0 ? all.bytes[i]! * nvlink : Math.max(all.bytes[i]! * nic, all.posts[i]! * of.message);
    if ((event.id & 1) === 0) {
      // Ready to be sent.
      const begin = Math.max(event.time, out[from]!);
      const sent = begin + service;
      out[from] = sent;
      events.push(begin + (link === 1 ? latency : 0), event.id | 1);
      if (all.waits[i] === 0) {
        const following = queues.take(2 * from + link);
        if (following >= 0) events.push(sent, following << 1);
      }
    } else {
      const begin = Math.max(event.time, into[to]!);
      burst = Math.max(burst, begin - event.time);
      const done = begin + service;
      into[to] = done;
      ends[to] = Math.max(ends[to]!, done);
      for (let after = all.next[i]!; after >= 0; after = all.sibling[after]!) {
        const left = --all.waits[after]!;
        if (left === 0) {
          all.waits[after] = -1;
          events.push(done, after << 1);
        }
      }
    }
  }
  return { ends, burst };
}

/** What each rank may send at once, by link, in order. Only the first of a queue is an event; it brings the next. */
class Queues {
  readonly #ids: Int32Array;
  readonly #at: Int32Array;
  readonly #end: Int32Array;

  constructor(all: Transfers, ranks: number) {
    const queueOf = (i: number): number => 2 * all.from[i]! + all.link[i]!;
    const sizes = new Int32Array(2 * ranks + 1);
    for (let i = 0; i < all.count; i++) if (all.waits[i] === 0) sizes[queueOf(i) + 1]!++;
    for (let q = 0; q < 2 * ranks; q++) sizes[q + 1]! += sizes[q]!;
    this.#at = sizes.slice(0, 2 * ranks);
    this.#end = this.#at.slice();
    this.#ids = new Int32Array(sizes[2 * ranks]!);
    for (let i = 0; i < all.count; i++) if (all.waits[i] === 0) this.#ids[this.#end[queueOf(i)]!++] = i;
  }

  /** The next of a queue; −1 from an empty one. */
  take(queue: number): number {
    return this.#at[queue]! < this.#end[queue]! ? this.#ids[this.#at[queue]!++]! : -1;
  }
}

/** A heap of events by time. */
class Events {
  #times = new Float64Array(1024);
  #ids = new Int32Array(1024);
  #size = 0;

  push(time: number, id: number): void {
    if (this.#size === this.#times.length) {
      const times = new Float64Array(2 * this.#size);
      times.set(this.#times);
      this.#times = times;
      const ids = new Int32Array(2 * this.#size);
      ids.set(this.#ids);
      this.#ids = ids;
    }
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (this.#times[parent]! <= time) break;
      this.#times[at] = this.#times[parent]!;
      this.#ids[at] = this.#ids[parent]!;
      at = parent;
    }
    this.#times[at] = time;
    this.#ids[at] = id;
  }

  pop(): { readonly time: number; readonly id: number } | null {
    if (this.#size === 0) return null;
    const first = { time: this.#times[0]!, id: this.#ids[0]! };
    const time = this.#times[--this.#size]!;
    const id = this.#ids[this.#size]!;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.#size) break;
      if (child + 1 < this.#size && this.#times[child + 1]! < this.#times[child]!) child++;
      if (this.#times[child]! >= time) break;
      this.#times[at] = this.#times[child]!;
      this.#ids[at] = this.#ids[child]!;
      at = child;
    }
    this.#times[at] = time;
    this.#ids[at] = id;
    return first;
  }
}
