import { ArgumentError, DisposedError, HeddleError, requireInteger } from '../../base/errors.js';
import type { Address } from '../../base/native/index.js';
import type { Event, Graph, Stream } from '../index.js';
import { type Context, check } from './driver.js';
import { CUDA_ERROR_NOT_READY } from './errors.js';
import { largestCopy, type Pinned, type Staging } from './staging.js';

export interface Home {
  readonly context: Context;
  readonly staging: Staging;
  /** Throws once the device is disposed. */
  requireLive(): void;
  /** Something that the device frees at the latest with itself, in its own context, having waited until it is idle. */
  adopt(free: () => void, isIdle?: () => boolean): Owned;
}

/** Something that is freed once, by hand or with the device. */
export interface Owned {
  readonly freed: boolean;
  dispose(): void;
}

const nonBlocking = 1;
/** Other streams and threads stay free to do as they like while one captures. */
const captureRelaxed = 2;
/** CU_POINTER_ATTRIBUTE_MEMORY_TYPE, and what it says of host memory. */
const memoryType = 2;
const memoryTypeHost = 1;
/** Bytes of GPU memory that a copy from host memory to host memory takes for a while. */
const largestPiece = 2 ** 24;

/** A CUDA stream: our own, or the caller's raw handle. */
export class CudaStream implements Stream {
  /** The CUstream, for other libraries of the process. */
  readonly handle: Address;
  /** The halves of the handle, ready to be stored into a launch. */
  readonly low: number;
  readonly high: number;
  readonly home: Home;
  readonly #isOurs: boolean;
  readonly #owned: Owned;
  /** While capturing: the host buffers that the graph will read at every replay. */
  #captured: Pinned[] | null = null;

