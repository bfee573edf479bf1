import { ArgumentError, DisposedError, requireInteger } from '../../../base/errors.js';
import { command, ringMask } from '../core/shared.js';
import { type Peer, type PeerGroup, Region } from './handles.js';
import type { Operations, Tally } from './operations.js';
import type { Peers } from './peers.js';
import type { CommandRing } from './ring.js';
import {
  type Barrier,
  type Paged,
  requireImmediate,
  requireOperation,
  requireSlice,
  type Scatter,
  type Write,
} from './transfers.js';
import type { Waitable } from './waiting.js';

/** Pages of one command: long enough to be cheap, short enough to leave room in the ring. */
const longestPiece = 1024;

interface PostingParts {
  /** The engine, which owns the regions that writes read. */
  readonly engine: Waitable;
  /** @throws when the engine is closed or broken */
  readonly requireOpen: () => void;
  readonly peers: Peers;
  readonly operations: Operations;
  readonly ring: CommandRing;
  /** Requests that one write becomes. */
  readonly shards: number;
  /** Writes that may be under way to a peer. */
  readonly queue: number;
  /** The most bytes that every device in use takes at once. */
  readonly longestWrite: number;
}

/**
 * Makes commands of writes and barriers: checked, when there is room, and without allocating anything. An operation needs a
 * ticket, a place in the ring of commands, and room in the queue of its peer, and waits for them. Operations end within the
 * timeout, so there will be some.
 */
export class Posting {
  readonly #engine: Waitable;
  readonly #requireOpen: () => void;
  readonly #peers: Peers;
  readonly #operations: Operations;
  readonly #ring: CommandRing;
  readonly #shards: number;
  readonly #queue: number;
  /** Requests under way to a peer at most. */
  readonly #capacity: number;
  readonly #longestWrite: number;

  constructor({ engine, requireOpen, peers, operations, ring, shards, queue, longestWrite }: PostingParts) {
    this.#engine = engine;
    this.#requireOpen = requireOpen;
    this.#peers = peers;
    this.#operations = operations;
    this.#ring = ring;
    this.#shards = shards;
    this.#queue = queue;
    this.#capacity = queue * shards;
    this.#longestWrite = longestWrite;
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
    this.#awaitRoom(peer);
    const ticket = this.#operations.begin('write', bytes, write, source, peer, null, this.#shards);
    const to = this.#ring.begin(command.toPeer, ticket, source, write.immediate, target, 1);
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
    this.#awaitRoom(peer);
    const requests = pages * this.#shards;
    const ticket = this.#operations.begin('paged write', bytes * pages, paged, source, peer, null, requests);
    // More pages than fit the peer's queue go in pieces, each when there is room. Where the peer is lost meanwhile,
    // the core ends each page with the error.
    for (let first = 0; first < pages; ) {
      const n = Math.min(this.#queue, longestPiece, pages - first);
      for (let idle = 0; !this.#has(peer, n); ) idle = this.#stall(idle, peer, n);
      this.#postPages(paged, ticket, first, n);
      first += n;
    }
  }

  #postPages(paged: Paged, ticket: number, first: number, n: number): void {
    const { source, target, sourceOffsets, targetOffsets, bytes } = paged;
    const { words } = this.#ring;
    let to = this.#ring.begin(command.toPeer, ticket, source, paged.immediate, target, n);
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
    this.#awaitRoomForAll(group);
    const ticket = this.#operations.begin('scatter', total, scatter, source, null, group, n * this.#shards);
    let to = this.#ring.begin(command.toGroup, ticket, source, scatter.immediate, group, n);
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
    this.#awaitRoomForAll(group);
    const requests = members.length * this.#shards;
    const ticket = this.#operations.begin('barrier', 0, barrier, null, null, group, requests);
    for (let i = 0; i < members.length; i++) this.#count(members[i]!.peer, 1);
    this.#ring.barrier(ticket, group, immediate);
  }

  /** Writes nothing in particular to a peer, where there is room; the answer says whether it has landed yet. */
  probe(peer: Peer): () => boolean {
    if (peer.lost || peer.removed || !this.#operations.available || !this.#has(peer, 1)) return () => false;
    const counter: Tally = { posted: 0, completed: 0, failed: 0, error: null };
    const ticket = this.#operations.begin('probe', 0, { counter }, null, peer, null, this.#shards);
    this.#count(peer, 1);
    this.#ring.barrier(ticket, peer.alone, undefined);
    return () => counter.completed > 0;
  }

  /** Whether an operation of one write to a peer can begin now. */
  fits(peer: Peer): boolean {
    this.#peers.requireReachable(peer);
    return this.#operations.available && this.#has(peer, 1);
  }

  /** Whether there is room for `n` more writes of an operation that has begun. */
  #has(peer: Peer, n: number): boolean {
    return peer.underway + n * this.#shards <= this.#capacity && this.#ring.fits(n);
  }

  /** Returns when an operation of one write to a peer can begin. */
  #awaitRoom(peer: Peer): void {
    for (let idle = 0; !this.fits(peer); ) idle = this.#stall(idle, peer, 1);
  }

  /** Returns when an operation of one write to each member can begin. */
  #awaitRoomForAll({ members }: PeerGroup): void {
    for (let idle = 0; ; ) {
      let full: Peer | undefined;
      for (let i = 0; i < members.length; i++) {
        const { peer } = members[i]!;
        this.#peers.requireReachable(peer);
        if (peer.underway + this.#shards > this.#capacity) full = peer;
      }
      if (full === undefined && this.#operations.available && this.#ring.fits(members.length)) return;
      idle = this.#stall(idle, full, 1);
    }
  }

  /** Waits a moment. A full queue is left to run half empty, so that its user is not woken for each write. */
  #stall(idle: number, peer: Peer | undefined, n: number): number {
    const { driver } = this.#engine;
    const heard = driver.heard();
    if (this.#engine.poll()) return 0;
    if (this.#engine.broken) throw this.#engine.broken;
    let missing = 0;
    if (!this.#operations.available) missing = this.#operations.underway >> 1;
    else if (peer !== undefined) {
      const over = peer.underway + n * this.#shards - this.#capacity;
      if (over > 0) missing = Math.max(over, peer.underway >> 1);
    }
    driver.pause(idle, heard, missing);
    return idle + 1;
  }

  #count(peer: Peer, writes: number): void {
    peer.posted = (peer.posted + writes * this.#shards) | 0;
  }

  #requireSource(region: Region): void {
    this.#requireOpen();
    if (!(region instanceof Region)) throw new ArgumentError('source', region, 'a region of this engine');
    if (region.closed) throw new DisposedError('the source region');
    if (region.owner !== this.#engine)
      throw new ArgumentError('source', region, 'a region of this engine, not of another');
  }
}
