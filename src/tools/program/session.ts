/**
 * One run of a program on a simulated machine: what the stand-in of CUDA's runtime asks for, a message a call. The machine moves only
 * while the program waits in a call, so the same program runs the same way under the same schedule.
 */
import { setImmediate } from 'node:timers/promises';
import { ArgumentError, messageOf } from '../../base/errors.js';
import type { SimDevice, SimEvent, SimMachine, SimStream } from '../../gpu/sim/index.js';
import type { PtxKernel } from '../../lang/index.js';
import { ptxIn } from './binary.js';
import { type Call, CallError, cuda, type Memories, upper } from './calls.js';
import { DriverCalls, driverKinds } from './driver.js';
import type { Kernels } from './kernels.js';
import type { Process } from './process.js';

export interface Answer {
  readonly result: number;
  readonly word: number;
  readonly tail: readonly number[];
}

/** The kinds of calls, in the order of client.h. */
const kinds = [
  ...([
    'hello',
    'binary',
    'function',
    'variable',
    'sizes',
    'launch',
    'malloc',
    'free',
    'copyIn',
    'copyOut',
  ] as const),
  ...([
    'copy',
    'fill',
    'where',
    'stream',
    'streamDestroy',
    'event',
    'eventDestroy',
    'record',
    'wait',
  ] as const),
  ...(['eventSynchronize', 'eventQuery', 'elapsed', 'streamSynchronize', 'streamQuery'] as const),
  ...(['deviceSynchronize', 'count', 'symbol', 'refused', 'peerCopy'] as const),
] as const;

/** The number of the first kind of `driverKinds`: far behind those above. */
const firstOfDriver = 128;

/** Gives the word of an answer, a list of it and what follows it, or nothing of use. */
type Handler = (call: Call) => unknown;

/** A stream of CUDA's. Those that block take turns with the default stream of their device. */
interface Queue {
  readonly stream: SimStream;
  readonly blocks: boolean;
  /** It has work that the default stream has not waited for. */
  dirty: boolean;
  /** The state of the default stream that it has waited for. */
  saw: number;
}

class Gpu {
  readonly #device: SimDevice;
  readonly #default: Queue;
  readonly #perThread: Queue;
  readonly queues = new Map<number, Queue>();
  #state = 0;
  #mark: SimEvent | null = null;

