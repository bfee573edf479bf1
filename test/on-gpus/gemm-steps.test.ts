import assert from 'node:assert/strict';
import { test } from 'node:test';
import { steps } from '../../examples/gemm/index.js';
import { listGpus } from '../../src/gpu/cuda/index.js';
import { measureSteps, teraflops } from './gemm-steps.js';
import { gpus, needs } from './machine.js';

const hopper = gpus > 0 && listGpus()[0]!.capability[0] === 9;

test(
  'the steps of docs/gemm.md multiply, the last nearly as fast as cuBLAS',
  needs(1, 180_000),
  async (context) => {
    // Other GPUs have no wgmma, on which the last three rest.
    const some = hopper ? steps : steps.slice(0, 2);
    const { points, sizes } = await measureSteps({ m: 4096, n: 4096, k: 4096 }, 'cuda', some);
    for (const { name, time } of points)
      context.diagnostic(`${name}: ${time.toFixed(1)} µs, ${teraflops(sizes, time).toFixed(1)} TFLOP/s`);
    const cublas = points[some.length];
    if (!hopper || cublas === undefined) return;
    const share = cublas.time / points[some.length - 1]!.time;
    context.diagnostic(`the last step has ${(100 * share).toFixed(1)} % of the rate of cuBLAS`);
    assert.ok(share >= 0.85, `${share} of the rate of cuBLAS`);
  },
);
