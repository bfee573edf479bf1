/** The two GEMMs of an MLP, loaded. */
import { type CallSite, callSite, type Device } from '../../gpu/index.js';
import { type MlpShape, mlpKernels } from './kernels/gemm/kernels.js';

type Kernels = ReturnType<typeof mlpKernels>;
export type MlpSites = { readonly [K in keyof Kernels]: CallSite<Kernels[K]['kernel']['params']> };

/** `sms`: the most multiprocessors that a launch takes; null for all. */
export async function mlpSites(
  device: Device,
  shape: Omit<MlpShape, 'kind' | 'multiprocessors'>,
  sms: number | null = null,
): Promise<MlpSites> {
  const { kind, multiprocessors } = device;
  const kernels = mlpKernels({ ...shape, kind, multiprocessors });
  // One that takes all rows may lie before the receive of a split phase, which begins early, and then finds only what came
  // before a launch that is not programmatic.
  const programmatic = shape.of === 'plan';
  const load = ({ kernel, blocks, resident, threads }: Kernels['down']) => {
    const grid = sms === null ? blocks : Math.min(blocks, sms * resident);
    return callSite(device, kernel, { grid, block: threads, programmatic, rank: 0 });
  };
  const [gateUp, down] = await Promise.all([load(kernels.gateUp), load(kernels.down)]);
  return { gateUp, down };
}
