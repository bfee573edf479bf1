/** Streams, events and graphs of the simulated machine: work in order. */

import { ArgumentError, DisposedError, HeddleError, requireInteger } from '../../base/errors.js';
import type { Event, Graph, Stream } from '../index.js';
import { type Clock, nothing } from './detector/clock.js';
import { type Origin, originOf } from './detector/detector.js';
import type { Engine } from './engine.js';
import { type AddressSpace, type ByteAt, maxBufferBytes, type SimBuffer } from './memory.js';
import { move } from './posted.js';
import { Agent, type Task } from './schedule.js';
import type { SimLaunch } from './thread.js';

interface Recording {
  /** What came before it, once it is done. */
  known: Clock;
  done: boolean;
  at: number;
  readonly waiting: SimStream[];
}

/** A launch, with the parameters that it had when it was enqueued. */
interface LaunchRequest {
  readonly programmatic: boolean;
  make(previous: SimLaunch | null, stream: SimStream): SimLaunch;
}

type Operation =
  | { readonly kind: 'launch'; readonly request: LaunchRequest }
  | { readonly kind: 'wait'; readonly recording: Recording }
  | { readonly kind: 'work'; run(on: SimStream): void };

/** An event that is recorded while streams capture: every replay records it anew. */
interface Mark {
  readonly capture: Capture;
  awaited: boolean;
}

type Captured =
  | Operation
  | { readonly kind: 'mark'; readonly mark: Mark }
  | { readonly kind: 'await mark'; readonly mark: Mark };

/** The work that streams enqueue from beginCapture to endCapture of the first of them; the others join by waiting for its events. */
class Capture {
  readonly operations: { readonly stream: SimStream; readonly operation: Captured }[] = [];
  readonly joined = new Set<SimStream>();
  ended = false;

  /** Requires that the first stream has waited for the end of every other. */
  requireJoined(): void {
    for (const stream of this.joined) {
      const last = this.operations.findLast((one) => one.stream === stream)!.operation;
      if (last.kind === 'mark' && last.mark.awaited) continue;
      throw new HeddleError(
        'HEDDLE_CAPTURE',
        'endCapture while another stream captures too: record an event there, and wait for it here, before',
      );
    }
  }
}

function requireAllocated(buffer: SimBuffer): void {
  if (!buffer.freed) return;
  throw new HeddleError(
    'HEDDLE_FREED',
    `'${buffer.purpose}' of rank ${buffer.rank} was freed before a copy or fill that was enqueued earlier; synchronize before free`,
  );
}

/** Each step counts as one, and what threads sleep or spin away at the clock. */
const nanosecondsPerMillisecond = 1e6;

export class SimEvent implements Event {
  recording: Recording | null = null;
  /** Where it was last recorded by a stream that captured. */
  mark: Mark | null = null;
  #disposed = false;

  elapsedSince(start: Event): number {
    if (this.#disposed) throw new DisposedError('the event');
    const from = start instanceof SimEvent ? start.recording : null;
    if (from === null || !from.done) {
      throw new ArgumentError('start', start, 'an event of this machine that was recorded and is done');
    }
    if (this.recording === null || !this.recording.done) {
      throw new HeddleError(
        'HEDDLE_NOT_READY',
        'the event was not recorded or is not done; synchronize first',
      );
    }
    return (this.recording.at - from.at) / nanosecondsPerMillisecond;
  }

  dispose(): void {
    this.#disposed = true;
  }
}

class SimGraph implements Graph {
  #disposed = false;
  /** Work that other streams captured runs on streams of the graph's own, and counts as theirs. */
  readonly #own = new Map<SimStream, SimStream>();
  readonly #first: SimStream;
  readonly #capture: Capture;
  readonly #engine: Engine;

  constructor(first: SimStream, capture: Capture, engine: Engine) {
    this.#first = first;
    this.#capture = capture;
    this.#engine = engine;
    for (const stream of capture.joined) this.#own.set(stream, stream.another());
  }