  constructor(device: SimDevice) {
    this.#device = device;
    this.#default = this.#made(true);
    this.#perThread = this.#made(true);
    this.queues.set(2, this.#perThread);
  }

  #made(blocks: boolean): Queue {
    return { stream: this.#device.createStream(), blocks, dirty: false, saw: 0 };
  }

  add(number: number, blocks: boolean): void {
    this.queues.set(number, this.#made(blocks));
  }

  /** The stream, in which what is enqueued next is in CUDA's order: behind the default stream's work, or that of all others. */
  ordered(number: number): SimStream {
    const queue = number <= 1 ? this.#default : this.queues.get(number);
    if (queue === undefined) throw new CallError(cuda.handle, `there is no stream ${number}`);
    if (queue === this.#default) {
      for (const one of this.queues.values()) {
        if (!one.blocks || !one.dirty) continue;
        queue.stream.wait(this.#recorded(one.stream));
        one.dirty = false;
      }
      this.#state++;
      this.#mark = null;
    } else if (queue.blocks) {
      if (queue.saw !== this.#state) {
        this.#mark ??= this.#recorded(this.#default.stream);
        queue.stream.wait(this.#mark);
        queue.saw = this.#state;
      }
      queue.dirty = true;
    }
    return queue.stream;
  }

  #recorded(stream: SimStream): SimEvent {
    const event = this.#device.createEvent();
    stream.record(event);
    return event;
  }

  async synchronize(): Promise<void> {
    const all = [this.#default, ...this.queues.values()];
    await Promise.all(all.map(({ stream }) => stream.synchronize()));
  }

  /** Waits for an event, and for nothing else. */
  async reached(event: SimEvent): Promise<void> {
    const stream = this.#device.createStream();
    stream.wait(event);
    await stream.synchronize();
  }
}

/** Turns that the machine gets where a program asks whether something is done. */
const turnsPerQuery = 4;

export class Session {
  readonly #machine: SimMachine;
  readonly #kernels: Kernels;
  readonly #gpus: readonly Gpu[];
  readonly #memories: Memories = new Map();
  readonly #driver: DriverCalls;
  readonly #events = new Map<number, { readonly gpu: Gpu; readonly event: SimEvent }>();
  /** Numbers of streams and events: 0 to 2 stand for default streams. */
  #next = 3;
  #allocated = 0;
  #waiting = 0;
  #move: () => void = () => {};
  /** The first error that is a kernel's, or the simulated machine's. */
  error: unknown = null;
  /** What the first call that was given something wrong has said. */
  invalid: string | null = null;
  /** Calls that are not there, and how often they were made. */
  readonly refused = new Map<string, number>();

  constructor(machine: SimMachine, kernels: Kernels) {
    this.#machine = machine;
    this.#kernels = kernels;
    this.#gpus = Array.from({ length: machine.ranks }, (_, rank) => new Gpu(machine.device(rank)));
    this.#driver = new DriverCalls(machine, this.#memories);
    this.#hold();
  }

  #hold(): void {
    void this.#machine.standStill(
      new Promise<void>((resolve) => {
        this.#move = resolve;
      }),
    );
  }

  /** The machine moves until this is done. */
  async #moving<T>(until: Promise<T>): Promise<T> {
    if (this.#waiting++ === 0) this.#move();
    try {
      return await until;
    } finally {
      if (--this.#waiting === 0) this.#hold();
    }
  }

  /** Lets all that was enqueued come to its end. */
  async end(): Promise<void> {
    const ended = this.#gpus.map((gpu) => gpu.synchronize());
    for (const result of await this.#moving(Promise.allSettled(ended)))
      if (result.status === 'rejected') this.error ??= result.reason;
  }

  async answer(call: Call): Promise<Answer> {
    const kind = kinds[call.kind];
    const shared = driverKinds[call.kind - firstOfDriver];
    try {
      const given =
        shared !== undefined
          ? await this.#driver.calls[shared](call)
          : kind === undefined
            ? 0
            : await this.#calls[kind](call);
      const [word = 0, ...tail] = [given].flat().filter((one) => typeof one === 'number');
      return { result: 0, word, tail };
    } catch (error) {
      const wrong = error instanceof CallError || error instanceof ArgumentError;
      if (wrong) this.invalid ??= `${kind ?? shared}: ${messageOf(error)}`;
      else this.error ??= error;
      return {
        result: error instanceof CallError ? error.result : wrong ? cuda.invalid : cuda.failed,
        word: 0,
        tail: [],
      };
    }
  }

  #gpu(rank: number): Gpu {
    return this.#gpus[rank]!;
  }

  #eventOf(number: number) {
    const found = this.#events.get(number);
    if (found === undefined) throw new CallError(cuda.handle, `there is no event ${number}`);
    return found;
  }

  #kernelOf({ functions }: Process, stub: number, shared?: number, cluster?: readonly number[]): PtxKernel {
    const { texts, name } = functions.get(stub) ?? { texts: [], name: 'an unknown function' };
    const kernel = texts.length === 0 ? null : this.#kernels.kernel(texts, name, shared, cluster);
    if (kernel === null) throw new CallError(cuda.function, `the program has no PTX of ${name}`);
    return kernel;
  }

  /** Whether it is done, after a little time for the machine. */
  async #query({ gpu, event }: { readonly gpu: Gpu; readonly event: SimEvent }): Promise<void> {
    const isDone = (): boolean => event.recording?.done !== false;
    const turns = async (): Promise<void> => {
      for (let turn = 0; turn < turnsPerQuery && !isDone(); turn++) await setImmediate();
    };
    if (!isDone()) await this.#moving(turns());
    if (!isDone()) throw new CallError(cuda.notReady, 'not done');
    await this.#moving(gpu.reached(event));
  }

