import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { probe } from '../../../src/base/native/index.js';
import { CudaDevice, type CudaStream, countGpus } from '../../../src/gpu/cuda/index.js';
import { type NcclCommunicator, ncclAmong, ncclGroup } from '../../../src/tools/bench/nccl-library.js';

const present = probe(['libnccl.so.2']);
const skip = countGpus() < 2 ? 'needs two GPUs' : present.ok ? false : `needs NCCL: ${present.reason}`;

let devices: CudaDevice[] = [];
let streams: CudaStream[] = [];
let communicators: readonly NcclCommunicator[] = [];
before(() => {
  if (skip !== false) return;
  devices = [0, 1].map((ordinal) => CudaDevice.open(ordinal));
  streams = devices.map((device) => device.createStream());
  communicators = ncclAmong(devices.map((device, rank) => ({ device, rank })));
});
after(async () => {
  for (const stream of streams) await stream.synchronize();
  for (const communicator of communicators) communicator.destroy();
  for (const device of devices) await device.dispose();
});

const floats = async (rank: number, address: number, count: number) => [
  ...new Float32Array((await streams[rank]!.copyOut(address, 4 * count)).buffer),
];

test('exchanges, gathers and sums, directly and in a graph', { skip }, async () => {
  const memory = devices.map((device) => device.allocate(4096, 'NCCL buffers'));
  const [from, exchanged, gathered, summed] = [0, 1024, 2048, 3072];
  for (const [rank, stream] of streams.entries()) {
    stream.fill(memory[rank]!.address, 4096, 0);
    stream.copyIn(
      memory[rank]!.address,
      new Uint8Array(Float32Array.from([1, 2, 3, 4], (x) => x + 10 * rank).buffer),
    );
  }
  const each = (
    body: (rank: number, base: number, communicator: NcclCommunicator, stream: CudaStream) => void,
  ) =>
    ncclGroup(() => {
      for (const [rank, { address }] of memory.entries())
        body(rank, address, communicators[rank]!, streams[rank]!);
    });
  const work = () => {
    each((rank, base, communicator, stream) => {
      communicator.send(base + from!, 16, 1 - rank, stream);
      communicator.recv(base + exchanged!, 16, 1 - rank, stream);
    });
    each((_, base, communicator, stream) =>
      communicator.allGather(base + from!, base + gathered!, 16, stream),
    );
    each((_, base, communicator, stream) =>
      communicator.reduceScatter(base + from!, base + summed!, 2, 'f32', stream),
    );
  };
  const expect = async () => {
    for (const rank of [0, 1]) {
      const base = memory[rank]!.address;
      const other = 10 * (1 - rank);
      assert.deepEqual(await floats(rank, base + exchanged!, 4), [
        1 + other,
        2 + other,
        3 + other,
        4 + other,
      ]);
      assert.deepEqual(await floats(rank, base + gathered!, 8), [1, 2, 3, 4, 11, 12, 13, 14]);
      assert.deepEqual(await floats(rank, base + summed!, 2), rank === 0 ? [12, 14] : [16, 18]);
    }
  };
  work();
  await expect();

  for (const stream of streams) stream.beginCapture();
  work();
  const graphs = streams.map((stream) => stream.endCapture());
  for (const [rank, stream] of streams.entries()) stream.fill(memory[rank]!.address + exchanged!, 3072, 0);
  for (let round = 0; round < 100; round++) {
    for (const [rank, graph] of graphs.entries()) graph.launch(streams[rank]!);
  }
  await expect();
  for (const graph of graphs) graph.dispose();
});