  launch(stream: Stream): void {
    if (this.#disposed) throw new DisposedError('the graph');
    const { rank } = this.#first;
    if (!(stream instanceof SimStream) || !stream.belongsTo(this.#engine) || stream.rank !== rank) {
      throw new ArgumentError('stream', stream, `a stream of the simulated GPU #${rank}, whose graph it is`);
    }
    const recordings = new Map<Mark, Recording>();
    for (const { stream: from, operation } of this.#capture.operations) {
      const on = from === this.#first ? stream : this.#own.get(from)!;
      if (operation.kind === 'mark') recordings.set(operation.mark, on.enqueueRecording());
      else if (operation.kind === 'await mark')
        on.enqueue({ kind: 'wait', recording: recordings.get(operation.mark)! });
      else on.enqueue(operation);
    }
  }

  dispose(): void {
    this.#disposed = true;
  }
}

export class SimStream extends Agent implements Stream {
  /** A Proxy around a stream is none: it has nothing of what a stream keeps for itself. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === 'object' && value !== null && #engine in value;
  }

  /** 'rank 0 stream 1': the same in every run of the same program. */
  readonly key: string;
  readonly #id: number;
  readonly #operations: {
    readonly operation: Operation;
    readonly known: Clock | null;
    readonly origin: Origin | null;
  }[] = [];
  /** The call of the program that enqueues what comes next. */
  origin: Origin | null = null;
  /** That of the operation that runs. */
  #origin: Origin | null = null;
  readonly #running: SimLaunch[] = [];
  #capture: Capture | null = null;
  #queued = false;
  #disposed = false;
  #error: HeddleError | null = null;
  readonly #engine: Engine;
  readonly #addresses: AddressSpace;

  constructor(
    readonly rank: number,
    engine: Engine,
    addresses: AddressSpace,
  ) {
    super();
    this.#engine = engine;
    this.#addresses = addresses;
    this.#id = engine.newNumber();
    this.key = `rank ${rank} stream ${engine.newStream(rank)}`;
    engine.detector?.streamCreated(this.#id, rank);
  }

  /** How many operations have not begun. */
  get pending(): number {
    return this.#operations.length;
  }

  belongsTo(engine: Engine): boolean {
    return engine === this.#engine;
  }

  copyIn(to: number, bytes: Uint8Array): void {
    if (!(bytes instanceof Uint8Array)) throw new ArgumentError('bytes', bytes, 'a Uint8Array');
    const target = this.#addresses.find('to', to, bytes.byteLength);
    const data = bytes.slice();
    this.#work((on) => {
      requireAllocated(target.buffer);
      target.buffer.u8.set(data, target.offset);
      on.#wrote(target, data.byteLength);
    });
  }

  /** Asks for the bytes once the stream has come so far, and whether they are others than when the copy was enqueued. */
  copyInLater(
    to: number,
    bytes: number,
    read: () => { readonly bytes: Uint8Array; readonly isChanged: boolean },
  ): void {
    const target = this.#addresses.find('to', to, bytes);
    this.#work((on) => {
      const { buffer, offset } = target;
      requireAllocated(buffer);
      const { bytes: brought, isChanged } = read();
      buffer.u8.set(brought, offset);
      on.#wrote(target, bytes);
      if (!isChanged || this.#engine.mode === 'fast') return;
      const by = { rank: this.rank, kernel: 'the host', block: 0, thread: 0 };
      const form = { kind: 'write', order: 'weak', scope: 'sys' } as const;
      const where = `a copy or fill on stream ${on.#id} of rank ${this.rank}`;
      this.#engine.log.misuse(
        'the host changed memory after a copy from it was enqueued, and before that was made',
        buffer,
        offset,
        { ...form, ...by, where, text: 'write by the host, through the stream', ...originOf(on.#origin) },
      );
    });
  }

  copyOut(from: number, bytes: number): Promise<Uint8Array> {
    requireInteger('bytes', bytes, 0, maxBufferBytes);
    const source = this.#addresses.find('from', from, bytes);
    this.#refuseInCapture('copyOut');
    return this.#tell((resolve) => resolve(this.#read(source, bytes)));
  }

  /** Gives `take` the bytes once the stream has come so far. No host waits, and none knows thereby that it has. */
  copyOutLater(from: number, bytes: number, take: (bytes: Uint8Array) => void): void {
    requireInteger('bytes', bytes, 0, maxBufferBytes);
    const source = this.#addresses.find('from', from, bytes);
    this.#work((on) => take(on.#read(source, bytes)));
  }

