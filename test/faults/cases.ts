/** What a case of the tests of faults says: the world, who falls, how and when. It travels to the processes as it is. */
import type { FabricOptions } from '../../src/net/world/index.js';

export const faults = ['killed', 'stopped', 'cut off', 'left by its proxy', 'robbed of its memory'] as const;
export type Fault = (typeof faults)[number];

/** Where in a round the victim is: before its second write, when the first has come, or with nothing under way. */
export const points = ['dispatchSend', 'dispatchRecv', 'experts', 'combineSend', 'combineRecv'] as const;
export type Point = (typeof points)[number];

export interface Case {
  readonly processes: number;
  /** Simulated GPUs of each process: a node. */
  readonly ranksHere: number;
  /** 'host:port' that the first process hosts, or where the processes meet in etcd; null where a launcher says it. */
  readonly meeting:
    | { readonly address: string }
    | { readonly rendezvous: string; readonly world: string }
    | null;
  readonly fabric: Pick<FabricOptions, 'provider' | 'devices'>;
  readonly waitMs: number;
  readonly lossTimeoutMs?: number;
  /** The others go on in the same world, and leave the victim's ranks out. */
  readonly masks?: boolean;
  /** Null: all is well, and after some rounds it ends. */
  readonly fall: {
    readonly process: number;
    readonly fault: Fault;
    readonly point: Point;
    /** The launcher is killed with it. */
    readonly launcher?: boolean;
    /** Pulls the victim's cable. */
    readonly cut: readonly string[];
  } | null;
}

/** What a rank says of its end. */
export interface Report {
  readonly rank: number;
  /** What its calls threw, null if nothing: the first that did, and the one behind it. */
  readonly first: Thrown | null;
  readonly again: Thrown | null;
  /** From the beginning of the round. */
  readonly ms: number;
  /** Likewise, to the end of the first round without those that fell; where masks are asked for. */
  readonly nextMs?: number;
  /** Sums that were not as they should be. */
  readonly wrong: number;
  /** Of each round that counts at last, who was left out; where masks are asked for. */
  readonly masked?: readonly (readonly number[])[];
}

export interface Thrown {
  readonly name: string;
  readonly message: string;
  readonly ranks: readonly number[];
  readonly operation: string | null;
  readonly epoch: number | null;
  /** What its causes say. */
  readonly why: readonly string[];
}
