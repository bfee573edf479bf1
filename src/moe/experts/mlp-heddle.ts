/** Experts by Heddle's kernels: two launches, rows gathered from where dispatch left them. */
import type { Device } from '../../gpu/index.js';
import { emptyTensor, type Tensor } from '../rounds/tensor.js';
import type { ExpertsPlan } from './experts-plan.js';
import type { MlpShape } from './kernels/gemm/kernels.js';
import type { MlpRun } from './mlp-run.js';
import { mlpSites } from './mlp-sites.js';
import type { MlpWeights } from './mlp-weights.js';

/** What experts take: bf16, or e4m3 with scales. */
export interface Rows {
  readonly x: Tensor;
  readonly scales: Tensor | null;
}

export async function heddleRun(
  device: Device,
  plan: ExpertsPlan,
  from: Rows,
  shape: Pick<MlpShape, 'experts' | 'hidden' | 'inner' | 'topK' | 'rows'>,
  weights: MlpWeights,
): Promise<MlpRun> {
  const { gateUp, down } = await mlpSites(device, { of: 'plan', e4m3: from.scales !== null, ...shape });
  const inner = emptyTensor(device, 'bf16', [plan.rows, shape.inner], 'inner rows of experts');
  const made = emptyTensor(device, 'bf16', [plan.rows, shape.hidden], 'rows that experts made');
  const { counts, offsets, routes } = plan.planned;
  for (const { set } of [gateUp, down]) {
    set.counts(counts.data);
    set.offsets(offsets.data);
    set.routes(routes.data);
    set.count(0);
    // Where there are none nobody looks.
    set.scales((from.scales ?? from.x).data);
  }
  gateUp.set.from(from.x.data);
  gateUp.set.weights(weights.gateUp.data);
  gateUp.set.to(inner.data);
  down.set.from(inner.data);
  down.set.weights(weights.down.data);
  down.set.to(made.data);
  return {
    owned: [
      { tensor: inner, purpose: 'inner rows of experts' },
      { tensor: made, purpose: 'rows that experts made' },
    ],
    run(_, stream) {
      gateUp.launch(stream);
      down.launch(stream);
      return made;
    },
    dispose: () => {},
  };
}
