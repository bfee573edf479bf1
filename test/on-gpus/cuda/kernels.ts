/** Kernels as CUDA C++ text, for the tests of the device alone. */
import type { CudaSource, Parameter } from '../../../src/gpu/cuda/index.js';

const options = (architecture: string) => [`--gpu-architecture=${architecture}`, '--std=c++17'];

function source(entry: string, text: string, parameters: readonly Parameter[], withRank = false): CudaSource {
  const last = parameters.at(-1);
  const end = last === undefined ? 0 : last.offset + last.bytes;
  return {
    kernel: { text, entry, options },
    parameters: { parameters, rankOffset: withRank ? end : null, bytes: withRank ? end + 4 : end },
    maxThreads: 1024,
  };
}

const pointer = (name: string, offset: number): Parameter => ({ name, kind: 'pointer', offset, bytes: 8 });
const u32 = (name: string, offset: number): Parameter => ({ name, kind: 'u32', offset, bytes: 4 });

/** out[i] = a[i] + b[i] */
export const add = source(
  'add',
  `extern "C" __global__ void add(const float* a, const float* b, float* out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}`,
  [pointer('a', 0), pointer('b', 8), pointer('out', 16), u32('n', 24)],
);

/** *counter += step, so that every launch counts. */
export const count = source(
  'count',
  `extern "C" __global__ void count(unsigned* counter, unsigned step) { *counter += step; }`,
  [pointer('counter', 0), u32('step', 8)],
);

/** Runs for that many microseconds. */
export const spin = source(
  'spin',
  `extern "C" __global__ void spin(unsigned microseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < microseconds * 1000ull);
}`,
  [u32('microseconds', 0)],
);

/** Runs until the host has stored that number, but no longer than so many microseconds. */
export const gate = source(
  'gate',
  `extern "C" __global__ void gate(const volatile unsigned* opened, unsigned number, unsigned microseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); }
  while (*opened != number && now - start < microseconds * 1000ull);
}`,
  [pointer('opened', 0), u32('number', 8), u32('microseconds', 12)],
);

/** Every rank writes value + rank to word rank of every window: peers by value, the rank last. */
export const scatter = source(
  'scatter',
  `struct Windows { unsigned long long base[8]; };
extern "C" __global__ void scatter(const __grid_constant__ Windows windows, unsigned ranks, unsigned value, unsigned rank) {
  if (threadIdx.x < ranks) ((unsigned*)windows.base[threadIdx.x])[rank] = value + rank;
  __threadfence_system();
}`,
  [{ name: 'windows', kind: 'peers', offset: 0, bytes: 64 }, u32('ranks', 64), u32('value', 68)],
  true,
);

/** Writes to an address that nobody mapped. */
export const crash = source('crash', 'extern "C" __global__ void crash() { *(volatile int*)64 = 1; }', []);
