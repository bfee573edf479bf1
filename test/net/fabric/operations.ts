/** Operations of engines over any provider: writes, immediates, pages, scatters, barriers, several rails, the loss of a peer, and the end. */
import assert from 'node:assert/strict';
import { DisposedError } from '../../../src/base/errors.js';
import { type EngineOptions, TransferEngine } from '../../../src/net/fabric/index.js';

/** The network, and how slow the machine is. */
export interface Over extends Pick<EngineOptions, 'provider' | 'devices'> {
  /** How long a peer that does not answer is waited for. Default 300 ms. */
  readonly lossMs?: number;
  /** How many writes go to one peer at once. Default 6000. */
  readonly writes?: number;
}

const open: TransferEngine[] = [];

/** Closes all engines that were opened here. */
export async function closeEngines(): Promise<void> {
  for (const engine of open.splice(0)) await engine.close();
}

async function openEngine(options: EngineOptions & Over): Promise<TransferEngine> {
  const { lossMs, writes, ...wanted } = options;
  const { provider = 'tcp;ofi_rxm', devices = provider === 'shm' ? [] : ['lo'] } = wanted;
  const engine = await TransferEngine.open({
    timeoutMs: 20_000,
    thread: 'caller',
    ...wanted,
    provider,
    devices,
  });
  open.push(engine);
  return engine;
}

/** Two engines of this process that know each other, each with a region of `bytes`; this thread drives both. `whole`: writes from its beginning. */
export async function pair(options: EngineOptions & Over, bytes = 1 << 16) {
  const [a, b] = [await openEngine(options), await openEngine(options)];
  const [source, target] = [a.allocate(bytes), b.allocate(bytes)];
  const [toB, toA] = [a.addPeer(b.address, 'b'), b.addPeer(a.address, 'a')];
  const remote = a.remote(toB, target.descriptor);
  // This thread drives both: where a's call waits for room, b has to make progress.
  if (options.thread !== 'worker') a.driver.pause = () => b.poll() && false;
  const whole = { source, sourceOffset: 0, target: remote, targetOffset: 0 } as const;
  return { a, b, source, target, toB, toA, remote, whole };
}

export function until(engines: readonly TransferEngine[], holds: () => boolean): void {
  const end = performance.now() + 20_000;
  while (!holds()) {
    for (const engine of engines) engine.poll();
    if (performance.now() > end) throw new Error(`not within 20 s: ${holds}`);
  }
}

export const bytesOf = (region: { buffer: ArrayBuffer }) => new Uint8Array(region.buffer);

async function waitForRoom(over: Over, queue: number): Promise<void> {
  const { writes = 6000 } = over;
  const { a, b, whole } = await pair({ ...over, queue });
  const counter = a.counter();
  const write = { ...whole, bytes: 64, counter };
  let most = 0;
  for (let i = 0; i < writes; i++) {
    a.write({ ...write, immediate: 9 });
    most = Math.max(most, a.underway);
  }
  until([a, b], () => counter.reached(writes) && b.immediate(9).landed === writes);
  assert.ok(most <= queue, `${most} were under way`);
  assert.equal(counter.failed, 0);
  assert.equal(a.underway, 0);
}