  /** All that others do with this memory must be ordered with this: its life begins or ends here. */
  claim(address: number, bytes: number): void {
    const place = this.#addresses.find('address', address, bytes);
    this.#work((on) => {
      requireAllocated(place.buffer);
      on.#accessed('write', place, bytes);
    });
  }

  /** Once the stream has come so far. No host waits. */
  reached(run: () => void): void {
    this.#work(run);
  }

  /** Once the stream has come so far, nothing in the machine moves until `run` is done. */
  callHost(run: () => Promise<void>): void {
    const recording: Recording = { known: nothing, done: false, at: 0, waiting: [] };
    this.#work(() => {
      const until = run().finally(() => {
        recording.done = true;
        for (const stream of recording.waiting) stream.kick();
      });
      void this.#engine.standStill(until);
    });
    this.enqueue({ kind: 'wait', recording });
  }

  #read(source: ByteAt, bytes: number): Uint8Array {
    const { buffer, offset } = source;
    requireAllocated(buffer);
    this.#accessed('read', source, bytes);
    return buffer.u8.slice(offset, offset + bytes);
  }

  copy(to: number, from: number, bytes: number): void {
    requireInteger('bytes', bytes, 0, maxBufferBytes);
    const target = this.#addresses.find('to', to, bytes);
    const source = this.#addresses.find('from', from, bytes);
    this.#work((on) => {
      requireAllocated(source.buffer);
      requireAllocated(target.buffer);
      on.#accessed('read', source, bytes);
      move({ to: target, from: source, bytes });
      on.#wrote(target, bytes);
      if (this.#engine.mode === 'checked') {
        target.buffer.copyInitialised(target.offset, source.buffer, source.offset, bytes);
      }
    });
  }

  fill(to: number, bytes: number, value: number): void {
    requireInteger('bytes', bytes, 0, maxBufferBytes);
    requireInteger('value', value, 0, 255);
    const target = this.#addresses.find('to', to, bytes);
    this.#work((on) => {
      const { buffer, offset } = target;
      requireAllocated(buffer);
      buffer.u8.fill(value, offset, offset + bytes);
      on.#wrote(target, bytes);
    });
  }

  #accessed(kind: 'read' | 'write', { buffer, offset }: ByteAt, bytes: number): void {
    this.#engine.detector?.streamAccess(this.#id, kind, buffer, offset, bytes, this.#origin);
  }

  #wrote(place: ByteAt, bytes: number): void {
    if (bytes === 0) return;
    this.#accessed('write', place, bytes);
    const { buffer, offset } = place;
    buffer.markInitialised(offset, bytes);
    if (buffer.waiters !== 0) this.#engine.wake(buffer, offset, bytes);
  }

  record(event: Event): void {
    if (!(event instanceof SimEvent)) throw new ArgumentError('event', event, 'an event of this machine');
    const capture = this.#capture;
    event.mark = capture === null ? null : { capture, awaited: false };
    if (event.mark === null) event.recording = this.enqueueRecording();
    else event.mark.capture.operations.push({ stream: this, operation: { kind: 'mark', mark: event.mark } });
  }

  enqueueRecording(): Recording {
    const recording: Recording = { known: nothing, done: false, at: 0, waiting: [] };
    this.#work(() => {
      recording.done = true;
      recording.at = this.#engine.time;
      recording.known = this.#engine.detector?.eventRecorded(this.#id) ?? nothing;
      for (const stream of recording.waiting) stream.kick();
    });
    return recording;
  }

  /**
   * Waits for the latest recording enqueued so far; an event never recorded is no obstacle, as in CUDA. Where that is one
   * of a stream that captures, this one captures too from here on.
   */
  wait(event: Event): void {
    if (!(event instanceof SimEvent)) throw new ArgumentError('event', event, 'an event of this machine');
    const { mark } = event;
    if (mark === null) {
      this.#refuseInCapture('wait for an event from outside');
      if (event.recording !== null) this.enqueue({ kind: 'wait', recording: event.recording });
      return;
    }
    // A driver refuses it, too.
    if (mark.capture.ended || (this.#capture !== null && this.#capture !== mark.capture)) {
      throw new HeddleError(
        'HEDDLE_CAPTURE',
        'wait for an event that was last recorded in another capture: record it anew before',
      );
    }
    if (this.#capture === null) {
      this.#capture = mark.capture;
      mark.capture.joined.add(this);
    }
    mark.awaited = true;
    mark.capture.operations.push({ stream: this, operation: { kind: 'await mark', mark } });
  }

  synchronize(): Promise<void> {
    this.#refuseInCapture('synchronize');
    return this.#tell<void>((resolve) => resolve());
  }

  /** Enqueues something that a host awaits. It learns of failed launches here. */
  #tell<T>(run: (resolve: (value: T) => void) => void): Promise<T> {
    return this.#engine.hosts.promise<T>(this.rank, (resolve, reject) => {
      if (this.#engine.killed[this.rank]) {
        reject(new HeddleError('HEDDLE_KILLED', `rank ${this.rank} of the simulated machine was killed`));
        return;
      }
      this.#work(() => {
        this.#engine.detector?.hostSynchronized(this.#id, this.#engine.hosts.programOf(this.rank));
        const error = this.#error;
        this.#error = null;
        try {
          if (error !== null) throw error;
          run(resolve);
        } catch (thrown) {
          reject(thrown);
        }
      });
    });
  }

  get capturing(): boolean {
    return this.#capture !== null;
  }

  beginCapture(): void {
    this.#refuseInCapture('beginCapture');
    this.#capture = new Capture();
  }

  endCapture(): Graph {
    const capture = this.#capture;
    if (capture === null || capture.joined.has(this)) {
      throw new HeddleError('HEDDLE_CAPTURE', 'endCapture needs a beginCapture on the same stream before it');
    }
    capture.requireJoined();
    capture.ended = true;
    for (const stream of [this, ...capture.joined]) stream.#capture = null;
    return new SimGraph(this, capture, this.#engine);
  }

  another(): SimStream {
    return new SimStream(this.rank, this.#engine, this.#addresses);
  }

  #refuseInCapture(what: string): void {
    if (this.#capture === null) return;
    throw new HeddleError(
      'HEDDLE_CAPTURE',
      `${what} cannot be captured; a graph holds launches, copies and fills: call endCapture first`,
    );
  }

  dispose(): void {
    this.#disposed = true;
  }

  enqueue(operation: Operation): void {
    if (this.#disposed) throw new DisposedError('the stream');
    if (this.#capture !== null) {
      this.#capture.operations.push({ stream: this, operation });
      return;
    }
    const { detector, hosts } = this.#engine;
    const known = detector?.hostKnows(hosts.programOf(this.rank)) ?? null;
    this.#operations.push({ operation, known, origin: this.origin });
    this.kick();
    this.#engine.work();
  }

  #work(run: (on: SimStream) => void): void {
    this.enqueue({ kind: 'work', run });
  }

  launch(request: LaunchRequest): void {
    this.enqueue({ kind: 'launch', request });
  }

  /** Something changed: the next operation may be possible now. */
  kick(): void {
    if (this.#queued || !this.#nextIsPossible()) return;
    this.#queued = true;
    this.#engine.schedule.add(this as Task);
  }

  #nextIsPossible(): boolean {
    const next = this.#operations[0]?.operation;
    if (next === undefined) return false;
    // A programmatic launch may overtake the end of the one before it, once that one lets it.
    if (next.kind === 'launch' && next.request.programmatic) return this.#running.at(-1)?.released ?? true;
    if (this.#running.length > 0) return false;
    if (next.kind === 'wait' && !next.recording.done) {
      next.recording.waiting.push(this);
      return false;
    }
    return true;
  }

  run(): void {
    this.#queued = false;
    const { operation, known, origin } = this.#operations.shift()!;
    this.#origin = origin;
    if (known !== null) this.#engine.detector?.streamHeard(this.#id, known);
    switch (operation.kind) {
      case 'launch':
        this.#start(operation.request);
        break;
      case 'wait':
        this.#engine.detector?.streamHeard(this.#id, operation.recording.known);
        break;
      case 'work':
        try {
          operation.run(this);
        } catch (error) {
          if (!(error instanceof HeddleError)) throw error;
          // The host learns of it when it next awaits this stream.
          this.#error ??= error;
        }
    }
    this.kick();
  }

  #start(request: LaunchRequest): void {
    const launch = request.make(this.#running.at(-1) ?? null, this);
    launch.origin = this.#origin;
    this.#running.push(launch);
    this.#engine.detector?.launchStarted(launch.id, this.#id, {
      rank: this.rank,
      kernel: launch.kernel,
      grid: launch.grid,
      block: launch.block,
      programmatic: request.programmatic,
      origin: this.#origin,
    });
    this.#engine.blocks.launch(launch);
    this.#engine.didNoticeable(this.rank);
  }

  launchEnded(launch: SimLaunch): void {
    this.#running.splice(this.#running.indexOf(launch), 1);
    this.#error ??= launch.error;
    this.kick();
  }
}