  readonly #calls: Readonly<Record<(typeof kinds)[number], Handler>> = {
    hello: () => {},
    binary: ({ process, words: [number = 0], tail }) => {
      const text = ptxIn(tail);
      const texts = process.textsOf(number);
      if (text !== null) texts.push(text);
    },
    function: ({ process, words: [binary = 0, stub = 0], tail }) =>
      void process.functions.set(stub, { texts: process.textsOf(binary), name: tail.toString() }),
    variable: ({ process, words: [binary = 0, host = 0], tail }) =>
      void process.variables.set(host, { texts: process.textsOf(binary), name: tail.toString() }),
    sizes: ({ process, words: [stub = 0] }) => {
      const { params } = this.#kernelOf(process, stub);
      return [params.length, ...params.map(({ bytes }) => bytes)];
    },
    launch: ({ process, device, words: [stub = 0, stream = 0], tail }) => {
      const shape = Array.from({ length: 12 }, (_, i) => tail.readUInt32LE(4 * i));
      const cluster = shape[6] === 0 ? undefined : shape.slice(6, 9);
      const kernel = this.#kernelOf(process, stub, shape[9], cluster);
      const launcher = this.#machine
        .device(device)
        .program(kernel)
        .launcher({
          ...{ grid: shape.slice(0, 3), block: shape.slice(3, 6), rank: device },
          ...{ cooperative: shape[10] !== 0, programmatic: shape[11] !== 0 },
        });
      let at = 48;
      for (const { name, bytes } of kernel.params) {
        launcher.setBytes(name, tail.subarray(at, at + bytes));
        at += bytes;
      }
      launcher.launch(this.#gpu(device).ordered(stream));
    },
    malloc: ({ device, words: [bytes = 0] }) => {
      if (bytes === 0) return 0;
      const memory = this.#machine.device(device).allocate(bytes, `cudaMalloc ${++this.#allocated}`);
      const { address, handle } = memory;
      this.#memories.set(upper(address), { rank: device, bytes, handle, free: () => memory.free() });
      return memory.address;
    },
    free: async ({ words: [address = 0] }) => {
      const found = this.#memories.get(upper(address));
      if (found?.free === undefined || address % 2 ** 32 !== 0)
        throw new CallError(cuda.invalid, 'the address is no allocation’s');
      this.#memories.delete(upper(address));
      await this.#moving(this.#gpu(found.rank).synchronize());
      found.free();
    },
    copyIn: async ({ device, words: [to = 0, on = 0, waits = 0], tail }) => {
      const stream = this.#gpu(device).ordered(on);
      stream.copyIn(to, tail);
      if (waits !== 0) await this.#moving(stream.synchronize());
    },
    copyOut: async ({ process, device, words: [from = 0, bytes = 0, on = 0, waits = 0, to = 0] }) => {
      const stream = this.#gpu(device).ordered(on);
      stream.copyOutLater(from, bytes, (bytes) => process.bring(to, bytes));
      if (waits !== 0) await this.#moving(stream.synchronize());
    },
    copy: ({ device, words: [to = 0, from = 0, bytes = 0, on = 0] }) => {
      this.#gpu(device).ordered(on).copy(to, from, bytes);
    },
    peerCopy: async ({ device, words: [to = 0, from = 0, bytes = 0, there = 0, here = 0] }) => {
      const both = (): Promise<unknown> =>
        this.#moving(Promise.all([there, here].map((rank) => this.#gpu(rank).synchronize())));
      await both();
      const stream = this.#gpu(device).ordered(0);
      stream.copy(to, from, bytes);
      await this.#moving(stream.synchronize());
    },
    fill: ({ device, words: [to = 0, value = 0, bytes = 0, on = 0] }) => {
      this.#gpu(device).ordered(on).fill(to, bytes, value);
    },
    where: ({ words: [address = 0] }) => {
      const found = this.#memories.get(upper(address));
      return found !== undefined && address % 2 ** 32 < found.bytes ? found.rank + 1 : 0;
    },
    stream: ({ device, words: [flags = 0] }) => {
      this.#gpu(device).add(this.#next, (flags & 1) === 0);
      return this.#next++;
    },
    // It goes once its work is done, so nothing is to be done.
    streamDestroy: () => {},
    event: ({ device }) => {
      const gpu = this.#gpu(device);
      this.#events.set(this.#next, { gpu, event: this.#machine.device(device).createEvent() });
      return this.#next++;
    },
    eventDestroy: ({ words: [event = 0] }) => void this.#events.delete(event),
    record: ({ device, words: [event = 0, stream = 0] }) =>
      this.#gpu(device).ordered(stream).record(this.#eventOf(event).event),
    wait: ({ device, words: [stream = 0, event = 0] }) =>
      this.#gpu(device).ordered(stream).wait(this.#eventOf(event).event),
    eventSynchronize: ({ words: [number = 0] }) => {
      const { gpu, event } = this.#eventOf(number);
      return this.#moving(gpu.reached(event));
    },
    eventQuery: ({ words: [event = 0] }) => this.#query(this.#eventOf(event)),
    elapsed: ({ words: [from = 0, until = 0] }) => {
      const start = this.#eventOf(from).event;
      return Math.round(1e6 * this.#eventOf(until).event.elapsedSince(start));
    },
    streamSynchronize: ({ device, words: [stream = 0] }) =>
      this.#moving(this.#gpu(device).ordered(stream).synchronize()),
    streamQuery: ({ device, words: [stream = 0] }) => {
      const event = this.#machine.device(device).createEvent();
      const gpu = this.#gpu(device);
      gpu.ordered(stream).record(event);
      return this.#query({ gpu, event });
    },
    deviceSynchronize: ({ device }) => this.#moving(this.#gpu(device).synchronize()),
    count: () => this.#gpus.length,
    symbol: ({ process, device, words: [host = 0] }) => {
      const { texts, name } = process.variables.get(host) ?? { texts: [], name: '' };
      const kernel = texts.length === 0 ? null : this.#kernels.any(texts);
      const address = kernel === null ? null : this.#machine.device(device).addressOf(kernel, name);
      if (address === null) throw new CallError(cuda.symbol, `the program has no variable ${name}`);
      const { bytes } = kernel!.module.variables.find((one) => one.name === name)!;
      this.#memories.set(upper(address), { rank: device, bytes: bytes ?? 0 });
      return address;
    },
    refused: ({ tail }) => {
      const name = tail.toString();
      this.refused.set(name, 1 + (this.refused.get(name) ?? 0));
    },
  };
}
