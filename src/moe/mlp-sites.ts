/** The two GEMMs of an MLP, loaded. */
import { type CallSite, callSite, type Device } from '../device/index.js';
import { type MlpShape, mlpKernels } from '../kernels/index.js';

type Kernels = ReturnType<typeof mlpKernels>;
export type MlpSites = { readonly [K in keyof Kernels]: CallSite<Kernels[K]['kernel']['params']> };

export async function mlpSites(device: Device, shape: Omit<MlpShape, 'kind'>): Promise<MlpSites> {
  const kernels = mlpKernels({ ...shape, kind: device.kind });
  // One that takes all rows may lie before the receive of a split phase, which begins early, and then finds only what came
  // before a launch that is not programmatic.
  const programmatic = shape.of === 'plan';
  const load = ({ kernel, blocks, threads }: Kernels['down']) =>
    callSite(device, kernel, { grid: blocks, block: threads, programmatic, rank: 0 });
  const [gateUp, down] = await Promise.all([load(kernels.gateUp), load(kernels.down)]);
  return { gateUp, down };
}
