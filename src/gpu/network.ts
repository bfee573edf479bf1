/**
 * Proxies: programs beside a rank's kernels that move bytes for them. A proxy's step looks at words in mapped memory that kernels
 * write, posts writes to a network, and raises words that kernels wait for. On a GPU's host it runs in a thread of its own; beside
 * a simulated GPU the machine gives it turns, and the race detector sees what it does.
 */
import type { HostView, WireSide } from './device.js';

/** A write from this rank's wire memory into a peer's. Fill in one object again and again: posting allocates nothing. */
export interface RemoteWrite {
  peer: number;
  /** Offsets, in this rank's memory and in the peer's. */
  from: number;
  to: number;
  bytes: number;
  /** 31 bits of the sender's choice. */
  tag: number;
}

/** The calls by which a proxy uses a network: writes from this rank's wire memory into that of others. */
export interface Network {
  /**
   * Posts a write, whose description it reads during this call only. Once all bytes are there the peer's `arrived` gives the
   * tag, once; until then the source may be read at any time. Writes overtake each other, and a tag says nothing about any
   * write but its own.
   * False where nothing can be posted now, and nothing was.
   */
  write(write: Readonly<RemoteWrite>): boolean;
  /** The tag of a write that has come; -1 where none has since the last one that was given. */
  arrived(): number;
}

export interface ProxyParts<Data = unknown> {
  /** This rank and how many there are: the network's peers are others. */
  readonly rank: number;
  readonly ranks: number;
  /** The ranks that are left out, in order: nothing goes to them, and nothing comes from them. */
  readonly out: readonly number[];
  readonly network: Network;
  /** The memory that kernels and the network share, of which every rank has the same. */
  readonly memory: HostView;
  /** Where the part of it lies that the network reaches. If that is in the GPU's memory, `memory` ends before it. */
  readonly side: WireSide;
  readonly data: Data;
}

/** A proxy's program: what a module's export makes, once all ranks are connected. */
export interface ProxyProgram {
  /**
   * One turn, which never waits and allocates nothing. True when it did anything. The thread naps after many turns
   * that did nothing.
   */
  step(): boolean;
}
export type ProxyMaker<Data = unknown> = (parts: ProxyParts<Data>) => ProxyProgram;
