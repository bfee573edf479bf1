/**
 * One run of a program on a simulated machine: what the stand-in of CUDA's runtime asks for, a message a call. The machine moves only
 * while the program waits in a call, so the same program runs the same way under the same schedule.
 */
import { setImmediate } from 'node:timers/promises';
import { ArgumentError, messageOf } from '../../base/errors.js';
import type { SimEvent, SimMachine, SimStream } from '../../gpu/sim/index.js';
import type { PtxKernel } from '../../lang/index.js';
import { ptxIn } from './binary.js';
import { type Call, CallError, cuda, type Handler, known, type Memories, upper } from './calls.js';
import { DriverCalls, driverKinds } from './driver.js';
import { Gpu } from './gpus.js';
import { Executable, Graph, type Node, recorded, type Work } from './graphs.js';
import type { Kernels } from './kernels.js';
import type { Patience } from './patience.js';
import type { Process } from './process.js';

/** The kinds of calls, and behind them those of the driver alone. */
const kinds = [
  ...(['hello', 'binary', 'function', 'variable', 'launch', 'malloc', 'free', 'copy', 'fill'] as const),
  ...(['where', 'stream', 'streamDestroy', 'event', 'eventDestroy', 'record', 'wait'] as const),
  ...(['eventSynchronize', 'eventQuery', 'elapsed', 'streamSynchronize', 'streamQuery'] as const),
  ...(['deviceSynchronize', 'count', 'symbol', 'refused', 'peerCopy', 'mallocAsync', 'freeAsync'] as const),
  ...(['hostFunction', 'nextHostFunction', 'capture', 'captureEnd', 'captureState', 'graph'] as const),
  ...(['graphNode', 'graphEdit', 'graphNodes', 'graphClone', 'graphChild', 'graphDestroy'] as const),
  ...(['graphInstantiate', 'graphUpdate', 'graphLaunch'] as const),
] as const;

/** What the libraries that stand for CUDA call them, by number: `STREAM_QUERY`. */
export const namesOfKinds = [...kinds, ...driverKinds].map((kind) =>
  kind.replace(/[A-Z]/g, '_$&').toUpperCase(),
);

interface Recordable {
  readonly gpu: Gpu;
  readonly event: SimEvent;
  /** The state of the capturing stream that recorded it last. */
  captured: Capture | null;
}

/** A stream that captures: the graph, and the nodes that its next work is behind. */
interface Capture {
  readonly graph: Graph;
  last: ReadonlySet<Node>;
}

/** The kinds of nodes, as CUDA numbers them. */
const nodeKinds = { kernel: 0, copy: 1, fill: 2, host: 3, graph: 4, malloc: 10, free: 11 };

/** A call that enqueues more waits until half of it is done. */
const mostPending = 1024;
/** Turns that the machine gets where a program asks whether something is done. */
const turnsPerQuery = 4;
/** How often it is looked whether a program waits without a call, and the turns that the machine then gets. */
const [pulseMs, turnsPerNudge] = [50, 20];

async function turns(most: number, isOver = (): boolean => false): Promise<void> {
  for (let turn = 0; turn < most && !isOver(); turn++) await setImmediate();
}

