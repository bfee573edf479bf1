/**
 * An MLP by cuBLAS: rows in the order of experts are multiplied expert by expert, and SwiGLU is a launch between. The
 * host must know what cuBLAS is asked for: the sizes of the experts, or that all have as much room.
 */
import { ArgumentError } from '../../base/errors.js';
import { Cublas, CudaDevice, type CudaStream, type Product } from '../../gpu/cuda/index.js';
import { callSite } from '../../gpu/index.js';
import { emptyTensor } from '../rounds/tensor.js';
import { swigluKernel } from './kernels/gemm/swiglu.js';
import { isPacked, kindOf, type Products, type ProductsOf, type Routed, type RowsOf } from './products.js';

const threads = 256;

type Multiply = (all: Omit<Product, 'rows'>, stream: CudaStream) => void;

/** Allocates rows between the GEMMs: gates lie beside what they scale until SwiGLU. */
export const cublasRows = ({ inner, own }: Pick<RowsOf, 'inner' | 'own'>) => ({
  both: own(2 * inner, 'gates and what they scale'),
  between: own(inner, 'inner rows'),
});

export async function cublasProducts(of: ProductsOf): Promise<Products> {
  const { device, hidden, inner, rows, sms, weights, routed, made } = of;
  if (weights.gateUp.dtype !== 'bf16')
    throw new ArgumentError(
      'gemm',
      'cublas',
      `'heddle', because weights are ${isPacked(weights) ? 'MXFP4' : 'e4m3'}`,
    );
  const { activation, gateUpBias, downBias } = kindOf(weights);
  if (gateUpBias || downBias || activation !== 'swiglu')
    throw new ArgumentError('gemm', 'cublas', "'heddle', because experts have biases or a clamped SwiGLU");
  if (!(device instanceof CudaDevice))
    throw new ArgumentError('gemm', 'cublas', `'heddle' on a ${device.description}`);
  const cublas = new Cublas(device, sms);
  of.freed(() => cublas.dispose());
  const { both, between } = cublasRows(of);
  const launch = { grid: (sms ?? device.multiprocessors) * 8, block: threads, rank: 0 };
  const swiglu = await callSite(device, swigluKernel(inner, threads, routed === null ? 'all' : 'plan'), {
    ...launch,
    programmatic: routed !== null,
  });
  if (routed !== null) swiglu.set.total(0, routed.plan.planned.total.data);
  swiglu.set.from(both.data);
  swiglu.set.to(between.data);
  const up = { weights: weights.gateUp.data, to: both.data, inputs: hidden, outputs: 2 * inner };
  const back = { from: between.data, weights: weights.down.data, inputs: inner, outputs: hidden };
  let multiply: Multiply = () => {};
  const sorted = made === null ? null : { rows: made, scales: null };
  const products: Products = {
    instructions: 'cublas',
    rowUnit: 1,
    sorted,
    take(count) {
      if (routed !== null) multiply = byExpert(cublas, routed, count);
      else if (typeof count === 'number') {
        multiply = (all, stream) => cublas.multiply({ ...all, rows: count }, stream);
        swiglu.set.count(0, count);
      }
    },
    widen(from, stream) {
      multiply({ ...up, from: from.data }, stream as CudaStream);
      swiglu.launch(stream);
    },
    narrow(to, stream) {
      multiply({ ...back, to: to.data }, stream as CudaStream);
    },
  };
  // cuBLAS loads a kernel at its first use, and waits for the GPU to do so: within a round that wait would have no end where
  // the GPU waits for a rank of this same thread. A host that brings sizes has waited for the GPU.
  if (routed?.plan.form !== 'contiguous') {
    const [example, stream] = [emptyTensor(device, 'bf16', [rows, hidden]), device.createStream()];
    products.take(routed === null ? rows : undefined);
    multiply({ ...up, from: example.data }, stream);
    multiply({ ...back, to: example.data }, stream);
    await stream.synchronize();
    stream.dispose();
    example.free();
  }
  return products;
}

/** Multiplies the rows of all experts, as the host knows how many there are. */
function byExpert(
  cublas: Cublas,
  { plan, experts }: Routed,
  sizes: Parameters<Products['take']>[0],
): Multiply {
  if (typeof sizes !== 'object') {
    if (plan.form === 'masked')
      return (all, stream) => cublas.strided({ ...all, rows: plan.rows / experts }, experts, stream);
    const mustBe =
      "what plan.sizes(stream) gave, for cuBLAS takes sizes from the host (a plan of form 'masked' needs none)";
    throw new ArgumentError('sizes', sizes, mustBe);
  }
  const { counts, offsets } = sizes;
  if (counts.length !== experts || offsets.length <= experts)
    throw new ArgumentError('sizes', `of ${counts.length} experts`, `those of ${experts}`);
  return ({ from, weights, to, inputs, outputs }, stream) => {
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