  constructor(home: Home, handle?: Address) {
    this.home = home;
    this.#isOurs = handle === undefined;
    if (handle === undefined) {
      const { context } = home;
      const { driver } = context;
      context.use();
      check(driver.cuStreamCreate(driver.out.address, nonBlocking), 'cuStreamCreate');
      this.handle = driver.out.number();
      this.#owned = home.adopt(
        () => check(driver.cuStreamDestroy(this.handle), 'cuStreamDestroy'),
        () => {
          context.use();
          // Whether its work has ended well or badly.
          return driver.cuStreamQuery(this.handle) !== CUDA_ERROR_NOT_READY;
        },
      );
    } else {
      this.handle = requireInteger('handle', handle, 0, 2 ** 48);
      this.#owned = home.adopt(() => {});
    }
    this.low = this.handle >>> 0;
    this.high = Math.floor(this.handle / 2 ** 32);
  }

  copyIn(to: number, bytes: Uint8Array): void {
    this.#enter();
    if (bytes.length === 0) return;
    requireInteger('bytes', bytes.length, 0, largestCopy);
    if (this.#captured === null && !this.#isOurs && this.#isCapturing()) {
      throw new HeddleError(
        'HEDDLE_CAPTURE',
        'copyIn cannot be captured on a stream that other code captures: nothing would keep its bytes for the ' +
          'replays; begin the capture with beginCapture, or copy before it',
      );
    }
    const { staging } = this.home;
    let at = 0;
    for (const pinned of staging.take(bytes.length)) {
      const piece = bytes.subarray(at, at + pinned.bytes.length);
      pinned.bytes.set(piece);
      this.#copy(to + at, pinned.address, piece.length, 'copying in');
      if (this.#captured === null) staging.giveAfter(pinned, this.handle);
      else this.#captured.push(pinned);
      at += piece.length;
    }
  }

  async copyOut(from: number, bytes: number): Promise<Uint8Array> {
    this.#enter();
    this.#refuseCapture('copyOut');
    requireInteger('bytes', bytes, 0, largestCopy);
    if (bytes === 0) return new Uint8Array(0);
    const { staging } = this.home;
    const buffers = staging.take(bytes);
    let at = 0;
    for (const pinned of buffers) {
      const length = Math.min(bytes - at, pinned.bytes.length);
      this.#copy(pinned.address, from + at, length, 'copying out');
      at += length;
    }
    await this.#passed('copying out');
    const copy = new Uint8Array(bytes);
    at = 0;
    for (const pinned of buffers) {
      copy.set(pinned.bytes.subarray(0, bytes - at), at);
      at += pinned.bytes.length;
      staging.give(pinned);
    }
    return copy;
  }

  copy(to: number, from: number, bytes: number): void {
    this.#enter();
    if (bytes === 0) return;
    this.#copy(to, from, bytes, `copying ${bytes} bytes`);
  }

  fill(to: number, bytes: number, value: number): void {
    const { driver } = this.#enter();
    requireInteger('value', value, 0, 255);
    if (bytes === 0) return;
    check(driver.cuMemsetD8Async(to, value, bytes, this.handle), 'cuMemsetD8Async', `filling ${bytes} bytes`);
  }

  record(event: Event): void {
    const { driver } = this.#enter();
    check(driver.cuEventRecord(eventOf(event).handle, this.handle), 'cuEventRecord');
  }

  wait(event: Event): void {
    const { driver } = this.#enter();
    check(driver.cuStreamWaitEvent(this.handle, eventOf(event).handle, 0), 'cuStreamWaitEvent');
  }

  async synchronize(): Promise<void> {
    this.#enter();
    this.#refuseCapture('synchronize');
    await this.#passed('waiting for the stream');
  }

  get capturing(): boolean {
    this.#enter();
    return this.#captured !== null || this.#isCapturing();
  }

  beginCapture(): void {
    const { driver } = this.#enter();
    this.#refuseCapture('beginCapture');
    check(driver.cuStreamBeginCapture(this.handle, captureRelaxed), 'cuStreamBeginCapture');
    this.#captured = [];
  }

  endCapture(): CudaGraph {
    const { driver } = this.#enter();
    const captured = this.#captured;
    if (captured === null) throw new HeddleError('HEDDLE_CAPTURE', 'endCapture without beginCapture');
    this.#captured = null;
    try {
      check(driver.cuStreamEndCapture(this.handle, driver.out.address), 'cuStreamEndCapture');
      return new CudaGraph(this.home, driver.out.number(), captured, this.handle);
    } catch (error) {
      for (const pinned of captured) this.home.staging.give(pinned);
      throw error;
    }
  }

  /**
   * Enqueues a copy. From host memory to host memory the driver makes the calling thread wait for the stream, and a graph's
   * launch too. So such bytes go by way of the GPU's memory, in pieces.
   */
  #copy(to: number, from: number, bytes: number, doing: string): void {
    const { driver } = this.home.context;
    const enqueue = (to: number, from: number, bytes: number) =>
      check(driver.cuMemcpyAsync(to, from, bytes, this.handle), 'cuMemcpyAsync', doing);
    if (!this.#liesInHost(from) || !this.#liesInHost(to)) {
      enqueue(to, from, bytes);
      return;
    }
    const piece = Math.min(bytes, largestPiece);
    check(driver.cuMemAllocAsync(driver.out.address, piece, this.handle), 'cuMemAllocAsync', doing);
    const between = driver.out.number();
    try {
      for (let at = 0; at < bytes; at += piece) {
        const length = Math.min(piece, bytes - at);
        enqueue(between, from + at, length);
        enqueue(to + at, between, length);
      }
    } finally {
      check(driver.cuMemFreeAsync(between, this.handle), 'cuMemFreeAsync', doing);
    }
  }

  #liesInHost(address: number): boolean {
    const { out, cuPointerGetAttribute } = this.home.context.driver;
    return cuPointerGetAttribute(out.address, memoryType, address) === 0 && out.i32[0] === memoryTypeHost;
  }

  /** The current context, this stream's own. */
  #enter(): Context {
    if (this.#owned.freed) throw new DisposedError('this stream');
    this.home.requireLive();
    this.home.context.use();
    return this.home.context;
  }

  #refuseCapture(operation: string): void {
    if (this.#captured === null) return;
    throw new HeddleError('HEDDLE_CAPTURE', `${operation} while the stream captures; call endCapture first`);
  }

  #isCapturing(): boolean {
    const { out, cuStreamIsCapturing } = this.home.context.driver;
    check(cuStreamIsCapturing(this.handle, out.address), 'cuStreamIsCapturing');
    return out.i32[0] !== 0;
  }

  /** Resolves when everything enqueued so far is done; rejects if any of it failed. */
  async #passed(doing: string): Promise<void> {
    const { context, staging } = this.home;
    const { driver } = context;
    const event = staging.takeEvent();
    check(driver.cuEventRecord(event, this.handle), 'cuEventRecord', doing);
    await until(() => {
      this.home.requireLive();
      context.use();
      const state = driver.cuEventQuery(event);
      if (state === CUDA_ERROR_NOT_READY) return false;
      check(state, 'cuEventQuery', doing);
      return true;
    });
    staging.giveEvent(event);
  }

  dispose(): void {
    this.#owned.dispose();
  }
}

