/**
 * The discrete-event check of the closed form: the same phase, message by message, from routes that were drawn. Every
 * GPU has a queue out of and into NVLink, every rank's NICs one out and one in; a message holds both ends for its bytes.
 * Shows effects that the closed form cannot: how far ranks differ, bursts at a receiver, what one late rank does.
 */
import { ArgumentError } from '../../base/errors.js';
import type { Travel } from '../../moe/families/index.js';
import { ownerOf, type Profile, type Shape } from '../../moe/layer/index.js';
import { makeAllRoutes, type RouterLaw } from '../../verify/testing/index.js';
import { networkTime, type Parameters, partsOf, phaseTime, serial, time, type Work } from './model.js';
import { nodesOf, placed, type RoutingLaw } from './routing.js';
import { chunksOf, type Load, type RoundHalf } from './traffic.js';

export interface Round extends Omit<Load, 'hits' | 'topK'> {
  readonly layer: Profile;
  readonly way: Travel;
  readonly phase: RoundHalf;
  readonly law: RoutingLaw;
  readonly parameters: Parameters;
  readonly seed: number;
  /** µs by which rank 0 starts later than the others. */
  readonly late: number;
}

/** With more messages of one row each than this, the rows for a peer are simulated in bundles. */
const mostRowMessages = 2_000_000;

/** The amount that a rail forwards at a time. */
const pieceBytes = 64 * 1024;

/** Times in µs. */
export function simulate(round: Round) {
  const { place, parameters, late } = round;
  const { ranks } = place;
  const transfers = transfersOf(round);
  const moved = movedBy(transfers, round);
  const size = { ranks, nodes: nodesOf(place) };
  const parts = partsOf(parameters, { ...moved.busiest, ...size });
  const start = Float64Array.from({ length: ranks }, (_, rank) => {
    // The part that cannot overlap comes first: the share of the shorter that is serial.
    const own = partsOf(parameters, { ...moved.of(rank), ...size });
    return (rank === 0 ? late : 0) + serial * Math.min(own.nvlink, networkTime(own));
  });
  const { ends, burst } = run(transfers, start, parameters, parts.network.latency);
  const times = Array.from(ends, (end) => phaseTime(parts, end));
  return {
    // Until each rank has all that is for it, and the slowest's.
    ranks: times,
    time: Math.max(...times),
    // The longest that a message waited for a receiver that was busy with others.
    burst,
    transfers: transfers.count,
    // The answer of the closed form for these very routes.
    closed: time(parameters, { ...moved.busiest, ...size }),
  };
}

/** NVLink, or the network. */
type Link = 0 | 1;

/** Transfers as columns, because there may be millions. */
class Transfers {
  readonly from: number[] = [];
  readonly to: number[] = [];
  readonly link: Link[] = [];
  readonly bytes: number[] = [];
  readonly posts: number[] = [];
  /** The transfer that waits for this one, or −1; or the first of those that this one lets go. */
  readonly next: number[] = [];
  /** The following one of those that the same transfer lets go. */
  readonly sibling: number[] = [];
  /** Transfers that must have arrived before. */
  readonly waits: number[] = [];

  get count(): number {
    return this.from.length;
  }

  add(from: number, to: number, link: Link, bytes: number, posts: number): number {
    this.to.push(to);
    this.link.push(link);
    this.bytes.push(bytes);
    this.posts.push(posts);
    this.next.push(-1);
    this.sibling.push(-1);
    this.waits.push(0);
    return this.from.push(from) - 1;
  }

  /** `after` may start once `before` has arrived. */
  follow(before: number, after: number): void {
    this.waits[after]!++;
    this.sibling[after] = this.next[before]!;
    this.next[before] = after;
  }
}

