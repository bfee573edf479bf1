/** Kernels for the tests of the device alone. */
import type { Device, LaunchShape } from '../../../src/gpu/index.js';
import { field, type Kernel, kernel, layout, peers, pointer } from '../../../src/lang/index.js';

/** A launch of a kernel with these values, by one block and one thread unless it says more. */
export async function prepared(
  device: Device,
  module: ReturnType<Kernel['ir']>,
  values: Readonly<Record<string, number | bigint>>,
  shape: Partial<LaunchShape> = {},
) {
  const launcher = (await device.load(module)).launcher({ grid: 1, block: 1, rank: 0, ...shape });
  for (const [name, value] of Object.entries(values)) launcher.set(name, value);
  return launcher;
}

/** out[i] = a[i] + b[i] */
export const add = kernel(
  { name: 'add', params: { a: pointer('f32'), b: pointer('f32'), out: pointer('f32'), n: 'u32' } },
  (g, { a, b, out, n }) => {
    const i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
    if (i < n) g.store(out.at(i), g.load(a.at(i)) + g.load(b.at(i)));
  },
).ir();

/** *counter += step, so that every launch counts. */
export const count = kernel(
  { name: 'count', params: { counter: pointer('u32'), step: 'u32' } },
  (g, { counter, step }) => {
    g.store(counter, g.load(counter) + step);
  },
).ir();

/** Runs for that many microseconds. */
export const spin = kernel({ name: 'spin', params: { microseconds: 'u32' } }, (g, { microseconds }) => {
  const start = g.clock();
  while (g.clock() - start < g.u64(microseconds) * 1000n) {}
}).ir();

/** Runs until the host has stored that number, but no longer than so many microseconds. */
export const gate = kernel(
  { name: 'gate', params: { opened: pointer('u32'), number: 'u32', microseconds: 'u32' } },
  (g, { opened, number, microseconds }) => {
    g.awaitEpoch(opened, number, { until: '==', order: 'relaxed', scope: 'sys', limit: microseconds });
  },
).ir();

const words = layout('words', { word: field('u32', 8) });

/** Every rank writes value + rank to word rank of every window: peers by value, the rank last. */
export const scatter = kernel(
  { name: 'scatter', params: { windows: peers(words), ranks: 'u32', value: 'u32' } },
  (g, { windows, ranks, value }) => {
    if (g.threadIdx.x < ranks) g.store(windows.at(g.threadIdx.x).word.at(g.rank), value + g.rank);
    g.fence('sys');
  },
).ir();

/** Writes to an address: in the test to one that nobody mapped. */
export const crash = kernel({ name: 'crash', params: { nowhere: pointer('u32') } }, (g, { nowhere }) => {
  g.store(nowhere, 1);
}).ir();
