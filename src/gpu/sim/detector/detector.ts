/**
 * The seam between the simulated machine and its race detector. In checked mode the machine reports every
 * synchronising event and every memory access here, in the order in which they happen in the simulated run; the
 * detector answers with findings. It influences the run in two ways only: it knows which older values an atomic load may
 * still read, and which stores an atomic store may come before, and the schedule picks one.
 *
 * Happens-before edges: program order; block barrier; warp barrier (all 32 lanes meet; votes and shuffles order
 * nothing); release → acquire through the value of one location, when the scopes of both include the other thread
 * (cta: same block; gpu: same rank; sys: any), also through chains of atomic read-modify-writes, and through
 * fence; relaxed store / relaxed load; fence; between two sequentially consistent fences; stream order between launches and host copies of one stream; events
 * between streams; the end of a launch → what the host or the stream does after it; programmatic launches only
 * from `awaitPrevious` on, and behind what threads of the launch before awaited before their `releaseNext`. Bulk and
 * asynchronous copies happen in agents of their issuing thread: after the issue, before the group's wait (or the mbarrier's
 * completion). Bulk copies are of the asynchronous proxy: they may rely on what their thread knows by way of a proxy fence of
 * the block, or from the end of a launch, and on other operations of that proxy of the block. A network's writes happen after they were posted, and before their tag is heard of, or before a release
 * signal that was posted behind them.
 */
import type { AccessForm, FenceOrder, Order, Scope, Space, Span } from '../../../lang/index.js';

/** A buffer of the simulated machine: device memory, a window, or a block's shared memory. */
export interface BufferInfo {
  readonly id: number;
  /** 'receive window', 'output' … */
  readonly purpose: string;
  /** The rank that owns it. */
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
export type CopyEngine = 'bulk' | 'async' | 'wgmma';
/** Where something is in memory. */
export interface Place {
  readonly buffer: BufferInfo;
  readonly offset: number;
}

export type AccessKind = AccessForm['kind'];

/** Dense numbers given by the machine; each stays unique for the whole run. */
export type ThreadId = number;
export type BlockId = number;
export type LaunchId = number;
export type StreamId = number;

/** The detector's own; the machine keeps it from when something is enqueued to when it begins. */
export type HostKnowledge = object;

export interface Detector {
  streamCreated(stream: StreamId, rank: number): void;
  /** Stream operations other than launches: copies and fills, by the host through the stream. */
  streamAccess(
    stream: StreamId,
    kind: 'read' | 'write',
    buffer: BufferInfo,
    offset: number,
    bytes: number,
  ): void;
  eventRecorded(stream: StreamId, event: number): void;
  eventAwaited(stream: StreamId, event: number): void;
  /** The host of `rank` has awaited everything on the stream. Work that it enqueues later, on any stream, is after it. */
  hostSynchronized(stream: StreamId, rank: number): void;
  /** The knowledge and deeds of the host program of `rank` so far. */
  hostKnows(rank: number): HostKnowledge;
  /** The joint knowledge of hosts that meet. */
  hostsTogether(known: readonly HostKnowledge[]): HostKnowledge;
  /** The host of `rank` has heard from hosts that knew that much. */
  hostHeard(rank: number, known: HostKnowledge): void;
  /** The stream begins what the host enqueued when it knew that much. */
  hostEnqueued(stream: StreamId, known: HostKnowledge): void;

  /**
   * A thread of a host begins; its accesses of mapped memory are told by `access`. It starts behind what the host program
   * of the rank knows and did. That program itself is the one without a name; all others end with `hostThreadEnded`.
   */
  hostThreadStarted(thread: ThreadId, rank: number, name: string | null): void;
  /** The host program has waited for the thread's end. */
  hostThreadEnded(thread: ThreadId, rank: number): void;

  launchStarted(
    launch: LaunchId,
    stream: StreamId,
    info: { rank: number; kernel: string; grid: number; block: number; programmatic: boolean },
  ): void;
  blockStarted(block: BlockId, launch: LaunchId, index: number, firstThread: ThreadId, threads: number): void;
  blockEnded(block: BlockId): void;
  launchEnded(launch: LaunchId): void;
  awaitPrevious(thread: ThreadId): void;
  releaseNext(thread: ThreadId): void;

