/** The words that the simulated machine and its race detector share, and the findings. */
import type { AccessForm, FenceOrder, Order, Scope, Space, Span } from '../../../lang/index.js';

/**
 * What GPUs order today though PTX's memory model does not. `launches`: a launch begins and ends with a fence of all GPUs.
 * `barriers`: what a thread has fenced comes, behind a barrier, before the stores of all its threads.
 * `places`: who has seen an atomic's value stores behind it, ordinary stores too.
 * `volatile`: a thread that has seen a volatile load's value goes on behind it, and such a load comes behind what its block has seen. `vectors`: an atomic access of a vector is one access.
 */
export const assumptions = ['launches', 'barriers', 'clusters', 'places', 'volatile', 'vectors'] as const;
export type Assumption = (typeof assumptions)[number];

/** A buffer of the simulated machine: device memory, a window, or a block's shared memory. */
export interface BufferInfo {
  readonly id: number;
  /** 'receive window', 'output' … */
  readonly purpose: string;
  readonly rank: number;
  readonly space: Space;
  readonly bytes: number;
  /** The bytes that are there. */
  readonly i32: Int32Array;
  /** The meaning of an offset, for people: 'arrived[3]', 'byte 96'. */
  describe(offset: number): string;
}

/** Identifies a line of a kernel: index into the sites that its compiled module registered. */
export type SiteId = number;

export interface Site {
  readonly kernel: string;
  readonly span: Span;
  /** 'dispatch.ts:41:7' */
  readonly where: string;
  /** The source text of the statement, one line. */
  readonly text: string;
}

/** Fences of one direction only PTX has. */
export type FenceKind = FenceOrder | 'acquire' | 'release';

/** The agents that copy beside a thread: bulk copies, or asynchronous loads. Each counts its own groups. */
/** … and what Blackwell does in tensor memory: products, and moves from and to registers. */
export type CopyEngine = 'bulk' | 'async' | 'wgmma' | 'tcgen05' | 'tmem';
/** The memory that a proxy fence is about, and tensor maps, which copies read by a path of their own. */
export type ProxyPath = Space | 'map';
export interface BufferPlace {
  readonly buffer: BufferInfo;
  readonly offset: number;
}

export type AccessKind = AccessForm['kind'];

export interface DetectedForm extends AccessForm {
  /** A weak load by way of a cache that sees only what was there when its launch began. */
  readonly incoherent?: boolean;
}

/** The findings of a run. A finding is data: `formatFinding` makes it text. */
export type Finding = {
  readonly seed: string;
  readonly configuration: string;
  /** Where the finding is no race and loads before it read something older than they might have. */
  readonly stale?: readonly StaleRead[];
} & (
  | {
      readonly kind: 'race';
      readonly buffer: string;
      readonly location: string;
      readonly first: AccessReport;
      readonly second: AccessReport;
      readonly hint: string;
      readonly mend: Mend | null;
    }
  | {
      readonly kind: 'uninitialised-read' | 'out-of-bounds' | 'misaligned';
      readonly buffer: string;
      readonly location: string;
      readonly access: AccessReport;
    }
  | {
      /** Something that the machine forbids, or leaves undefined. */
      readonly kind: 'misuse';
      readonly message: string;
      readonly buffer: string;
      readonly location: string;
      readonly access: AccessReport;
    }
  | {
      readonly kind: 'divergence';
      readonly operation: string;
      readonly where: string;
      readonly rank: number;
      readonly kernel: string;
      readonly block: number;
      readonly present: readonly number[];
      readonly absent: readonly number[];
    }
  | {
      readonly kind: 'stuck-wait';
      readonly waiting: readonly (AccessReport & {
        readonly location: string;
        readonly value: string;
        readonly wanted: string;
      })[];
    }
  | { readonly kind: 'wrong-result'; readonly message: string }
  | { readonly kind: 'failure'; readonly message: string }
);

/**
 * A load that read an older value, as relaxed and acquire loads may; or a store that came before one that the run had made already;
 * or a load or update that came late.
 */
export interface StaleRead {
  readonly buffer: string;
  readonly location: string;
  readonly load: AccessReport;
  /** The value that it read, and who had stored it; null: it was there before any atomic store. Or what it stored itself. */
  readonly value: string;
  readonly from: AccessReport | null;
  /** The newest store, which it did not see, or came before. */
  readonly missing: AccessReport;
  /** Null: the load came behind that store, of its own thread, which stands behind it. */
  readonly missingValue: string | null;
  /** The edge that would have put that store before the load. */
  readonly hint: string;
  readonly mend: Mend | null;
}

/** A change that would order accesses: something beside an access, or that access with a wider scope. To be tried. */
export interface Mend {
  /** `quiet`: a wait until nobody else in that scope can go on, which then comes behind all that they did. */
  readonly kind: 'fence' | 'barrier' | 'proxy' | 'scope' | 'quiet';
  readonly side: 'before' | 'after';
  /** Where the access stands. */
  readonly where: string;
  readonly access: AccessKind;
  readonly scope: Scope;
}

/** Says which call of a program has enqueued something; null where that is not known. */
export type Origin = () => string | null;

export function originOf(origin: Origin | null): Pick<AccessReport, 'origin'> {
  const text = origin?.() ?? null;
  return text === null ? {} : { origin: text };
}

export interface AccessReport {
  /** 'address': nothing was accessed, only addressed. */
  readonly kind: AccessKind | 'wait' | 'address';
  readonly order: Order;
  readonly scope: Scope;
  readonly rank: number;
  readonly kernel: string;
  readonly block: number;
  readonly thread: number;
  readonly where: string;
  readonly text: string;
  /** The function of the program that has enqueued the launch or the copy, and its callers. */
  readonly origin?: string;
}