export class Session {
  readonly #machine: SimMachine;
  readonly #kernels: Kernels;
  readonly #gpus: readonly Gpu[];
  readonly #memories: Memories = new Map();
  readonly #driver: DriverCalls;
  readonly #streams = new Map<number, Gpu>();
  readonly #events = new Map<number, Recordable>();
  readonly #captures = new Map<number, Capture>();
  readonly #graphs = new Map<number, Graph>();
  readonly #executables = new Map<number, Executable>();
  /** Work that is enqueued in a stream of this number becomes that of the node. */
  readonly #nodes = new Map<number, Node>();
  /** Numbers of streams, events and graphs: 0 to 2 stand for default streams. */
  #next = 3;
  #allocated = 0;
  #waiting = 0;
  readonly #processes = new Set<Process>();
  readonly #pulse: NodeJS.Timeout;
  #called = 0;
  #calledBefore = 0;
  #move: () => void = () => {};
  /** Ends what is waited for the next call. */
  #expecting: AbortController | null = null;
  #isHopeless = false;
  /** Set once the program runs. */
  patience: Patience | null = null;
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
    this.#driver = new DriverCalls(machine, this.#memories, {
      kernelOf: (process, stub) => this.#kernelOf(process, stub),
      eventAgain: (number) => this.#add(this.#events, this.#eventOf(number)),
    });
    machine.hostsElsewhere(() => this.#mayAct());
    this.#pulse = setInterval(() => void this.#nudge(), pulseMs);
    this.#hold();
  }

  /** Nothing moves: the machine stands still until another thread or process of the program has called, or none will. */
  #mayAct(): boolean {
    if (this.#expecting !== null) return true;
    if (this.#isHopeless || this.patience?.mayAct(this.#waiting) !== true) return false;
    this.#expecting = new AbortController();
    const over = this.patience.isOver(this.#expecting.signal).catch(() => false);
    void this.#machine.standStill(
      over.then((isOver) => {
        this.#isHopeless = isOver;
        this.#expecting = null;
      }),
    );
    return true;
  }

  /** Where the program waits in a way of its own, such as for what a kernel writes into memory of the host, the machine moves. */
  async #nudge(): Promise<void> {
    const hasCalled = this.#calledBefore !== this.#called;
    this.#calledBefore = this.#called;
    if (hasCalled || this.#waiting > 0 || ![...this.#processes].some((one) => one.waits())) return;
    this.#machine.look();
    await this.#moving(turns(turnsPerNudge));
  }

  /** No call comes any more. */
  close(): void {
    clearInterval(this.#pulse);
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

  async answer(call: Call): Promise<{ result: number; word: number; tail: readonly number[] }> {
    this.#isHopeless = false;
    this.#expecting?.abort();
    this.#called++;
    call.process.calls();
    this.#processes.add(call.process);
    const kind = kinds[call.kind];
    const shared = driverKinds[call.kind - kinds.length];
    try {
      const given =
        shared !== undefined
          ? await this.#driver.calls[shared](call, ...call.words)
          : kind === undefined
            ? 0
            : await this.#calls[kind](call, ...call.words);
      const [word = 0, ...tail] = [given].flat().filter((one) => typeof one === 'number');
      return { result: 0, word, tail };
    } catch (error) {
      const wrong = error instanceof CallError || error instanceof ArgumentError;
      if (wrong && !(error instanceof CallError && error.result === cuda.notReady))
        this.invalid ??= `${kind ?? shared}: ${messageOf(error)}`;
      else this.error ??= error;
      return {
        result: error instanceof CallError ? error.result : wrong ? cuda.invalid : cuda.failed,
        word: 0,
        tail: [],
      };
    }
  }

  #eventOf = (number: number): Recordable => known(this.#events, 'event', number, cuda.handle);

  #streamOf(device: number, number: number): SimStream {
    return (this.#streams.get(number) ?? this.#gpus[device]!).ordered(number);
  }

  /** Now, or as a node of a graph: of one that is made by hand, or that the stream captures. The call may wait for room in the stream. */
  async #enqueue(
    { process, device, stack }: Call,
    stream: number,
    kind: number,
    work: Work,
    kernel = '',
  ): Promise<void> {
    const origin = process.originOf(stack, kernel);
    const told: Work = (on) => {
      on.origin = origin;
      work(on);
    };
    const node = this.#nodes.get(stream);
    const capture = this.#captures.get(stream);
    if (node !== undefined) node.work = told;
    else if (capture !== undefined)
      capture.last = new Set([this.#node(capture.graph, device, kind, capture.last, told)]);
    else {
      const on = this.#streamOf(device, stream);
      told(on);
      if (on.pending > mostPending)
        await this.#moving(turns(Number.POSITIVE_INFINITY, () => on.pending <= mostPending / 2));
    }
  }

  #isCaptured = (stream: number): boolean => this.#nodes.has(stream) || this.#captures.has(stream);

  #node(graph: Graph, rank: number, kind: number, after: Iterable<Node>, work: Work = () => {}): Node {
    const node = {
      number: this.#next++,
      device: this.#machine.device(rank),
      kind,
      after: new Set(after),
      work,
    };
    graph.nodes.push(node);
    this.#nodes.set(node.number, node);
    return node;
  }

  #add<T>(to: Map<number, T>, value: T): number {
    to.set(this.#next, value);
    return this.#next++;
  }

  #allocate(rank: number, bytes: number, of?: 'host' | 'managed'): number {
    const device = this.#machine.device(rank);
    const call = { device: 'cudaMalloc', host: 'cudaMallocHost', managed: 'cudaMallocManaged' }[
      of ?? 'device'
    ];
    const name = `${call} ${++this.#allocated}`;
    // What hosts write is not seen, so no byte counts as one that nobody wrote.
    const memory = of === undefined ? device.allocate(bytes, name) : device.allocateWindow(bytes, name);
    const { address, handle } = memory;
    this.#memories.set(upper(address), { rank, bytes, handle, free: () => memory.free(), ...(of && { of }) });
    return address;
  }

  #memoryOf(address: number) {
    const found = this.#memories.get(upper(address));
    if (found?.free === undefined || address % 2 ** 32 !== 0)
      throw new CallError(cuda.invalid, 'the address is no allocation’s');
    return { ...found, free: found.free };
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
    if (!isDone()) await this.#moving(turns(turnsPerQuery, isDone));
    if (!isDone()) throw new CallError(cuda.notReady, 'not done');
    await this.#moving(gpu.reached(event));
  }

  readonly #calls: Readonly<Record<(typeof kinds)[number], Handler>> = {
    hello: () => {},
    binary: ({ process, tail }, number) => {
      const text = ptxIn(tail);
      const texts = process.textsOf(number);
      if (text !== null) texts.push(text);
    },
    function: ({ process, tail }, binary, stub) =>
      void process.functions.set(stub, { texts: process.textsOf(binary), name: tail.toString() }),
    variable: ({ process, tail }, binary, host) =>
      void process.variables.set(host, { texts: process.textsOf(binary), name: tail.toString() }),
    launch: (call, stub, stream) => {
      const { process, device, tail } = call;
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
        for (let word = at; word + 8 <= at + bytes; word += 8) {
          const memory = this.#memories.get(tail.readUInt32LE(word + 4));
          if (memory !== undefined) memory.isReached = true;
        }
        at += bytes;
      }
      return this.#enqueue(call, stream, nodeKinds.kernel, (on) => launcher.launch(on), kernel.name);
    },
    malloc: ({ device }, bytes, of) =>
      bytes === 0 ? 0 : this.#allocate(device, bytes, ([undefined, 'host', 'managed'] as const)[of]),
    free: async (_, address) => {
      const { rank, free, stays } = this.#memoryOf(address);
      if (!stays) this.#memories.delete(upper(address));
      await this.#moving(this.#gpus[rank]!.synchronize());
      if (!stays) free();
    },
    mallocAsync: async (call, bytes, stream, pool) => {
      if (bytes === 0) return 0;
      const address = this.#allocate(pool === 0 ? call.device : pool - 1, bytes);
      if (this.#isCaptured(stream)) this.#memories.get(upper(address))!.stays = true;
      await this.#enqueue(call, stream, nodeKinds.malloc, (on) => on.claim(address, bytes));
      return address;
    },
    freeAsync: (call, address, stream) => {
      const { bytes, free, stays = this.#isCaptured(stream) } = this.#memoryOf(address);
      if (!stays) this.#memories.delete(upper(address));
      return this.#enqueue(call, stream, nodeKinds.free, (on) => {
        on.claim(address, bytes);
        if (!stays) on.reached(free);
      });
    },
    copy: async (call, to, from, bytes, stream, how) => {
      const { process, device } = call;
      const [waits, kind] = [(how & 1) !== 0, how >> 1];
      const isIn = (address: number): boolean => {
        const memory = this.#memories.get(upper(address));
        return memory !== undefined && (memory.of !== 'host' || memory.isReached === true);
      };
      const [toDevice, fromDevice] = [isIn(to), isIn(from)];
      // 1: to a device, 2: from one, 3: between two, 0: neither, 4: see where the addresses lie.
      if (kind !== 4 && (((kind & 1) !== 0 && !toDevice) || (kind >= 2 && !fromDevice)))
        throw new CallError(cuda.invalid, 'the address is no device’s');
      const enqueue = (work: Work): Promise<void> => this.#enqueue(call, stream, nodeKinds.copy, work);
      if (toDevice && fromDevice) await enqueue((on) => on.copy(to, from, bytes));
      else if (toDevice) {
        // Launches of a graph read what is there by then.
        const held = process.hold(from, bytes, !this.#isCaptured(stream));
        await enqueue((on) => on.copyInLater(to, bytes, () => process.readHeld(held)));
      } else if (fromDevice)
        await enqueue((on) => on.copyOutLater(from, bytes, (brought) => process.write(to, brought)));
      else await enqueue((on) => on.reached(() => process.write(to, process.read(from, bytes))));
      const isHost = (address: number): boolean =>
        (this.#memories.get(upper(address)) ?? { of: 'host' }).of === 'host';
      if (waits && (isHost(to) || isHost(from)))
        await this.#moving(this.#streamOf(device, stream).synchronize());
    },
    peerCopy: async ({ device }, to, from, bytes, there, here) => {
      await this.#moving(Promise.all([there, here].map((rank) => this.#gpus[rank]!.synchronize())));
      const stream = this.#gpus[device]!.ordered(0);
      stream.copy(to, from, bytes);
      await this.#moving(stream.synchronize());
    },
    fill: (call, to, value, bytes, stream) =>
      this.#enqueue(call, stream, nodeKinds.fill, (on) => on.fill(to, bytes, value)),
    where: (_, address) => {
      const found = this.#memories.get(upper(address));
      if (found === undefined || address % 2 ** 32 >= found.bytes) return 0;
      // The kinds of memory, as CUDA numbers them.
      return found.rank + 1 + 2 ** 32 * { host: 1, device: 2, managed: 3 }[found.of ?? 'device'];
    },
    stream: ({ device }, flags) => {
      this.#gpus[device]!.add(this.#next, (flags & 1) === 0);
      return this.#add(this.#streams, this.#gpus[device]!);
    },
    streamDestroy: (_, stream) => this.#streams.get(stream)?.remove(stream),
    event: ({ device }) => {
      const event = this.#machine.device(device).createEvent();
      return this.#add(this.#events, { gpu: this.#gpus[device]!, event, captured: null });
    },
    eventDestroy: (_, event) => void this.#events.delete(event),
    record: ({ device }, number, stream) => {
      const event = this.#eventOf(number);
      const capture = this.#captures.get(stream);
      event.captured = capture === undefined ? null : { ...capture };
      if (capture === undefined) this.#streamOf(device, stream).record(event.event);
    },
    wait: ({ device }, stream, number) => {
      const { captured, event } = this.#eventOf(number);
      const capture = this.#captures.get(stream);
      if (captured === null) {
        if (capture !== undefined) throw new CallError(905, 'the event was recorded outside of the capture');
        this.#streamOf(device, stream).wait(event);
      } else if (capture === undefined) this.#captures.set(stream, { ...captured });
      else capture.last = new Set([...capture.last, ...captured.last]);
    },
    eventSynchronize: (_, number) => {
      const { gpu, event } = this.#eventOf(number);
      return this.#moving(gpu.reached(event));
    },
    eventQuery: (_, event) => this.#query(this.#eventOf(event)),
    elapsed: (_, from, until) => {
      const start = this.#eventOf(from).event;
      return Math.round(1e6 * this.#eventOf(until).event.elapsedSince(start));
    },
    streamSynchronize: ({ device }, stream) => {
      if (this.#isCaptured(stream)) throw new CallError(900, 'the stream captures');
      return this.#moving(this.#streamOf(device, stream).synchronize());
    },
    streamQuery: ({ device }, stream) => {
      const event = recorded(this.#streamOf(device, stream));
      return this.#query({ gpu: this.#gpus[device]!, event });
    },
    hostFunction: (call, stream, run, value) => {
      const work: Work = (on) => on.callHost(() => call.process.call(run, value));
      return this.#enqueue(call, stream, nodeKinds.host, work);
    },
    // The thread of the process that runs such functions has done the one before.
    nextHostFunction: ({ process }) => process.nextCall(),
    capture: (_, stream) => {
      if (stream <= 1) throw new CallError(900, 'the default stream cannot capture');
      if (this.#captures.has(stream)) throw new CallError(901, 'the stream captures already');
      this.#captures.set(stream, { graph: new Graph(), last: new Set() });
    },
    captureEnd: (_, stream) => {
      const capture = this.#captures.get(stream);
      if (capture === undefined) throw new CallError(901, 'the stream does not capture');
      const { graph, last } = capture;
      for (const [number, one] of this.#captures) if (one.graph === graph) this.#captures.delete(number);
      if (!graph.ends.every((node) => last.has(node)))
        throw new CallError(904, 'other streams have not joined');
      return this.#add(this.#graphs, graph);
    },
    captureState: (_, stream) => Number(this.#captures.has(stream)),
    graph: () => this.#add(this.#graphs, new Graph()),
    graphNode: ({ device, tail }, graph, kind) => {
      const after = Array.from({ length: tail.length / 8 }, (_, i) => Number(tail.readBigUInt64LE(8 * i)));
      return this.#node(
        known(this.#graphs, 'graph', graph),
        device,
        kind,
        after.map((one) => known(this.#nodes, 'node', one)),
      ).number;
    },
    // Work that is enqueued there becomes that of the node, in the graph or in what was made of it.
    graphEdit: (_, executable, number) => {
      const { nodes } = known(this.#executables, 'executable', executable).graph;
      const node = nodes.find((one) => one.number === number);
      if (node === undefined) throw new CallError(cuda.invalid, `there is no node ${number}`);
      return this.#add(this.#nodes, node);
    },
    graphNodes: (_, graph) => {
      const { nodes } = known(this.#graphs, 'graph', graph);
      return [nodes.length, ...nodes.map(({ number }) => number)];
    },
    graphClone: (_, graph) => this.#add(this.#graphs, known(this.#graphs, 'graph', graph).clone()),
    graphChild: (_, graph, node) => {
      const child = new Executable(known(this.#graphs, 'graph', graph));
      known(this.#nodes, 'node', node).work = (on) => child.launch(on);
    },
    graphDestroy: (_, number) => {
      for (const node of this.#graphs.get(number)?.nodes ?? [])
        if (this.#nodes.get(node.number) === node) this.#nodes.delete(node.number);
      this.#graphs.delete(number);
      this.#executables.delete(number);
    },
    graphInstantiate: (_, graph) =>
      this.#add(this.#executables, new Executable(known(this.#graphs, 'graph', graph))),
    graphUpdate: (_, executable, graph) => {
      const of = known(this.#executables, 'executable', executable);
      if (!of.takeOver(known(this.#graphs, 'graph', graph)))
        throw new CallError(910, 'the graph has other nodes than the one that was instantiated');
    },
    graphLaunch: (call, executable, stream) => {
      const graph = known(this.#executables, 'executable', executable);
      return this.#enqueue(call, stream, nodeKinds.graph, (on) => graph.launch(on));
    },
    deviceSynchronize: ({ device }) => this.#moving(this.#gpus[device]!.synchronize()),
    count: () => this.#gpus.length,
    symbol: ({ process, device }, host) => {
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
