import { ArgumentError, DisposedError, requireInteger } from '../../../base/errors.js';
import { command, ringMask } from '../core/shared.js';
import { type Peer, Region } from './handles.js';
import type { Callback, Operations } from './operations.js';
import type { Peers } from './peers.js';
import type { CommandRing } from './ring.js';
import type { Room } from './room.js';
import {
  type Barrier,
  type Paged,
  requireImmediate,
  requireOperation,
  requireSlice,
  type Scatter,
  type Write,
} from './transfers.js';

/** Pages of one command: long enough to be cheap, short enough to leave room in the ring. */
const longestPiece = 1024;

interface Parts {
  /** The engine, which owns the regions that writes read. */
  readonly owner: object;
  /** @throws when the engine is closed or broken */
  readonly requireOpen: () => void;
  readonly peers: Peers;
  readonly operations: Operations;
  readonly ring: CommandRing;
  readonly room: Room;
  /** Requests that one write becomes. */
  readonly shards: number;
  /** Writes that may be under way to a peer. */
  readonly queue: number;
  /** The most bytes that every device in use takes at once. */
  readonly longestWrite: number;
}

/** Makes commands of writes and barriers: checked, when there is room, and without allocating anything. */
export class Posting {
  readonly #owner: object;
  readonly #requireOpen: () => void;
  readonly #peers: Peers;
  readonly #operations: Operations;
  readonly #ring: CommandRing;
  readonly #room: Room;
  readonly #shards: number;
  readonly #queue: number;
  readonly #longestWrite: number;

  constructor(parts: Parts) {
    this.#owner = parts.owner;
    this.#requireOpen = parts.requireOpen;
    this.#peers = parts.peers;
    this.#operations = parts.operations;
    this.#ring = parts.ring;
    this.#room = parts.room;
    this.#shards = parts.shards;
    this.#queue = parts.queue;
    this.#longestWrite = parts.longestWrite;
  }

