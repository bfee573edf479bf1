/**
 * Experts by cuBLAS: rows are copied into the order of experts, multiplied expert by expert, and SwiGLU is a launch
 * between. What cuBLAS is asked for the host must know: the sizes of the experts, or that all have as much room.
 */

import { ArgumentError } from '../../base/errors.js';
import type { Cublas, CudaStream, Product } from '../../gpu/cuda/index.js';
import { callSite, type Device, type Stream } from '../../gpu/index.js';
import { emptyTensor, type OwnedTensor, type Tensor } from '../rounds/tensor.js';
import type { Received } from '../rounds/track.js';
import { cublasOn, useOnce } from './cublas.js';
import type { ExpertSizes, ExpertsPlan } from './experts-plan.js';
import { swigluKernel } from './kernels/gemm/swiglu.js';
import type { MlpRun } from './mlp-run.js';
import type { MlpWeights } from './mlp-weights.js';

const threads = 256;

interface Of {
  readonly device: Device;
  readonly plan: ExpertsPlan;
  readonly payload: string;
  readonly experts: number;
  readonly hidden: number;
  readonly inner: number;
}

export async function cublasRun(of: Of, { gateUp, down }: MlpWeights): Promise<MlpRun> {
  const { device, plan, payload, hidden, inner } = of;
  const cublas = cublasOn(device);
  const owned: { readonly tensor: OwnedTensor; readonly purpose: string }[] = [];
  const row = (elements: number, purpose: string): Tensor => {
    const tensor = emptyTensor(device, 'bf16', [plan.rows, elements], purpose);
    owned.push({ tensor, purpose });
    return tensor;
  };
  const rows = {
    expanded: row(hidden, 'expanded rows'),
    both: row(2 * inner, 'gates and what they scale'),
    inner: row(inner, 'inner rows of experts'),
    made: row(hidden, 'rows that experts made'),
  };
  const launch = { grid: device.multiprocessors * 8, block: threads, programmatic: true, rank: 0 };
  const swiglu = await callSite(device, swigluKernel(inner, threads, 'plan'), launch);
  swiglu.set.count(0); // nobody looks
  swiglu.set.total(plan.planned.total.data);
  swiglu.set.from(rows.both.data);
  swiglu.set.to(rows.inner.data);
  const up = { from: rows.expanded.data, weights: gateUp.data, to: rows.both.data };
  const back = { from: rows.inner.data, weights: down.data, to: rows.made.data };
  const sizesOf = { up: { inputs: hidden, outputs: 2 * inner }, back: { inputs: inner, outputs: hidden } };
  // Where the host brings sizes it has waited for the GPU.
  if (plan.form === 'masked')
    await useOnce(device, (stream) => {
      const multiply = productsOf(of, cublas, stream, undefined);
      multiply({ ...up, ...sizesOf.up });
      multiply({ ...back, ...sizesOf.back });
    });
  return {
    owned,
    run(received: Received, stream: Stream, sizes?: ExpertSizes): Tensor {
      const multiply = productsOf(of, cublas, stream as CudaStream, sizes);
      plan.expand(received, { [payload]: rows.expanded }, stream);
      multiply({ ...up, ...sizesOf.up });
      swiglu.launch(stream);
      multiply({ ...back, ...sizesOf.back });
      return rows.made;
    },
    dispose: () => cublas.dispose(),
  };
}

/** Multiplies the rows of all experts, as the host knows how many there are. */
function productsOf(
  { plan, experts }: Of,
  cublas: Cublas,
  stream: CudaStream,
  sizes: ExpertSizes | undefined,
): (all: Omit<Product, 'rows'>) => void {
  if (sizes === undefined) {
    if (plan.form === 'masked')
      return (all) => cublas.strided({ ...all, rows: plan.rows / experts }, experts, stream);
    const mustBe =
      "what plan.sizes(stream) gave, for cuBLAS takes sizes from the host (a plan of form 'masked' needs none)";
    throw new ArgumentError('sizes', sizes, mustBe);
  }
  const { counts, offsets } = sizes;
  if (counts.length !== experts || offsets.length <= experts)
    throw new ArgumentError('sizes', `of ${counts.length} experts`, `those of ${experts}`);
  return ({ from, weights, to, inputs, outputs }) => {
    for (const [e, rows] of counts.entries())
      cublas.multiply(
        {
          ...{ rows, inputs, outputs },
          from: from + 2 * offsets[e]! * inputs,
          weights: weights + 2 * e * inputs * outputs,
          to: to + 2 * offsets[e]! * outputs,
        },
        stream,
      );
  };
}