/** An event with a time, to about half a microsecond. */
export class CudaEvent implements Event {
  readonly handle: Address;
  readonly #home: Home;
  readonly #owned: Owned;

  constructor(home: Home) {
    this.#home = home;
    home.context.use();
    const { out, cuEventCreate, cuEventDestroy } = home.context.driver;
    check(cuEventCreate(out.address, 0), 'cuEventCreate');
    this.handle = out.number();
    this.#owned = home.adopt(() => check(cuEventDestroy(this.handle), 'cuEventDestroy'));
  }

  elapsedSince(start: Event): number {
    if (this.#owned.freed) throw new DisposedError('this event');
    this.#home.context.use();
    const { out, cuEventElapsedTime } = this.#home.context.driver;
    const result = cuEventElapsedTime(out.address, eventOf(start).handle, this.handle);
    const doing =
      result === CUDA_ERROR_NOT_READY ? 'the events have not passed; await synchronize first' : '';
    check(result, 'cuEventElapsedTime', doing);
    return out.f32[0]!;
  }

  dispose(): void {
    this.#owned.dispose();
  }
}

/** A captured graph, instantiated and on the GPU. */
export class CudaGraph implements Graph {
  readonly #home: Home;
  readonly #exec: Address;
  readonly #owned: Owned;

  constructor(home: Home, template: Address, buffers: readonly Pinned[], stream: Address) {
    const { driver } = home.context;
    this.#home = home;
    const made = driver.cuGraphInstantiateWithFlags(driver.out.address, template, 0);
    this.#exec = driver.out.number();
    driver.cuGraphDestroy(template);
    check(made, 'cuGraphInstantiateWithFlags');
    // Otherwise the first launch would pay for it.
    check(driver.cuGraphUpload(this.#exec, stream), 'cuGraphUpload');
    this.#owned = home.adopt(() => {
      check(driver.cuGraphExecDestroy(this.#exec), 'cuGraphExecDestroy');
      for (const pinned of buffers) home.staging.give(pinned);
    });
  }

  launch(stream: Stream): void {
    if (this.#owned.freed) throw new DisposedError('this graph');
    this.#home.requireLive();
    this.#home.context.use();
    const result = this.#home.context.driver.cuGraphLaunch(this.#exec, streamOf(stream).handle);
    if (result !== 0) check(result, 'cuGraphLaunch');
  }

  /** The graph's launches must have ended: it holds what they copy from. */
  dispose(): void {
    this.#owned.dispose();
  }
}

export function streamOf(stream: Stream): CudaStream {
  if (stream instanceof CudaStream) return stream;
  throw new ArgumentError('stream', stream, 'a stream of this CUDA device (createStream or wrapStream)');
}

function eventOf(event: Event): CudaEvent {
  if (event instanceof CudaEvent) return event;
  throw new ArgumentError('event', event, 'an event of a CUDA device (createEvent)');
}

/** How long the host spins before it lets the event loop turn, and turns before it sleeps, in milliseconds. */
const spin = 0.01;
const turns = 4;
const sleep = 1;

/**
 * Resolves when `done` says so. Polls at once for ten microseconds (most small kernels), then between turns of
 * the event loop, then every millisecond: a long wait neither blocks the loop nor burns a core.
 */
export async function until(done: () => boolean): Promise<void> {
  const start = performance.now();
  do {
    if (done()) return;
  } while (performance.now() - start < spin);
  for (;;) {
    const waited = performance.now() - start;
    await new Promise<void>((resolve) => {
      if (waited < turns) setImmediate(resolve);
      else setTimeout(resolve, sleep);
    });
    if (done()) return;
  }
}