  write(write: Write): void {
    requireOperation('write', write);
    const { source, target, sourceOffset, targetOffset, bytes } = write;
    this.#requireSource(source);
    this.#peers.requireTarget(target);
    requireImmediate(write.immediate);
    requireSlice('sourceOffset', sourceOffset, bytes, source.bytes);
    requireSlice('targetOffset', targetOffset, bytes, target.bytes);
    if (bytes > this.#longestWrite) requireInteger('bytes', bytes, 0, this.#longestWrite);
    const { peer } = target;
    this.#room.await(peer);
    const ticket = this.#operations.begin('write', bytes, write, source, peer, null, this.#shards);
    const to = this.#ring.begin(command.toPeer, ticket, source.index, write.immediate, target.index, 1);
    const { words } = this.#ring;
    words[to & ringMask] = source.address + sourceOffset;
    words[(to + 1) & ringMask] = bytes;
    words[(to + 2) & ringMask] = targetOffset;
    this.#count(peer, 1);
    this.#ring.publish(to + 3);
  }

  paged(paged: Paged): void {
    requireOperation('paged', paged);
    const { source, target, sourceOffsets, targetOffsets, bytes } = paged;
    this.#requireSource(source);
    this.#peers.requireTarget(target);
    requireImmediate(paged.immediate);
    const pages = requireInteger('sourceOffsets.length', sourceOffsets?.length, 1, 2 ** 24);
    requireInteger('targetOffsets.length', targetOffsets?.length, pages, pages);
    for (let i = 0; i < pages; i++) {
      requireSlice('sourceOffsets', sourceOffsets[i]!, bytes, source.bytes);
      requireSlice('targetOffsets', targetOffsets[i]!, bytes, target.bytes);
    }
    if (bytes > this.#longestWrite) requireInteger('bytes', bytes, 0, this.#longestWrite);
    const { peer } = target;
    this.#room.await(peer);
    const requests = pages * this.#shards;
    const ticket = this.#operations.begin('paged write', bytes * pages, paged, source, peer, null, requests);
    // More pages than fit the peer's queue go in pieces, each when there is room. Where the peer is lost meanwhile,
    // the core ends each page with the error.
    for (let first = 0; first < pages; ) {
      const n = Math.min(this.#queue, longestPiece, pages - first);
      this.#room.awaitMore(peer, n);
      this.#postPages(paged, ticket, first, n);
      first += n;
    }
  }

  #postPages(paged: Paged, ticket: number, first: number, n: number): void {
    const { source, target, sourceOffsets, targetOffsets, bytes } = paged;
    const { words } = this.#ring;
    let to = this.#ring.begin(command.toPeer, ticket, source.index, paged.immediate, target.index, n);
    for (let i = first; i < first + n; i++, to += 3) {
      words[to & ringMask] = source.address + sourceOffsets[i]!;
      words[(to + 1) & ringMask] = bytes;
      words[(to + 2) & ringMask] = targetOffsets[i]!;
    }
    this.#count(target.peer, n);
    this.#ring.publish(to);
  }

  scatter(scatter: Scatter): void {
    requireOperation('scatter', scatter);
    const { source, group, sourceOffsets, targetOffsets, bytes } = scatter;
    this.#requireSource(source);
    this.#peers.requireGroup(group);
    requireImmediate(scatter.immediate);
    const { members } = group;
    const n = members.length;
    requireInteger('sourceOffsets.length', sourceOffsets?.length, n, n);
    requireInteger('targetOffsets.length', targetOffsets?.length, n, n);
    requireInteger('bytes.length', bytes?.length, n, n);
    let total = 0;
    for (let i = 0; i < n; i++) {
      requireSlice('sourceOffsets', sourceOffsets[i]!, bytes[i]!, source.bytes);
      requireSlice('targetOffsets', targetOffsets[i]!, bytes[i]!, members[i]!.bytes);
      total += bytes[i]!;
    }
    if (total > this.#longestWrite) {
      for (let i = 0; i < n; i++) requireInteger('bytes', bytes[i]!, 0, this.#longestWrite);
    }
    this.#room.awaitAll(group);
    const ticket = this.#operations.begin('scatter', total, scatter, source, null, group, n * this.#shards);
    let to = this.#ring.begin(command.toGroup, ticket, source.index, scatter.immediate, group.index, n);
    const { words } = this.#ring;
    for (let i = 0; i < n; i++, to += 3) {
      words[to & ringMask] = source.address + sourceOffsets[i]!;
      words[(to + 1) & ringMask] = bytes[i]!;
      words[(to + 2) & ringMask] = targetOffsets[i]!;
      this.#count(members[i]!.peer, 1);
    }
    this.#ring.publish(to);
  }

  barrier(barrier: Barrier): void {
    requireOperation('barrier', barrier);
    const { group, immediate } = barrier;
    this.#requireOpen();
    this.#peers.requireGroup(group);
    requireInteger('immediate', immediate, 0, 2 ** 32 - 1);
    const { members } = group;
    this.#room.awaitAll(group);
    const requests = members.length * this.#shards;
    const ticket = this.#operations.begin('barrier', 0, barrier, null, null, group, requests);
    for (let i = 0; i < members.length; i++) this.#count(members[i]!.peer, 1);
    this.#ring.barrier(ticket, group.index, immediate);
  }

  /** Writes nothing in particular to a peer, where there is room; the answer says whether it has landed yet. */
  probe(peer: Peer): () => boolean {
    if (peer.lost || peer.removed || !this.#operations.available || !this.#room.has(peer, 1))
      return () => false;
    let landed = false;
    const callback: Callback = (error) => {
      landed = error === null;
    };
    const ticket = this.#operations.begin('probe', 0, { callback }, null, peer, null, this.#shards);
    this.#count(peer, 1);
    this.#ring.barrier(ticket, peer.alone, undefined);
    return () => landed;
  }

  #count(peer: Peer, writes: number): void {
    peer.posted = (peer.posted + writes * this.#shards) | 0;
  }

  #requireSource(region: Region): void {
    this.#requireOpen();
    if (!(region instanceof Region)) throw new ArgumentError('source', region, 'a region of this engine');
    if (region.closed) throw new DisposedError('the source region');
    if (region.owner !== this.#owner)
      throw new ArgumentError('source', region, 'a region of this engine, not of another');
  }
}
