import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { CudaDevice, CudaError } from '../../../src/gpu/cuda/index.js';
import { add, count, prepared, spin } from './kernels.js';

let device: CudaDevice;
before(() => {
  device = CudaDevice.open(0);
});
after(() => device.dispose());

const bytesOf = (values: Float32Array | Uint32Array) => new Uint8Array(values.buffer);

test('copies in, adds on the GPU and copies out', async () => {
  const n = 1_000_003;
  const a = Float32Array.from({ length: n }, (_, i) => i % 1000);
  const b = Float32Array.from({ length: n }, (_, i) => (i % 7) * 0.5);
  const stream = device.createStream();
  const da = device.allocate(4 * n, 'a');
  const db = device.allocate(4 * n, 'b');
  const out = device.allocate(4 * n, 'sum');
  stream.copyIn(da.address, bytesOf(a));
  stream.copyIn(db.address, bytesOf(b));
  stream.fill(out.address, 4 * n, 0xff);
  const program = await device.load(add);
  assert.equal(program.facts.localBytes, 0);
  const launcher = program.launcher({ grid: Math.ceil(n / 256), block: 256, rank: 0 });
  assert.throws(() => launcher.launch(stream), /without its parameters a, b, out, n/);
  launcher.set('a', da.address);
  launcher.set('b', db.address);
  launcher.set('out', out.address);
  assert.throws(() => launcher.set('n', -1), /add_kernel.n is -1; it must be an integer from 0/);
  assert.throws(() => launcher.set('m', 1), /a parameter of add_kernel: a, b, out, n/);
  launcher.set('n', n);
  launcher.launch(stream);
  const result = new Float32Array((await stream.copyOut(out.address, 4 * n)).buffer);
  assert.deepEqual(
    result,
    a.map((value, i) => value + b[i]!),
  );
  for (const memory of [da, db, out]) memory.free();
});

test('keeps the order of copies that overlap in the host’s time', async () => {
  const stream = device.createStream();
  const memory = device.allocate(2 ** 20, 'a buffer');
  const results: Promise<Uint8Array>[] = [];
  for (let round = 0; round < 40; round++) {
    stream.copyIn(memory.address, new Uint8Array(2 ** 20).fill(round));
    results.push(stream.copyOut(memory.address, 2 ** 20));
  }
  for (const [round, bytes] of (await Promise.all(results)).entries()) {
    assert.ok(bytes.every((byte) => byte === round));
  }
  memory.free();
  stream.dispose();
});

test('takes the bytes of a copy before it returns, also behind a kernel that runs', async () => {
  const stream = device.createStream();
  const launcher = await prepared(device, spin, { microseconds: 50_000 });
  for (const bytes of [4, 2 ** 16, 2 ** 24, 2 ** 26 + 4]) {
    const memory = device.allocate(bytes, 'a buffer');
    const source = new Uint8Array(bytes).fill(1);
    launcher.launch(stream);
    stream.copyIn(memory.address, source);
    source.fill(2);
    const there = await stream.copyOut(memory.address, bytes);
    assert.ok(
      there.every((byte) => byte === 1),
      `${bytes} bytes`,
    );
    memory.free();
  }
  stream.dispose();
});

test('lets the event loop turn while a kernel runs', async () => {
  const stream = device.createStream();
  const launcher = await prepared(device, spin, { microseconds: 50_000 });
  launcher.launch(stream);
  let turns = 0;
  let done = false;
  const turn = () => {
    turns++;
    if (!done) setImmediate(turn);
  };
  setImmediate(turn);
  await stream.synchronize();
  done = true;
  assert.ok(turns > 100, `the loop turned ${turns} times`);
  stream.dispose();
});

test('replays a graph a thousand times, with the bytes and values that it captured', async () => {
  const stream = device.createStream();
  const counter = device.allocate(16, 'counters');
  const launcher = await prepared(device, count, { counter: counter.address, step: 3 });
  stream.fill(counter.address, 16, 0);
  stream.beginCapture();
  await assert.rejects(stream.synchronize(), /while the stream captures/);
  const host = new Uint8Array([1, 2, 3, 4]);
  stream.copyIn(counter.address + 8, host);
  host.fill(9);
  launcher.launch(stream);
  launcher.set('step', 5);
  launcher.launch(stream);
  stream.copy(counter.address + 12, counter.address + 8, 4);
  const graph = stream.endCapture();
  launcher.set('step', 1000);
  for (let i = 0; i < 1000; i++) graph.launch(stream);
  const result = await stream.copyOut(counter.address, 16);
  assert.equal(new DataView(result.buffer).getUint32(0, true), 8000);
  assert.deepEqual([...result.subarray(8)], [1, 2, 3, 4, 1, 2, 3, 4]);
  graph.dispose();
  assert.throws(() => graph.launch(stream), /disposed/);
  counter.free();
});

