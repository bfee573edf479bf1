/** A dense MLP by cuBLAS, with SwiGLU as a launch between its two GEMMs. */
import type { CudaStream } from '../../gpu/cuda/index.js';
import { callSite } from '../../gpu/index.js';
import { emptyTensor } from '../rounds/tensor.js';
import { cublasOn, useOnce } from './cublas.js';
import type { CreateDenseRun, DenseRun } from './dense-run.js';
import { swigluKernel } from './kernels/gemm/swiglu.js';

const threads = 256;

export const denseCublas: CreateDenseRun = async (shape, { gateUp, down }) => {
  const { device, hidden, inner, maxTokens, sms } = shape;
  const cublas = cublasOn(device, sms);
  const row = (elements: number, purpose: string) => {
    const tensor = emptyTensor(device, 'bf16', [maxTokens, elements], purpose);
    return { tensor, purpose };
  };
  const both = row(2 * inner, 'gates and what they scale of the dense MLP');
  const between = row(inner, 'inner rows of the dense MLP');
  const launch = { grid: (sms ?? device.multiprocessors) * 8, block: threads, rank: 0 };
  const swiglu = await callSite(device, swigluKernel(inner, threads, 'all'), launch);
  swiglu.set.total(both.tensor.data); // nobody looks
  swiglu.set.from(both.tensor.data);
  swiglu.set.to(between.tensor.data);
  const run: DenseRun = {
    owned: [both, between],
    widen(x, rows, stream) {
      const up = { from: x.data, weights: gateUp.data, to: both.tensor.data };
      cublas.multiply({ ...up, rows, inputs: hidden, outputs: 2 * inner }, stream as CudaStream);
      swiglu.set.count(rows);
      swiglu.launch(stream);
    },
    narrow(out, rows, stream) {
      const back = { from: between.tensor.data, weights: down.data, to: out.data };
      cublas.multiply({ ...back, rows, inputs: inner, outputs: hidden }, stream as CudaStream);
    },
    dispose: () => cublas.dispose(),
  };
  const example = emptyTensor(device, 'bf16', [maxTokens, hidden]);
  await useOnce(device, (stream) => {
    run.widen(example, maxTokens, stream);
    run.narrow(example, maxTokens, stream);
  });
  example.free();
  return run;
};
