import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { after, afterEach, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { CudaDevice, countGpus } from '../../../src/gpu/cuda/index.js';
import { prepared, scatter } from './kernels.js';

const gpus = countGpus();
const needsTwo = { skip: gpus < 2 ? 'needs two GPUs' : false };

let devices: CudaDevice[];
before(() => {
  devices = Array.from({ length: Math.min(gpus, 8) }, (_, ordinal) => CudaDevice.open(ordinal));
});
after(async () => {
  for (const device of devices) await device.dispose();
});
/** Owners of windows; they end with the test. */
const owners: ChildProcess[] = [];
afterEach(() => {
  for (const child of owners.splice(0)) child.kill('SIGKILL');
});

async function scattering(device: CudaDevice, rank: number, bases: readonly number[], value: number) {
  const launcher = await prepared(device, scatter, { ranks: bases.length, value }, { block: 32, rank });
  launcher.setWindow('windows', { rank, bases, bytes: 4096 });
  return launcher;
}

test('a window starts as zeros and its handle is small', async () => {
  const device = devices[0]!;
  const window = device.allocateWindow(3_000_001, 'odd window');
  assert.ok(window.handle.length <= 4096);
  const bytes = await device.createStream().copyOut(window.address, 3_000_001);
  assert.ok(bytes.every((byte) => byte === 0));
  window.free();
  window.free();
});

test('all GPUs of one process write into each other’s windows', needsTwo, async () => {
  const windows = devices.map((device) => device.allocateWindow(4096, 'window'));
  const streams = devices.map((device) => device.createStream());
  for (const [rank, device] of devices.entries()) {
    const opened = await Promise.all(windows.map(({ handle }) => device.openWindow(handle)));
    const bases = opened.map(({ address }) => address);
    (await scattering(device, rank, bases, 1000)).launch(streams[rank]!);
  }
  for (const stream of streams) await stream.synchronize();
  const expected = devices.map((_, rank) => 1000 + rank);
  for (const [rank, window] of windows.entries()) {
    const bytes = await streams[rank]!.copyOut(window.address, 4 * devices.length);
    assert.deepEqual([...new Uint32Array(bytes.buffer)], expected);
  }
  for (const window of windows) window.free();
});

test('a handle outlives its window only as an error', needsTwo, async () => {
  const window = devices[1]!.allocateWindow(4096, 'short window');
  const { handle } = window;
  window.free();
  await assert.rejects(
    devices[0]!.openWindow(handle),
    /stale: the short window of process \d+ \(GPU 1\) is gone/,
  );
  const damaged = Uint8Array.from(handle);
  damaged[0] = 0;
  await assert.rejects(devices[0]!.openWindow(damaged), /handle is Uint8Array/);
});

async function owner(ordinal: number, env: Record<string, string>): Promise<[ChildProcess, Uint8Array]> {
  const script = fileURLToPath(new URL('./window-owner.js', import.meta.url));
  const child = fork(script, [String(ordinal)], { env: { ...process.env, ...env }, timeout: 60_000 });
  owners.push(child);
  const [{ handle }] = await Promise.race([
    once(child, 'message'),
    once(child, 'exit').then(() => assert.fail('the owner ended')),
  ]);
  return [child, new Uint8Array(Buffer.from(handle, 'base64'))];
}

async function ask(child: ChildProcess, request: string) {
  child.send(request);
  const [answer] = await once(child, 'message');
  return answer;
}

async function writeAcross(ordinal: number, env: Record<string, string>): Promise<void> {
  const device = devices[0]!;
  const stream = device.createStream();
  const [child, handle] = await owner(ordinal, env);
  const opened = await device.openWindow(handle);
  const launcher = await scattering(device, 5, [opened.address], 70);
  launcher.launch(stream);
  await stream.synchronize();
  assert.equal((await ask(child, 'read')).words[5], 75);

  // Its owner dies; what is mapped here stays usable, at least where descriptors share it.
  child.kill('SIGKILL');
  await once(child, 'exit');
  if (env.HEDDLE_WINDOWS === undefined) {
    launcher.set('value', 80);
    launcher.launch(stream);
    const words = new Uint32Array((await stream.copyOut(opened.address, 32)).buffer);
    assert.equal(words[5], 85);
  }
  opened.close();
  opened.close();
  if (env.HEDDLE_WINDOWS !== 'fabric') {
    await assert.rejects(device.openWindow(handle), /stale: .*that process has ended/);
  }
}

test('a window of another process, by descriptor', needsTwo, () => writeAcross(1, {}));

test('a window of another process, by CUDA IPC', needsTwo, () => writeAcross(1, { HEDDLE_WINDOWS: 'ipc' }));

test('a window of another process, by fabric handle where the driver makes them', async (context) => {
  const { result, detail } = devices[0]!.probeFabric();
  context.diagnostic(detail);
  if (result === 0) {
    await writeAcross(gpus > 1 ? 1 : 0, { HEDDLE_WINDOWS: 'fabric' });
    return;
  }
  assert.match(detail, /^cuMem\w+ refuses fabric handles with CUDA_ERROR_\w+ \(\d+\)|has no fabric handles/);
  process.env.HEDDLE_WINDOWS = 'fabric';
  try {
    assert.throws(
      () => devices[0]!.allocateWindow(4096, 'window'),
      /HEDDLE_WINDOWS is fabric, but .*nvidia-imex/,
    );
  } finally {
    delete process.env.HEDDLE_WINDOWS;
  }
  // A refusal leaves everything as it was.
  await writeAcross(gpus > 1 ? 1 : 0, {});
});

async function takeItsPlace(env: Record<string, string>): Promise<void> {
  const device = devices[0]!;
  const stream = device.createStream();
  const [first, handle] = await owner(0, env);
  const [second, other] = await owner(0, env);
  const opened = await device.openWindow(handle);
  const launcher = await scattering(device, 5, [opened.address], 70);
  stream.beginCapture();
  launcher.launch(stream);
  const graph = stream.endCapture();
  graph.launch(stream);
  await stream.synchronize();
  assert.equal((await ask(first, 'read')).words[5], 75);
  first.kill('SIGKILL');
  await once(first, 'exit');
  await opened.map(other);
  const words = async () => new Uint32Array((await stream.copyOut(opened.address, 32)).buffer);
  assert.equal((await words())[5], 0);
  graph.launch(stream);
  assert.equal((await words())[5], 75);
  assert.equal((await ask(second, 'read')).words[5], 75);

  // Addresses that nothing was mapped at before.
  const place = device.reserveWindow(1 << 20, 'test window');
  await place.map(other);
  assert.equal(new Uint32Array((await stream.copyOut(place.address, 32)).buffer)[5], 75);
  const larger = device.reserveWindow(1 << 24, 'larger window');
  await assert.rejects(larger.map(other), { code: 'HEDDLE_OTHER_WINDOW' });
  for (const one of [opened, place, larger]) one.close();
}

test('a window of another process takes the place of one whose process fell, and a graph reaches it', () =>
  takeItsPlace({}));

test('a window that CUDA IPC has opened cannot be mapped anew', async () => {
  const [, handle] = await owner(0, { HEDDLE_WINDOWS: 'ipc' });
  const opened = await devices[0]!.openWindow(handle);
  await assert.rejects(opened.map(handle), /cannot be mapped where another window is/);
  opened.close();
});

test('a window of a process that sees another GPU only', needsTwo, () =>
  writeAcross(0, { CUDA_VISIBLE_DEVICES: '1' }),
);

test('a window of another process on the same GPU', () => writeAcross(0, {}));

test('a window that its process has freed', async () => {
  const [child, handle] = await owner(0, {});
  assert.deepEqual(await ask(child, 'free'), { freed: true });
  await assert.rejects(devices[0]!.openWindow(handle), /stale/);
});

test('a window of another thread of this process', needsTwo, async () => {
  const device = devices[0]!;
  const stream = device.createStream();
  const worker = new Worker(new URL('./window-owner.js', import.meta.url), { workerData: 1 });
  try {
    const [{ handle }] = await once(worker, 'message');
    const opened = await device.openWindow(new Uint8Array(Buffer.from(handle, 'base64')));
    const launcher = await scattering(device, 2, [opened.address], 30);
    launcher.launch(stream);
    await stream.synchronize();
    worker.postMessage('read');
    const [{ words }] = await once(worker, 'message');
    assert.equal(words[2], 32);
    opened.close();
  } finally {
    await worker.terminate();
  }
});

test('a window can be wrapped as any other memory', async () => {
  const window = devices[0]!.allocateWindow(5000, 'window');
  const memory = devices[0]!.wrapMemory(window.address + 1000, 4000);
  assert.equal(memory.address, window.address + 1000);
  window.free();
  assert.throws(() => devices[0]!.wrapMemory(window.address, 16), /CUDA memory/);
});
