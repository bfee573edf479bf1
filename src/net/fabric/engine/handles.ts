import { ArgumentError, DisposedError } from '../../../base/errors.js';
import type { Address } from '../../../base/native/index.js';
import { peerAlive } from '../core/shared.js';
import { encodeRegion, type RemoteKey } from '../libfabric/address.js';

/** An engine that this one exchanges data with. */
export class Peer {
  removed = false;
  /** Requests handed to the core so far, modulo 2^32; the core counts those that ended. @internal */
  posted = 0;
  readonly #states: Int32Array;

  /** @internal */
  constructor(
    readonly id: number,
    /** Its name in messages and errors. */
    readonly name: string,
    /** @internal */
    readonly engineId: string,
    /** Where writes of nothing go to it, for probes. @internal */
    readonly mailbox: { readonly index: number },
    states: Int32Array,
  ) {
    this.#states = states;
  }

  /** Whether the peer was killed, cut off or unreachable when this engine last sent to it. */
  get lost(): boolean {
    return this.#states[2 * this.id] !== peerAlive;
  }

  /** Requests that have not ended yet. @internal */
  get underway(): number {
    return (this.posted - this.#states[2 * this.id + 1]!) | 0;
  }
}

/** How the engine reaches the memory of a region. `staging`: through host memory, because the provider cannot. */
export type Path = 'host' | 'provider' | 'dmabuf' | 'staging';

/** Registered memory of this process: what writes read from and what peers write to. */
export class Region {
  closed = false;
  /** Operations that read from it now. @internal */
  underway = 0;
  /** The bytes that a peer needs to write here: bytes for `engine.remote`. */
  readonly descriptor: Uint8Array;
  readonly #memory: () => ArrayBuffer;
  readonly #onClose: (region: Region) => void;

  /** @internal */
  constructor(
    readonly index: number,
    readonly address: Address,
    readonly bytes: number,
    readonly path: Path,
    engine: string,
    rails: readonly RemoteKey[],
    /** @internal */
    readonly owner: object,
    memory: () => ArrayBuffer,
    onClose: (region: Region) => void,
  ) {
    this.#memory = memory;
    this.#onClose = onClose;
    this.descriptor = encodeRegion({ engine, bytes, rails });
  }

  /** The region's memory, without a copy. For GPU memory, see `path`: only staged regions have any on the host. */
  get buffer(): ArrayBuffer {
    if (this.closed) throw new DisposedError('this region');
    return this.#memory();
  }

  /**
   * Unregisters it. Memory that the engine allocated is freed, at the latest when the engine closes: a request to
   * a lost peer may still be read by the provider.
   */
  close(): void {
    if (this.closed) return;
    if (this.underway > 0) {
      throw new ArgumentError(
        'region.underway',
        this.underway,
        '0; wait for its operations before closing it',
      );
    }
    this.closed = true;
    this.#onClose(this);
  }
}

/** A region of a peer. */
export class RemoteRegion {
  /** @internal */
  constructor(
    readonly index: number,
    readonly peer: Peer,
    readonly bytes: number,
  ) {}
}

/** Regions of several peers that are written together. */
export class PeerGroup {
  /** @internal */
  constructor(
    readonly index: number,
    readonly members: readonly RemoteRegion[],
  ) {}

  get peers(): readonly Peer[] {
    return this.members.map((member) => member.peer);
  }
}
