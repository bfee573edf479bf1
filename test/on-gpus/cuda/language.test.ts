import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CudaDevice, countGpus } from '../../../src/gpu/cuda/index.js';
import type { Device } from '../../../src/gpu/index.js';
import { Random, SimMachine } from '../../../src/gpu/sim/index.js';
import { prepared } from './kernels.js';
import { everything, exchangeKernel, neighbours } from './language-kernels.js';

let devices: CudaDevice[];
before(() => {
  devices = Array.from({ length: Math.min(countGpus(), 8) }, (_, ordinal) => CudaDevice.open(ordinal));
});
after(async () => {
  for (const device of devices) await device.dispose();
});

test('every kind of parameter arrives', async () => {
  const device = devices[0]!;
  const stream = device.createStream();
  const memory = device.allocate(32, 'results');
  const out = { out_0: memory.address, out_1: memory.address + 16 };
  const rest = { big: 0x1234_5678_9abc_def0n, real: 2.5, off: 0, count: 4_000_000_000 };
  const values = { on: 1, small: -5, ...out, ...rest };
  const launcher = await prepared(device, everything.ir(), values, { block: 32, rank: 6 });
  launcher.launch(stream);
  const words = [...new Uint32Array((await stream.copyOut(memory.address, 32)).buffer)];
  assert.deepEqual(words, [1, 2 ** 32 - 5, 0x1234_5678, 0x9abc_def0, 10, 0, 4_000_000_000, 6]);
  memory.free();
});

test('pairs of bf16 from shared memory of another block have the bits of the simulated machine', async () => {
  const random = Random.from('pairs of bf16');
  const edges = [0, 0x80008000, 0x3f803f80, 0x00803f00, 0x80010003, 0x7f80ff7f, 0x3fc0bec1, 0x3f810001];
  const words = Uint32Array.from({ length: 64 }, (_, i) => edges[i] ?? random.below(2 ** 32));
  const resultsOn = async (device: Device): Promise<Uint16Array> => {
    const stream = device.createStream();
    const input = device.allocate(words.byteLength, 'words');
    const out = device.allocate(64 * 160 * 4, 'out');
    stream.copyIn(input.address, new Uint8Array(words.buffer));
    const values = { words: input.address, out: out.address };
    const launcher = await prepared(device, neighbours.ir(), values, { grid: 2, block: 32 });
    launcher.launch(stream);
    const halves = new Uint16Array((await stream.copyOut(out.address, out.bytes)).slice().buffer);
    // A GPU makes one NaN of all.
    return halves.map((half) => ((half & 0x7fff) > 0x7f80 ? 0x7fff : half));
  };
  const simulated = await resultsOn(SimMachine.create({ ranks: 1 }).device(0));
  assert.ok(new Set(simulated).size > 1000);
  assert.deepEqual(await resultsOn(devices[0]!), simulated);
});

test('ranks exchange through windows, a thousand graph replays without a mistake', async () => {
  const { Window, kernel: exchange } = exchangeKernel(devices.length);
  const windows = devices.map((device) => device.allocateWindow(Window.bytes, 'exchange window'));
  const streams = devices.map((device) => device.createStream());
  const graphs = [];
  for (const [rank, device] of devices.entries()) {
    const bases = [];
    for (const { handle } of windows) bases.push((await device.openWindow(handle)).address);
    const program = await device.load(exchange.ir());
    assert.equal(program.facts.localBytes, 0);
    const launcher = program.launcher({ grid: 1, block: 256, rank });
    launcher.setWindow('win', { rank, bases, bytes: Window.bytes });
    launcher.set('limit', 2_000_000);
    const stream = streams[rank]!;
    stream.beginCapture();
    launcher.launch(stream);
    launcher.launch(stream);
    graphs.push(stream.endCapture());
  }
  for (let replay = 0; replay < 1000; replay++) {
    for (const [rank, graph] of graphs.entries()) graph.launch(streams[rank]!);
  }
  const offset = (name: string) => Window.fields.find((entry) => entry.name === name)!.offset;
  for (const [rank, stream] of streams.entries()) {
    const bytes = await stream.copyOut(windows[rank]!.address, Window.bytes);
    const words = new DataView(bytes.buffer);
    assert.equal(words.getUint32(offset('epoch'), true), 2000);
    assert.equal(words.getUint32(offset('errors'), true), 0);
  }
  for (const graph of graphs) graph.dispose();
});
