import { HeddleError } from '../../../base/errors.js';

/** A libfabric call, or an operation that libfabric completed with an error, failed. */
export class FabricError extends HeddleError {
  constructor(
    /** The call that failed: a libfabric call or an operation of the engine. */
    readonly operation: string,
    /** libfabric's error number, positive. */
    readonly errno: number,
    reason: string,
    /** The name of the peer that the operation was for, where it was for one. */
    readonly peer: string | null = null,
  ) {
    super('HEDDLE_FABRIC', `${operation} failed: ${reason} (${errno})`);
  }
}

/** A peer was killed, cut off or unreachable: everything under way to it has ended with this. */
export class PeerLostError extends HeddleError {
  constructor(
    /** The names of the peers that did not answer, as given to `addPeer`. */
    readonly peers: readonly string[],
    /** The operation that this ended: 'write of 4096 bytes', 'barrier (immediate 7)', … */
    readonly operation: string,
    reason: string,
    /** Whether the own NIC failed, which says nothing of the peers. */
    readonly own = false,
  ) {
    const who = peers.length === 1 ? `peer ${peers[0]}` : `peers ${peers.join(', ')}`;
    super(
      'HEDDLE_PEER_LOST',
      `${who} was lost during ${operation}: ${reason}; remove it and go on without it`,
    );
  }
}

/** A wait for immediates ended without them, although every peer that was asked still answers. */
export class WaitTimeoutError extends HeddleError {
  constructor(
    /** The event that was awaited, and how much of it there was. */
    readonly operation: string,
    timeoutMs: number,
  ) {
    super(
      'HEDDLE_WAIT_TIMEOUT',
      `${operation} within ${timeoutMs} ms; check that the senders use this tag as often as the receiver waits for it`,
    );
  }
}
