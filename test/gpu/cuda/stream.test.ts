import { describe, expect, it } from 'vitest';
import type { Driver } from '../../../src/gpu/cuda/driver.js';
import type { Staging } from '../../../src/gpu/cuda/staging.js';
import { CudaStream, type Home } from '../../../src/gpu/cuda/stream.js';

const host = 0x1000_0000;
const gpu = 0x2000_0000;
const between = 0x3000_0000;

const placement = (address: number) => (address < gpu ? 'host' : 'gpu');

/** A driver that notes what is enqueued: [to, from, bytes] of a copy. `fails`: the number of the copy that it refuses. */
function fakeStream(fails = -1) {
  const enqueued: (readonly [string] | readonly [number, number, number])[] = [];
  const out = { address: 64, i32: new Int32Array(2), number: () => between };
  let copies = 0;
  const driver = {
    out,
    cuPointerGetAttribute: (_: number, attribute: number, address: number) => {
      out.i32[0] = attribute === 2 ? (placement(address) === 'host' ? 1 : 2) : 0;
      return 0;
    },
    cuMemAllocAsync: (_: number, bytes: number, stream: number) => {
      enqueued.push([`${bytes} bytes for stream ${stream}`]);
      return 0;
    },
    cuMemFreeAsync: (address: number) => {
      expect(address).toBe(between);
      enqueued.push(['free']);
      return 0;
    },
    cuMemcpyAsync: (to: number, from: number, bytes: number) => {
      if (copies++ === fails) return 1;
      enqueued.push([to, from, bytes]);
      return 0;
    },
  } as unknown as Driver;
  const pinned = { address: host + 2 ** 27, bytes: new Uint8Array(64) };
  const staging = { take: () => [pinned], giveAfter() {} } as unknown as Staging;
  const adopt = (dispose: () => void) => ({ freed: false, dispose });
  const home = { context: { driver, use() {} }, staging, requireLive() {}, adopt } as unknown as Home;
  return { stream: new CudaStream(home, 7), enqueued };
}

describe('a copy on a stream', () => {
  it('is one of the driver where one end lies in the memory of the GPU', () => {
    const { stream, enqueued } = fakeStream();
    stream.copy(gpu, host, 100);
    stream.copy(host, gpu, 200);
    stream.copy(gpu, gpu + 512, 300);
    expect(enqueued).toEqual([
      [gpu, host, 100],
      [host, gpu, 200],
      [gpu, gpu + 512, 300],
    ]);
  });

  it('goes by way of the GPU, piece by piece, from host memory to host memory', () => {
    const { stream, enqueued } = fakeStream();
    const piece = 2 ** 24;
    stream.copy(host + 2 ** 26, host, 2 * piece + 5);
    const hop = (at: number, bytes: number) => [
      [between, host + at, bytes],
      [host + 2 ** 26 + at, between, bytes],
    ];
    expect(enqueued).toEqual([
      [`${piece} bytes for stream 7`],
      ...[...hop(0, piece), ...hop(piece, piece), ...hop(2 * piece, 5)],
      ['free'],
    ]);
  });

  it('gives that memory back where the driver refuses', () => {
    const { stream, enqueued } = fakeStream(1);
    expect(() => stream.copy(host + 4096, host, 100)).toThrow(/cuMemcpyAsync failed.*copying 100 bytes/);
    expect(enqueued.at(-1)).toEqual(['free']);
  });
});

describe('copyIn', () => {
  it('is a copy from each of its buffers', () => {
    const { stream, enqueued } = fakeStream();
    const { staging, context } = stream.home;
    Object.assign(context.driver, { cuStreamIsCapturing: () => 0 });
    const buffers = [64, 64, 8].map((length, i) => ({
      address: host + 64 * i,
      bytes: new Uint8Array(length),
    }));
    Object.assign(staging, { take: () => buffers });
    stream.copyIn(
      gpu,
      Uint8Array.from({ length: 131 }, (_, i) => i),
    );
    expect(enqueued).toEqual([
      [gpu, host, 64],
      [gpu + 64, host + 64, 64],
      [gpu + 128, host + 128, 3],
    ]);
    expect(buffers.map(({ bytes }) => bytes[2])).toEqual([2, 66, 130]);
  });

  it('goes by way of the GPU to host memory', () => {
    const { stream, enqueued } = fakeStream();
    Object.assign(stream.home.context.driver, { cuStreamIsCapturing: () => 0 });
    stream.copyIn(host, new Uint8Array(10));
    expect(enqueued).toEqual([
      ['10 bytes for stream 7'],
      [between, host + 2 ** 27, 10],
      [host, between, 10],
      ['free'],
    ]);
  });
});