/** All transfers of a phase. Those of a rank that wait for nothing are in the order in which it sends them. */
function transfersOf(round: Round): Transfers {
  const { layer, place, way, phase, tokens, rowBytes, replicas } = round;
  const { ranks, perNode } = place;
  const { topK } = layer;
  const shape = { ranks, experts: placed(layer.experts, ranks) };
  const routes = makeAllRoutes({ ...shape, topK, replicas }, tokens, round.seed, {
    router: routerOf(round.law),
  });
  const nodeOf = (rank: number): number => Math.floor(rank / perNode);
  const out = new Transfers();
  /** Replicas share the sending, and each gets all of combine: as rows, or by rails as sums of the others. */
  const shares = phase === 'dispatch' || way.rows === 'rails';
  const shared = shares ? tokens / replicas : tokens;
  const metadata = phase === 'dispatch' && way.metadata === 'rows' ? 8 * topK : 0;
  const row = rowBytes + metadata;
  const told = phase === 'dispatch' && way.metadata === 'every rank' ? 8 * topK * shared : 0;
  const chunks = chunksOf(way, shared);
  const single = way.message === 'row' && way.rows !== 'rails' && ranks * tokens * topK <= mostRowMessages;
  /** Rows of combine travel from the owner of an expert back to the source, so both ends change places. */
  const send = (a: number, b: number, bytes: number, posts: number): number => {
    const link: Link = nodeOf(a) === nodeOf(b) ? 0 : 1;
    return phase === 'dispatch' ? out.add(a, b, link, bytes, posts) : out.add(b, a, link, bytes, posts);
  };
  /** [source][rank] and [source][node]: rows. */
  const rowsTo = new Int32Array(ranks * ranks);
  const railRows = new Int32Array(ranks * nodesOf(place));
  const nodes = nodesOf(place);
  for (let token = 0; token < tokens; token++) {
    for (let source = 0; source < ranks; source++) {
      if (shares && token % replicas !== source % replicas) continue;
      const ids = routes[source]!.topkIds.subarray(token * topK, (token + 1) * topK);
      const seen = new Set<number>();
      for (const owner of ownersOf(shape, way, ids)) {
        rowsTo[source * ranks + owner]!++;
        seen.add(nodeOf(owner));
        if (single && owner !== source) send(source, owner, row, 1);
      }
      for (const node of seen) railRows[source * nodes + node]!++;
    }
  }
  // Everybody starts with its neighbour, so that not all send to the same.
  if (way.rows === 'rails') {
    // The part that crosses the network comes early: first where it is summed over NVLink before it goes.
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
    /** How many messages carry a piece: one, or as many as the chunks that fall to it. */
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

/** The law that draws routes as they are expected of this one. */
function routerOf(law: RoutingLaw): RouterLaw {
  if (law.kind === 'perfect') return { kind: 'balanced' };
  if (law.kind === 'skewed') return { kind: 'zipf', exponent: law.exponent };
  if (law.kind === 'uniform' && law.nodesAtMost === undefined) return { kind: 'uniform' };
  throw new ArgumentError('routes', law.kind, 'uniform, perfect or skewed for --simulate, which draws them');
}

/** With a rank for every row. */
function ownersOf(
  shape: Pick<Shape, 'ranks' | 'experts'>,
  way: Travel,
  ids: ArrayLike<number>,
): readonly number[] {
  const owners = Array.from(ids, (id) => ownerOf(shape, id));
  return way.rows === 'expert' ? owners : [...new Set(owners)];
}

/** The bytes that every rank sends and gets, and the most of either. */
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
function run(all: Transfers, start: Float64Array, of: Parameters, latency: number) {
  const ranks = start.length;
  const nvlink = of.nvlink / 1e6;
  const nic = of.nic / 1e6;
  const free = [0, 1].map(() => ({ out: start.slice(), in: new Float64Array(ranks) }));
  // The messages that each rank may send at once, by link, in order. Only the first of a queue is an event; it brings the next.
  const queues = Array.from({ length: 2 * ranks }, (): number[] => []);
  for (let i = 0; i < all.count; i++)
    if (all.waits[i] === 0) queues[2 * all.from[i]! + all.link[i]!]!.push(i);
  const sent = new Int32Array(2 * ranks);
  const ends = start.slice();
  const events = new Events();
  let burst = 0;
  for (let queue = 0; queue < 2 * ranks; queue++) {
    const [first] = queues[queue]!;
    if (first !== undefined) events.push(start[queue >> 1]!, first << 1);
  }
  for (let event = events.pop(); event !== null; event = events.pop()) {
    const i = event.id >> 1;
    const link = all.link[i]!;
    const { out, in: into } = free[link]!;
    const [from, to] = [all.from[i]!, all.to[i]!];
    const service =
      link === 0 ? all.bytes[i]! * nvlink : Math.max(all.bytes[i]! * nic, all.posts[i]! * of.message);
    if ((event.id & 1) === 0) {
      const begin = Math.max(event.time, out[from]!);
      out[from] = begin + service;
      events.push(begin + (link === 1 ? latency : 0), event.id | 1);
      if (all.waits[i] === 0) {
        const queue = 2 * from + link;
        const following = queues[queue]![++sent[queue]!];
        if (following !== undefined) events.push(begin + service, following << 1);
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

class Events {
  readonly #times: number[] = [];
  readonly #ids: number[] = [];

  push(time: number, id: number): void {
    let at = this.#times.length;
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
    const [times, ids] = [this.#times, this.#ids];
    if (times.length === 0) return null;
    const first = { time: times[0]!, id: ids[0]! };
    const [time, id] = [times.pop()!, ids.pop()!];
    const size = times.length;
    if (size === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && times[child + 1]! < times[child]!) child++;
      if (times[child]! >= time) break;
      times[at] = times[child]!;
      ids[at] = ids[child]!;
      at = child;
    }
    times[at] = time;
    ids[at] = id;
    return first;
  }
}