/** Each throws where something is not as it should be. */
export const operations: Readonly<Record<string, (over: Over) => Promise<void>>> = {
  'write the slice that was named, and nothing beside it': async (over) => {
    const { a, b, source, target, remote } = await pair(over);
    bytesOf(source).set(Uint8Array.from({ length: 1 << 16 }, (_, i) => i * 7 + 1));
    const counter = a.counter();
    const write = { source, sourceOffset: 100, target: remote, targetOffset: 5000, bytes: 30_000, counter };
    a.write({ ...write, immediate: 3 });
    until([a, b], () => counter.reached(1) && b.immediate(3).landed === 1);
    const got = bytesOf(target);
    assert.equal(Buffer.compare(got.subarray(5000, 35_000), bytesOf(source).subarray(100, 30_100)), 0);
    assert.ok([...got.subarray(0, 5000), ...got.subarray(35_000)].every((byte) => byte === 0));
  },

  'count immediates that arrive before anybody asks, over the whole 32-bit range': async (over) => {
    const { a, b, whole } = await pair(over);
    const counter = a.counter();
    const tags = [0, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1];
    for (const immediate of [...tags, ...tags, 0]) a.write({ ...whole, bytes: 8, immediate, counter });
    until([a, b], () => counter.reached(11) && b.immediate(0).landed === 3);
    assert.deepEqual(
      tags.map((tag) => b.immediate(tag).landed),
      [3, 2, 2, 2, 2],
    );
    assert.equal(b.immediate(0).take(2), true);
    assert.equal(b.immediate(0).take(2), false);
    assert.equal(b.immediate(0).landed, 1);
    assert.equal(b.immediate(12345).landed, 0);
  },

  'page, scatter and meet at barriers': async (over) => {
    const { a, b, source, target, remote } = await pair(over);
    const c = await openEngine(over);
    const targetC = c.allocate(1 << 16);
    const group = a.group([remote, a.remote(a.addPeer(c.address, 'c'), targetC.descriptor)]);
    bytesOf(source).set(Uint8Array.from({ length: 1 << 16 }, (_, i) => i >> 8));
    const counter = a.counter();
    const pages = Array.from({ length: 200 }, (_, i) => i);
    a.paged({
      source,
      sourceOffsets: pages.map((page) => page * 256),
      target: remote,
      targetOffsets: pages.map((page) => (199 - page) * 256),
      bytes: 256,
      immediate: 1,
      counter,
    });
    until([a, b, c], () => counter.reached(1) && b.immediate(1).landed === 200);
    assert.ok(pages.every((page) => bytesOf(target)[page * 256 + 255] === 199 - page));

    a.scatter({
      ...{ source, group, immediate: 2, counter },
      ...{ sourceOffsets: [256 * 10, 256 * 20], targetOffsets: [60_000, 50_000], bytes: [100, 0] },
    });
    a.barrier({ group, immediate: 4, counter });
    until([a, b, c], () =>
      [b, c].every((to) => to.immediate(2).landed === 1 && to.immediate(4).landed === 1),
    );
    until([a, b, c], () => counter.reached(3));
    assert.equal(bytesOf(target)[60_099], 10);
    assert.equal(bytesOf(target)[60_100], 0);
    assert.ok(bytesOf(targetC).every((byte) => byte === 0));
    assert.equal(counter.error, null);
  },

  'cut writes up over several rails and count each once': async (over) => {
    const { a, b, source, target, whole } = await pair({ ...over, rails: 3, shard: 'bytes' });
    bytesOf(source).set(Uint8Array.from({ length: 1 << 16 }, (_, i) => i * 11 + (i >> 8)));
    const counter = a.counter();
    for (const bytes of [65_536, 100, 1]) a.write({ ...whole, bytes, immediate: 8, counter });
    until([a, b], () => counter.reached(3) && b.immediate(8).landed === 3);
    assert.equal(Buffer.compare(bytesOf(source), bytesOf(target)), 0);
    assert.equal(counter.completed, 3);
  },

  'use one rail a peer when sharding by peer': async (over) => {
    const { a, b, whole } = await pair({ ...over, rails: 2 });
    const counter = a.counter();
    a.write({ ...whole, bytes: 4096, immediate: 8, counter });
    until([a, b], () => counter.reached(1) && b.immediate(8).landed === 1);
    assert.equal(a.devices.length, 2);
  },
  'can be removed and added anew, and late arrivals of before do no harm': async (over) => {
    const { a, b, source, target, toB, remote } = await pair({ ...over, timeoutMs: over.lossMs ?? 300 });
    const lost = a.counter();
    const write = { source, sourceOffset: 0, targetOffset: 0, bytes: 4096 };
    for (let i = 0; i < 5; i++) a.write({ ...write, target: remote, immediate: 1, counter: lost });
    // Nobody polls b: to a, it has stopped.
    until([a], () => lost.reached(5));
    assert.equal(lost.failed, 5);
    assert.equal(toB.lost, true);
    a.removePeer(toB);
    const again = a.remote(a.addPeer(b.address, 'b again'), target.descriptor);
    const counter = a.counter();
    bytesOf(source).fill(5);
    // A deadline runs from the call, and b has to answer within it: poll both as soon as there is one.
    for (let i = 0; i < 5; i++) a.write({ ...write, target: again, immediate: 2, counter });
    until([a, b], () => counter.reached(5) && b.immediate(2).landed === 5);
    assert.equal(counter.error, null);
    assert.deepEqual(bytesOf(target).subarray(0, 4096), new Uint8Array(4096).fill(5));
    assert.equal(a.underway, 0);
  },

  // The queue of a peer, and with 4096 also the tickets of all operations.
  'wait for room among 8 instead of overflowing, and miss no completion': (over) => waitForRoom(over, 8),
  'wait for room among 4096 likewise': (over) => waitForRoom(over, 4096),

  'end with an error where the engine closes while they are under way': async (over) => {
    // Over shm that takes down the other engine of the process (docs/fabric.md).
    if (over.provider === 'shm') return;
    const { a, b, whole } = await pair(over);
    const counter = a.counter();
    for (let i = 0; i < 50; i++) a.write({ ...whole, bytes: 60_000, counter });
    await a.close();
    assert.equal(counter.completed + counter.failed, 50);
    assert.ok(counter.error instanceof DisposedError);
    b.poll();
  },

  'close while a peer writes': async (over) => {
    if (over.provider === 'shm') return;
    const { a, b, whole } = await pair({ ...over, timeoutMs: over.lossMs ?? 2000 });
    const counter = a.counter();
    const write = { ...whole, bytes: 64, counter };
    a.write({ ...write, immediate: 9 });
    until([a, b], () => counter.reached(1));
    for (let i = 0; i < 100; i++) a.write({ ...write, immediate: 9 });
    await b.close();
    until([a], () => counter.reached(101));
    assert.equal(counter.completed + counter.failed, 101);
  },
};
