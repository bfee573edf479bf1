import type { Address } from '../../../base/native/index.js';
import type { U64 } from '../libfabric/bindings.js';
import type { Endpoint, Post } from '../libfabric/endpoint.js';

/** Where writes to a region of a peer go on one rail: the lane, and what the peer told of the region. */
export interface Target {
  readonly lane: Lane;
  readonly base: number;
  /** Two halves of the key, as signed numbers: those are stored in the object itself. */
  readonly keyLow: number;
  readonly keyHigh: number;
}

/** The way to one peer over one rail, and the line of requests that libfabric had no room for. */
export class Lane {
  lost = false;
  /** The ends of the line, whose requests are linked through `next`; -1 when nothing waits. */
  firstWaiting = -1;
  lastWaiting = -1;
  /** Where an immediate without data lands: eight bytes that nobody reads. */
  mailbox!: Target;
  /** The values that posting needs, all in one place: a scatter comes by many lanes. */
  readonly address: Address;
  readonly writeMessage: Post;
  readonly peerLow: number;
  readonly peerHigh: number;

  constructor(
    /** Among all lanes of the engine. */
    readonly index: number,
    readonly peer: number,
    readonly rail: number,
    readonly endpoint: Endpoint,
    /** libfabric's handle of the peer in that endpoint. */
    readonly handle: U64,
  ) {
    this.address = endpoint.endpoint;
    this.writeMessage = endpoint.writeMessage;
    this.peerLow = handle.low | 0;
    this.peerHigh = handle.high | 0;
  }
}