test('measures with events, and waits for them across streams', async () => {
  const [one, two] = [device.createStream(), device.createStream()];
  const [start, end] = [device.createEvent(), device.createEvent()];
  const launcher = await prepared(device, spin, { microseconds: 2000 });
  one.record(start);
  launcher.launch(one);
  one.record(end);
  assert.throws(() => end.elapsedSince(start), /await synchronize first/);
  two.wait(end);
  await two.synchronize();
  const elapsed = end.elapsedSince(start);
  assert.ok(elapsed >= 2 && elapsed < 50, `${elapsed} ms`);
});

test('works on the caller’s stream and the caller’s memory', async () => {
  const own = device.createStream();
  const wrapped = device.wrapStream(own.handle);
  const memory = device.allocate(64, 'memory');
  const view = device.wrapMemory(memory.address + 16, 48);
  wrapped.fill(view.address, 48, 7);
  wrapped.dispose();
  const bytes = await own.copyOut(memory.address + 16, 48);
  assert.ok(bytes.every((byte) => byte === 7));
  assert.throws(() => device.wrapMemory(4096, 16), /0x1000.*CUDA memory/);
  assert.throws(() => device.wrapMemory(memory.address, 2 ** 40), /CUDA memory/);
  memory.free();
});

test('shares mapped host memory with a running kernel', async () => {
  const stream = device.createStream();
  const mapped = device.allocateMapped(4096, 'failure records');
  const launcher = await prepared(device, count, { counter: mapped.address, step: 42 });
  mapped.host.store(0, 100);
  launcher.launch(stream);
  await stream.synchronize();
  assert.equal(mapped.host.load(0), 142);
  mapped.free();
});

test('a programmatic launch gives the same result', async () => {
  const stream = device.createStream();
  const counter = device.allocate(4, 'counter');
  stream.fill(counter.address, 4, 0);
  const values = { counter: counter.address, step: 1 };
  const launcher = await prepared(device, count, values, { programmatic: true });
  launcher.launch(stream);
  await stream.synchronize();
  launcher.launch(stream);
  const result = await stream.copyOut(counter.address, 4);
  assert.equal(result[0], 2);
  counter.free();
});

test('says what was asked for when memory runs out', () => {
  assert.throws(() => device.allocate(2 ** 44, 'receive buffer'), {
    constructor: CudaError,
    resultName: 'CUDA_ERROR_OUT_OF_MEMORY',
    message: /16384.0 GiB \(17592186044416 bytes\) for the receive buffer on GPU 0, of which .* free/,
  });
  assert.throws(() => device.allocateWindow(2 ** 40, 'huge window'), /cuMemCreate failed.*huge window/);
});

test('refuses a GPU that is not there', () => {
  assert.throws(() => CudaDevice.open(99), /GPU 99 was asked for, but this process sees/);
});

test('reports a crashed kernel once, and still disposes', () => {
  const script = fileURLToPath(new URL('./crash-child.js', import.meta.url));
  const child = spawnSync(process.execPath, [script], { encoding: 'utf8', timeout: 60_000 });
  assert.equal(child.status, 0, child.stderr);
  assert.match(child.stdout, /CUDA_ERROR_ILLEGAL_ADDRESS.*the GPU state of this process is lost/s);
  assert.match(child.stdout, /disposed/);
});

test('disposes of everything, and refuses afterwards', async () => {
  const second = CudaDevice.open(0);
  const stream = second.createStream();
  const memory = second.allocate(1024, 'memory');
  second.allocateWindow(1024, 'window');
  stream.fill(memory.address, 1024, 1);
  await second.dispose();
  await second.dispose();
  assert.throws(() => second.allocate(1, 'more'), /was disposed/);
  assert.throws(() => stream.fill(memory.address, 1, 1), /disposed/);
  // The first device, on the same GPU, is untouched.
  const probe = device.allocate(4, 'probe');
  probe.free();
});

test('what a launch costs the host (a figure, not a judgement)', async (context) => {
  const stream = device.createStream();
  const counter = device.allocate(4, 'counter');
  const launcher = await prepared(device, count, { counter: counter.address }, { block: 32 });
  const rounds: number[] = [];
  for (let round = 0; round < 30; round++) {
    // Few enough that the queue never fills, which would measure the GPU.
    const start = performance.now();
    for (let i = 0; i < 200; i++) {
      launcher.set('step', i);
      launcher.launch(stream);
    }
    rounds.push((performance.now() - start) * 5);
    await stream.synchronize();
  }
  rounds.sort((x, y) => x - y);
  context.diagnostic(`set + launch: median ${rounds[15]!.toFixed(2)} µs, best ${rounds[0]!.toFixed(2)} µs`);
  counter.free();
});
