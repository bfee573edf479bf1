import type { Progress } from './driver.js';
import type { Peer, PeerGroup } from './handles.js';
import type { Operations } from './operations.js';
import type { Peers } from './peers.js';
import type { CommandRing } from './ring.js';

/**
 * Back-pressure. An operation needs a ticket, a place in the ring of commands, and room in the queue of its peer; who
 * finds none waits here. Operations end within the timeout, so there will be some.
 */
export class Room {
  readonly #engine: Progress;
  readonly #peers: Peers;
  readonly #operations: Operations;
  readonly #ring: CommandRing;
  /** Requests that one write becomes, and requests under way to a peer at most. */
  readonly #shards: number;
  readonly #capacity: number;

  constructor(
    engine: Progress,
    {
      peers,
      operations,
      ring,
      shards,
      queue,
    }: {
      readonly peers: Peers;
      readonly operations: Operations;
      readonly ring: CommandRing;
      readonly shards: number;
      readonly queue: number;
    },
  ) {
    this.#engine = engine;
    this.#peers = peers;
    this.#operations = operations;
    this.#ring = ring;
    this.#shards = shards;
    this.#capacity = queue * shards;
  }

  /** Whether an operation of one write to a peer can begin now. */
  fits(peer: Peer): boolean {
    this.#peers.requireReachable(peer);
    return this.#operations.available && this.has(peer, 1);
  }

  /** Whether `n` writes to a peer find room, for an operation that has begun. */
  has(peer: Peer, n: number): boolean {
    return peer.underway + n * this.#shards <= this.#capacity && this.#ring.fits(n);
  }

  /** Returns when an operation of one write to a peer can begin. */
  await(peer: Peer): void {
    for (let idle = 0; !this.fits(peer); ) idle = this.#stall(idle, peer);
  }

  /** Returns when `n` more writes of an operation find room. A peer that is lost meanwhile takes them, too. */
  awaitMore(peer: Peer, n: number): void {
    for (let idle = 0; !this.has(peer, n); ) idle = this.#stall(idle, peer, n);
  }

  /** Returns when an operation of one write to each member can begin. */
  awaitAll(group: PeerGroup): void {
    for (let idle = 0; !this.#fitsAll(group); ) idle = this.#stall(idle, this.#fullMember(group));
  }

  /** Returns when a command that is no operation finds room. */
  awaitCommand(): void {
    for (let idle = 0; !this.#ring.fits(0); ) idle = this.#stall(idle);
  }

  #fitsAll({ members }: PeerGroup): boolean {
    if (!this.#operations.available || !this.#ring.fits(members.length)) return false;
    let fits = true;
    for (let i = 0; i < members.length; i++) {
      const { peer } = members[i]!;
      this.#peers.requireReachable(peer);
      if (peer.underway + this.#shards > this.#capacity) fits = false;
    }
    return fits;
  }

  #fullMember(group: PeerGroup): Peer | undefined {
    return group.members.find(({ peer }) => peer.underway + this.#shards > this.#capacity)?.peer;
  }

  /** Waits a moment. What is full is let run half empty, so that its user is not woken for each write. */
  #stall(idle: number, peer?: Peer, n = 1): number {
    const { driver } = this.#engine;
    const heard = driver.heard();
    if (this.#engine.poll()) return 0;
    if (this.#engine.broken) throw this.#engine.broken;
    let lacking = 0;
    if (!this.#operations.available) lacking = this.#operations.underway >> 1;
    else if (peer !== undefined && peer.underway + n * this.#shards > this.#capacity) {
      lacking = Math.max(peer.underway + n * this.#shards - this.#capacity, peer.underway >> 1);
    }
    driver.pause(idle, heard, lacking);
    return idle + 1;
  }
}
