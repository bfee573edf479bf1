/** A family in a folder of its own: as little as one needs that Heddle does not have. One block a launch, and no tricks. */
import { ArgumentError, type HeddleError } from '../../../../src/base/errors.js';
import { planOf, receiveWindow } from '../../../../src/moe/families/common/plan.js';
import { refusesOnNode, refusesTransport } from '../../../../src/moe/families/common/refusals.js';
import type { Family, Plan, PlanTarget } from '../../../../src/moe/families/family.js';
import { count, type KnobValues } from '../../../../src/moe/families/knobs.js';
import { formatOf, type Layer, sharing } from '../../../../src/moe/layer/index.js';
import { combineKernel } from './combine.js';
import { dispatchKernel } from './dispatch.js';
import { naiveWindow } from './window.js';

const spread = { threads: count('threads of the block', [32, 1024], () => [128, 512], 32) };
const knobs = { dispatch: spread, combine: spread };
type NaiveTuning = KnobValues<typeof knobs>;

export const naive: Family<NaiveTuning> = {
  name: 'naive',
  summary: 'one block stores, all ranks meet, one block loads',
  reach: 'node',
  travel: { rows: 'rank', message: 'row', metadata: 'every rank' },
  knobs,
  refuses,
  defaults: () => ({ dispatch: { threads: 128 }, combine: { threads: 128 } }),
  adapt: (tuning) => tuning,
  plan,
};

function refuses(layer: Layer, target: PlanTarget, tuning?: NaiveTuning): HeddleError | null {
  const refusal = refusesOnNode(layer, target.topology) ?? refusesTransport(target);
  if (refusal !== null) return refusal;
  const { ranks, counts, output } = layer;
  if (target.split) return new ArgumentError('split', true, 'false: this family has whole phases');
  if (layer.placed !== undefined) return new ArgumentError('placement', 'given', 'left out');
  if (counts) return new ArgumentError('counts', true, 'false: this family counts nothing');
  const { replicas } = sharing(layer);
  if (replicas > 1) return new ArgumentError('replicas', replicas, '1');
  if (formatOf(output).rounding !== null)
    return new ArgumentError('combineFormat', output.combineFormat, "'rows'");
  for (const [phase, { threads }] of Object.entries(tuning ?? {}))
    if (threads < ranks)
      return new ArgumentError(`tuning.${phase}.threads`, threads, `at least ranks, ${ranks}`);
  return null;
}

function plan(layer: Layer, { rank }: PlanTarget, tuning: NaiveTuning): Plan {
  const layout = naiveWindow(layer);
  // Rounds begin where all words that count them wrap, as in every family (common/waits.ts).
  const memory = receiveWindow(layer, layout, ['rounds', 'dispatched', 'combined']);
  return planOf({
    ...{ layer, rank, memory, layout },
    phases: {
      dispatchSend: [
        {
          ...{ kernel: dispatchKernel(layer, layout), blocks: 1, threads: tuning.dispatch.threads },
          summary: 'stores rows to the ranks that own their experts, and meets all',
        },
      ],
      dispatchRecv: [],
      combineSend: [
        {
          ...{ kernel: combineKernel(layer, layout), blocks: 1, threads: tuning.combine.threads },
          summary: 'meets all, then loads the experts’ rows and adds them up',
        },
      ],
      combineRecv: [],
    },
  });
}
