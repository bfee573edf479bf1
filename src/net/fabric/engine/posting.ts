import { ArgumentError, DisposedError, requireInteger } from '../../../base/errors.js';
import type { CoreOptions } from '../core/core.js';
import { command, commandWords, controlWord, ringMask, transferHeader } from '../core/shared.js';
import { type Peer, type PeerGroup, Region } from './handles.js';
import type { Operations, Tally } from './operations.js';
import type { Peers } from './peers.js';
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

/** The objects that the core knows by number. */
interface Numbered {
  readonly index: number;
}

/** Empty writes name this region as their source. */
const mailbox: Numbered = { index: 0 };

/**
 * Makes commands of writes and barriers: checked, when there is room, and without allocating anything. An operation needs a
 * ticket, a place in the ring of commands, and room in the queue of its peer, and waits for them. Operations end within the
 * timeout, so there will be some. `requireOpen` throws when the engine is closed or broken; `shards`: requests that one write becomes.
 */
export function createPosting(
  engine: Waitable,
  requireOpen: () => void,
  peers: Peers,
  operations: Operations,
  { shared, queue, rails }: CoreOptions,
  shards: number,
) {
  const { driver } = engine;
  /** The most bytes that every device in use takes at once. */
  const longestWrite = Math.min(...rails.map(({ device }) => device.maxWriteBytes));
  /** Requests under way to a peer at most. */
  const capacity = queue * shards;
  // The ring of commands: what is written before its tail is the core's once the tail is published.
  const words = new Float64Array(shared.commands);
  const control = new Int32Array(shared.control);
  /** Where the next command begins, and how far the core was when it was looked at last. */
  let tail = 0;
  let head = 0;

  function write(write: Write): void {
    requireOperation('write', write);
    const { source, target, sourceOffset, targetOffset, bytes } = write;
    requireSource(source);
    peers.requireTarget(target);
    requireImmediate(write.immediate);
    requireSlice('sourceOffset', sourceOffset, bytes, source.bytes);
    requireSlice('targetOffset', targetOffset, bytes, target.bytes);
    if (bytes > longestWrite) requireInteger('bytes', bytes, 0, longestWrite);
    const { peer } = target;
    awaitRoom(peer);
    const ticket = operations.begin('write', bytes, write, source, peer, shards);
    const to = beginCommand(command.toPeer, ticket, source, write.immediate, target, 1);
    words[to & ringMask] = source.address + sourceOffset;
    words[(to + 1) & ringMask] = bytes;
    words[(to + 2) & ringMask] = targetOffset;
    count(peer, 1);
    publish(to + 3);
  }

  function paged(paged: Paged): void {
    requireOperation('paged', paged);
    const { source, target, sourceOffsets, targetOffsets, bytes } = paged;
    requireSource(source);
    peers.requireTarget(target);
    requireImmediate(paged.immediate);
    const pages = requireInteger('sourceOffsets.length', sourceOffsets?.length, 1, 2 ** 24);
    requireInteger('targetOffsets.length', targetOffsets?.length, pages, pages);
    for (let i = 0; i < pages; i++) {
      requireSlice('sourceOffsets', sourceOffsets[i]!, bytes, source.bytes);
      requireSlice('targetOffsets', targetOffsets[i]!, bytes, target.bytes);
    }
    if (bytes > longestWrite) requireInteger('bytes', bytes, 0, longestWrite);
    const { peer } = target;
    awaitRoom(peer);
    const requests = pages * shards;
    const ticket = operations.begin('paged write', bytes * pages, paged, source, peer, requests);
    // More pages than fit the peer's queue go in pieces, each when there is room. Where the peer is lost meanwhile,
    // the core ends each page with the error.
    for (let first = 0; first < pages; ) {
      const n = Math.min(queue, longestPiece, pages - first);
      for (let idle = 0; !has(peer, n); ) idle = stall(idle, peer, n);
      postPages(paged, ticket, first, n);
      first += n;
    }
  }

  function postPages(paged: Paged, ticket: number, first: number, n: number): void {
    const { source, target, sourceOffsets, targetOffsets, bytes } = paged;
    let to = beginCommand(command.toPeer, ticket, source, paged.immediate, target, n);
    for (let i = first; i < first + n; i++, to += 3) {
      words[to & ringMask] = source.address + sourceOffsets[i]!;
      words[(to + 1) & ringMask] = bytes;
      words[(to + 2) & ringMask] = targetOffsets[i]!;
    }
    count(target.peer, n);
    publish(to);
  }

  function scatter(scatter: Scatter): void {
    requireOperation('scatter', scatter);
    const { source, group, sourceOffsets, targetOffsets, bytes } = scatter;
    requireSource(source);
    peers.requireGroup(group);
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
    if (total > longestWrite) {
      for (let i = 0; i < n; i++) requireInteger('bytes', bytes[i]!, 0, longestWrite);
    }
    awaitRoomForAll(group);
    const ticket = operations.begin('scatter', total, scatter, source, group, n * shards);
    let to = beginCommand(command.toGroup, ticket, source, scatter.immediate, group, n);
    for (let i = 0; i < n; i++, to += 3) {
      words[to & ringMask] = source.address + sourceOffsets[i]!;
      words[(to + 1) & ringMask] = bytes[i]!;
      words[(to + 2) & ringMask] = targetOffsets[i]!;
      count(members[i]!.peer, 1);
    }
    publish(to);
  }

  function barrier(barrier: Barrier): void {
    requireOperation('barrier', barrier);
    const { group, immediate } = barrier;
    requireOpen();
    peers.requireGroup(group);
    requireInteger('immediate', immediate, 0, 2 ** 32 - 1);
    const { members } = group;
    awaitRoomForAll(group);
    const requests = members.length * shards;
    const ticket = operations.begin('barrier', 0, barrier, null, group, requests);
    for (let i = 0; i < members.length; i++) count(members[i]!.peer, 1);
    postBarrier(ticket, group, members.length, immediate);
  }

  /** Writes nothing in particular to a peer, where there is room; the answer says whether it has landed yet. */
  function probe(peer: Peer): () => boolean {
    if (peer.lost || peer.removed || !operations.available() || !has(peer, 1)) return () => false;
    const counter: Tally = { posted: 0, completed: 0, failed: 0, error: null };
    const ticket = operations.begin('probe', 0, { counter }, null, peer, shards);
    count(peer, 1);
    postBarrier(ticket, peer.mailbox, 1, undefined);
    return () => counter.completed > 0;
  }

  function fits(peer: Peer): boolean {
    peers.requireReachable(peer);
    return operations.available() && has(peer, 1);
  }

  /** Whether there is room for `n` more writes of an operation that has begun. */
  function has(peer: Peer, n: number): boolean {
    return peer.underway + n * shards <= capacity && hasPlace(n);
  }

  /** Returns when an operation of one write to a peer can begin. */
  function awaitRoom(peer: Peer): void {
    for (let idle = 0; !fits(peer); ) idle = stall(idle, peer, 1);
  }

  /** Returns when an operation of one write to each member can begin. */
  function awaitRoomForAll({ members }: PeerGroup): void {
    for (let idle = 0; ; ) {
      let full: Peer | undefined;
      for (let i = 0; i < members.length; i++) {
        const { peer } = members[i]!;
        peers.requireReachable(peer);
        if (peer.underway + shards > capacity) full = peer;
      }
      if (full === undefined && operations.available() && hasPlace(members.length)) return;
      idle = stall(idle, full, 1);
    }
  }

  /** Waits a moment. A full queue is left to run half empty, so that its user is not woken for each write. */
  function stall(idle: number, peer: Peer | undefined, n: number): number {
    const heard = driver.heard();
    if (engine.poll()) return 0;
    if (engine.broken) throw engine.broken;
    let missing = 0;
    if (!operations.available()) missing = operations.underway() >> 1;
    else if (peer !== undefined) {
      const over = peer.underway + n * shards - capacity;
      if (over > 0) missing = Math.max(over, peer.underway >> 1);
    }
    driver.pause(idle, heard, missing);
    return idle + 1;
  }

  function count(peer: Peer, writes: number): void {
    peer.posted = (peer.posted + writes * shards) | 0;
  }

  /** Whether a command of `n` triples fits. */
  function hasPlace(n: number): boolean {
    const needed = transferHeader + 3 * n;
    if (commandWords - ((tail - head) | 0) < needed) head = Atomics.load(control, controlWord.commandHead);
    return commandWords - ((tail - head) | 0) >= needed;
  }

  /** Writes the header of a transfer from a region to a peer's, or a group's; returns where its triples begin. */
  function beginCommand(
    kind: number,
    ticket: number,
    source: Numbered,
    immediate: number | undefined,
    target: Numbered,
    n: number,
  ): number {
    words[tail & ringMask] = kind;
    words[(tail + 1) & ringMask] = ticket;
    words[(tail + 2) & ringMask] = source.index;
    words[(tail + 3) & ringMask] = immediate ?? -1;
    words[(tail + 4) & ringMask] = target.index;
    words[(tail + 5) & ringMask] = n;
    return tail + transferHeader;
  }

  /** `n` writes of nothing, one to every member of a group or to a peer's mailbox, with or without an immediate. */
  function postBarrier(ticket: number, target: Numbered, n: number, immediate: number | undefined): void {
    const to = beginCommand(command.barrier, ticket, mailbox, immediate, target, n);
    for (let i = 0; i < 3; i++) words[(to + i) & ringMask] = 0;
    publish(to + 3);
  }

  function publish(end: number): void {
    tail = end | 0;
    Atomics.store(control, controlWord.commandTail, tail);
    driver.commandsWritten();
  }

  function requireSource(region: Region): void {
    requireOpen();
    if (!(region instanceof Region)) throw new ArgumentError('source', region, 'a region of this engine');
    if (region.closed) throw new DisposedError('the source region');
    if (region.owner !== engine)
      throw new ArgumentError('source', region, 'a region of this engine, not of another');
  }

  return { write, paged, scatter, barrier, probe, fits };
}
