/** How long calls take that only enqueue, with a kernel in front of them that waits. */
import assert from 'node:assert/strict';
import { CudaDevice } from '../../src/gpu/cuda/index.js';
import type { Stream } from '../../src/gpu/index.js';
import type { TransportName } from '../../src/moe/families/index.js';
import {
  type Combining,
  type Dispatched,
  emptyTensor,
  type ForwardOptions,
  MoeLayer,
  type MoeLayerOptions,
  tensorFrom,
} from '../../src/moe/index.js';
import { type MoeModel, profiles } from '../../src/moe/layer/index.js';
import type { World } from '../../src/net/world/index.js';
import { makeLayer, placeWeights } from '../moe/whole-layer.js';
import { gate } from './cuda/kernels.js';
import { placedRounds } from './rounds.js';

type Calls = Readonly<Record<string, () => unknown>>;

/** How long the kernel waits for the calls behind it at most. A call that waits for it takes as long. */
const gateMs = 50;
/** The best counts: a call that waits does so each time. The first brings what the others find. */
const passes = 4;

class Gate {
  /** Milliseconds. */
  readonly times = new Map<string, number>();
  readonly #stream: Stream;
  /** Enqueues the kernel; what comes back ends it. */
  readonly #close: () => () => void;
  #pass = 0;

  private constructor(stream: Stream, close: () => () => void) {
    this.#stream = stream;
    this.#close = close;
  }

  static async before(stream: Stream, { device }: World): Promise<Gate> {
    assert.ok(device instanceof CudaDevice);
    const opened = device.allocateMapped(4, 'a gate');
    const launcher = (await device.load(gate)).launcher({ grid: 1, block: 1, rank: 0 });
    launcher.set('opened', opened.address);
    launcher.set('microseconds', gateMs * 1000);
    let number = 0;
    return new Gate(stream, () => {
      number += 1;
      launcher.set('number', number);
      launcher.launch(stream);
      return () => opened.host.store(0, number);
    });
  }

  async pass(once: () => Promise<void>): Promise<void> {
    for (this.#pass = 1; this.#pass <= passes; this.#pass++) await once();
  }

  eagerly(calls: Calls): void {
    const open = this.#close();
    for (const [name, call] of Object.entries(calls)) this.#time(name, call);
    open();
  }

  /** Returns what frees the graph, once it has run. */
  captured(what: string, calls: Calls): () => void {
    const open = this.#close();
    this.#stream.beginCapture();
    for (const [name, call] of Object.entries(calls)) this.#time(`${name}, captured`, call);
    const graph = this.#stream.endCapture();
    this.#time(`a graph of ${what}`, () => graph.launch(this.#stream));
    open();
    return () => graph.dispose();
  }

  #time(name: string, call: () => unknown): void {
    const start = performance.now();
    call();
    const ms = performance.now() - start;
    if (this.#pass > 1) this.times.set(name, Math.min(this.times.get(name) ?? ms, ms));
  }
}

/** Of a round's calls, or of its halves, and of copies and fills of what arrived and what goes back. */
export async function timesOfRounds(
  world: World,
  how: { readonly family: string; readonly transport?: TransportName; readonly split: boolean },
): Promise<ReadonlyMap<string, number>> {
  const { device, ranks } = world;
  const [tokens, hidden] = [64, 2048];
  const rows = new Uint16Array(tokens * hidden);
  const layer = { experts: 8, topK: 2, maxTokens: tokens, ...how };
  const { ep, stream, topkIds, topkWeights, inputs, out } = await placedRounds(world, layer, rows);
  const gate = await Gate.before(stream, world);
  const fromHost = { topkIds, topkWeights, payloads: { x: rows } };
  const { x } = inputs.payloads;
  const own = emptyTensor(device, 'bf16', [ranks * tokens, hidden]);
  const { output, payloads } = ep.received;
  const arrived = payloads.x;
  const host = new Uint8Array(output.bytes);
  let sent: Dispatched;
  let combining: Combining;
  let looked: Promise<unknown> = Promise.resolve();

  const dispatch: Calls = how.split
    ? {
        'dispatchSend of host arrays': () => {
          sent = ep.dispatchSend(fromHost, stream);
        },
        dispatchRecv: () => ep.dispatchRecv(sent, stream),
      }
    : { dispatch: () => ep.dispatch(inputs, stream) };
  const combine: Calls = how.split
    ? {
        combineSend: () => {
          combining = ep.combineSend(ep.received, stream);
        },
        combineRecv: () => ep.combineRecv(combining, out, stream),
      }
    : { combine: () => ep.combine(out, stream) };
  const copies: Calls = {
    'copy of what arrived to the output': () => stream.copy(output.data, arrived.data, output.bytes),
    'copy of what arrived': () => stream.copy(own.data, arrived.data, own.bytes),
    'copy to the output': () => stream.copy(output.data, own.data, output.bytes),
    'copyIn to the output': () => stream.copyIn(output.data, host),
    'fill of the output': () => stream.fill(output.data, output.bytes, 0),
    copyIn: () => stream.copyIn(own.data, host),
    copy: () => stream.copy(own.data, x.data, x.bytes),
    fill: () => stream.fill(own.data, own.bytes, 1),
  };
  const look: Calls = {
    'copyOut of what arrived': () => {
      looked = stream.copyOut(arrived.data, arrived.bytes);
    },
  };

  const large = device.allocate(2 ** 27, 'a large copy');
  const bytes = new Uint8Array(large.bytes);
  // A stage begins when all ranks are done with the one before: then a call that waits makes no peer give up.
  await gate.pass(async () => {
    // The next copy finds its buffers no longer needed.
    stream.copyIn(large.address, bytes);
    await ep.synchronize(stream);
    for (const calls of [dispatch, { ...copies, ...look }, combine]) {
      gate.eagerly(calls);
      await looked;
      await ep.synchronize(stream);
      await world.barrier('the next stage');
    }
    for (const [what, calls] of Object.entries({ dispatch, copies, combine })) {
      const free = gate.captured(what, calls);
      await ep.synchronize(stream);
      free();
      await world.barrier('the next stage');
    }
  });
  await ep.dispose();
  return gate.times;
}

const model: MoeModel = {
  ...profiles.deepseek_v3,
  ...{ hidden: 512, experts: 32, inner: 128, sharedInner: 256 },
};

/** Of a whole layer's. */
export async function timesOfLayer(
  world: World,
  { chunks = 1, ...how }: Pick<MoeLayerOptions, 'family' | 'gemm' | 'rounds'> & ForwardOptions,
): Promise<ReadonlyMap<string, number>> {
  const { device, rank } = world;
  const stream = device.createStream();
  const gate = await Gate.before(stream, world);
  const inputs = makeLayer(model, new Array(world.ranks).fill(16), 1);
  const weights = placeWeights(world, stream, inputs);
  const layer = await MoeLayer.create(world, { ...{ model, maxTokens: 16, ...weights }, ...how });
  const x = tensorFrom(device, stream, inputs.routed[rank]!.x, 'bf16', [16, model.hidden]);
  const out = emptyTensor(device, 'bf16', x.shape);
  const calls = { forward: () => layer.forward(x, out, stream, { chunks }) };
  await gate.pass(async () => {
    gate.eagerly(calls);
    await layer.synchronize(stream);
    const free = gate.captured('forward', calls);
    await layer.synchronize(stream);
    free();
  });
  await layer.dispose();
  return gate.times;
}