  /**
   * One access by one thread, before it changes memory. `older`: a load reads not what is there but that entry, counted
   * from 1, of `olderValues`; a store comes before so many of `newerStores`.
   */
  access(
    thread: ThreadId,
    form: AccessForm,
    site: SiteId,
    buffer: BufferInfo,
    offset: number,
    older?: number,
  ): void;
  /** The older values that an atomic load may read: the words that hold those bytes, latest first. */
  olderValues(
    thread: ThreadId,
    buffer: BufferInfo,
    offset: number,
    bytes: number,
  ): readonly { readonly words: readonly number[] }[];
  /** How many stores that the run has made an atomic store may come before. */
  newerStores(thread: ThreadId, buffer: BufferInfo, offset: number, bytes: number): number;
  /** The value that the latest of the stores before others has stored. */
  cameBehind(words: readonly number[]): void;
  /** The loads of this run that read something older than what was there, for explaining what followed from it. */
  readonly staleReads: readonly StaleRead[];
  fence(thread: ThreadId, order: FenceKind, scope: Scope): void;
  /** Asynchronous operations that come after this may rely on what the thread knows and did in such memory. */
  proxyFence(thread: ThreadId, space: Space): void;
  blockBarrier(block: BlockId): void;
  /** Blocks that have started are a cluster; such blocks have met. */
  clusterStarted(blocks: readonly BlockId[]): void;
  clusterMet(blocks: readonly BlockId[]): void;
  /** Whole warps of a block met. */
  groupMet(threads: readonly ThreadId[]): void;
  /** The warp whose first thread is `firstLane` met at a warp barrier. */
  warpMet(firstLane: ThreadId, lanes: number): void;

  copyIssued(
    thread: ThreadId,
    engine: CopyEngine,
    group: number,
    /** Its reads and its writes; null for nothing. */
    source: Place | null,
    target: Place | null,
    bytes: number,
    site: SiteId,
  ): void;
  /** For `thread`, all groups of `issuer` numbered up to `group` are complete (or only their reads). */
  copiesAwaited(
    thread: ThreadId,
    engine: CopyEngine,
    group: number,
    readsOnly: boolean,
    issuer?: ThreadId,
  ): void;
  /** A thread, of a host or of a kernel, posts a write to a network; the write does what it does from now on, for itself. */
  networkPosted(write: number, by: ThreadId): void;
  /** Whether the thread comes behind the posting of a write. */
  knowsPosted(thread: ThreadId, write: number): boolean;
  networkMoved(
    write: number,
    source: { buffer: BufferInfo; offset: number },
    target: { buffer: BufferInfo; offset: number },
    bytes: number,
    site: SiteId,
  ): void;
  /** A thread of a host hears that the write has come: it knows all that led to it, and what the write did. */
  networkArrived(write: number, at: ThreadId): void;
  /** A write changes a word, atomically; as a release it comes behind others that have landed, and what they did. */
  networkSignalled(
    write: number,
    behind: readonly number[],
    form: AccessForm,
    site: SiteId,
    target: { buffer: BufferInfo; offset: number },
  ): void;

  /** A copy that the thread issues will arrive at that mbarrier, which it therefore has to know. */
  mbarrierNamed(thread: ThreadId, barrier: { buffer: BufferInfo; offset: number }, site: SiteId): void;
  /** The copies of one group have arrived at their mbarrier: who acquires it from now on sees them. */
  bulkArrived(
    thread: ThreadId,
    group: number,
    barrier: { buffer: BufferInfo; offset: number },
    site: SiteId,
  ): void;
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

/** A load that read an older value, as relaxed and acquire loads may; or a store that came before one that the run had made already. */
export interface StaleRead {
  readonly buffer: string;
  readonly location: string;
  readonly load: AccessReport;
  /** The value that it read, and who had stored it; null: it was there before any atomic store. Or what it stored itself. */
  readonly value: string;
  readonly from: AccessReport | null;
  /** The newest store, which it did not see, or came before. */
  readonly missing: AccessReport;
  readonly missingValue: string;
  /** The edge that would have put that store before the load. */
  readonly hint: string;
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
}
