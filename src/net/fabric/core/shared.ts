import { ImmediateQueue, ImmediateTable } from './immediates.js';

/**
 * The memory that the caller's side of an engine and the thread that drives libfabric (the core) share. The
 * caller writes commands into one ring and the core answers in another; each ring has one writer and one reader,
 * so a sequentially consistent store of its tail publishes everything written before it.
 */
export interface Shared {
  /** Control words, at the indices of `controlWord`. */
  readonly control: SharedArrayBuffer;
  /** Commands, as 64-bit floats: they hold addresses, lengths and 32-bit numbers exactly. */
  readonly commands: SharedArrayBuffer;
  /** Ends of operations: `eventWords` words each. */
  readonly events: SharedArrayBuffer;
  /** Requests left of each operation, by ticket. Set by the caller before the command, counted down by the core. */
  readonly remaining: SharedArrayBuffer;
  /** Two words a peer: its state, and how many of its requests have ended (modulo 2^32). */
  readonly peers: SharedArrayBuffer;
  /** Immediates that have landed: a table that counts them, or a queue that lists them. */
  readonly immediates: SharedArrayBuffer;
}

/** Indices into the control words, a cache line apart where two threads write them. */
export const controlWord = {
  commandTail: 0,
  commandHead: 16,
  eventTail: 32,
  eventHead: 48,
  /** The number of events that the caller may wait for (modulo 2^32): requests ended, writes and messages landed. */
  bell: 64,
  /**
   * A caller sets this when it sleeps until the bell has reached `wakeAt`; the side that ends the sleep clears it.
   */
  callerSleeps: 80,
  wakeAt: 81,
  coreSleeps: 82,
  /** 0, and then what the core's thread is to do: `stopping`, `closing`. */
  stop: 83,
  stopped: 85,
  request: 84,
  reply: 96,
  immediatesLost: 97,
  count: 112,
} as const;

/** Looks for nothing any more, but keeps its endpoints: endpoints of a process may share memory, so all stop before the first closes. */
export const stopping = 1;
/** Frees everything, and ends. */
export const closing = 2;

/** Where the core's thread says that it has stopped, and that it has closed. */
export const stoppedWord = ({ control }: Shared): Int32Array =>
  new Int32Array(control, 4 * controlWord.stopped, 1);

/** An event: ticket, error number (0 for success), peer that it is about. */
export const eventWords = 4;

export const peerAlive = 0;
export const peerLost = 1;

/**
 * Commands: [kind, ticket, local region, immediate or -1, target, number of writes], then triples
 * (source address, bytes, target offset).
 */
export const command = {
  /** All writes go to one remote region, and each has a triple. */
  toPeer: 1,
  /** A write goes to each member of a group, and each has a triple. */
  toGroup: 2,
  /** A write goes to each member of a group, or to a peer's mailbox. One triple is for all, and moves no bytes. */
  barrier: 3,
} as const;
export const transferHeader = 6;

/** The most operations under way at once, a power of two, and the most peers. */
const operations = 4096;
const peers = 1024;

/** Doubles in the command ring; also bounds one command, so the caller splits longer ones. */
export const commandWords = 32768;
/** Positions in the ring are taken modulo its length, with this. */
export const ringMask = commandWords - 1;

/** A power of two. */
const queuedImmediates = 4096;

/** `immediates`: how many different ones the table has room for; null for a queue. */
export function createShared(immediates: number | null): Shared {
  return {
    control: new SharedArrayBuffer(controlWord.count * 4),
    commands: new SharedArrayBuffer(commandWords * 8),
    // An operation ends once, so a ring as long as the tickets never overflows.
    events: new SharedArrayBuffer(operations * eventWords * 4),
    remaining: new SharedArrayBuffer(operations * 4),
    peers: new SharedArrayBuffer(peers * 8),
    immediates:
      immediates === null ? ImmediateQueue.allocate(queuedImmediates) : ImmediateTable.allocate(immediates),
  };
}
