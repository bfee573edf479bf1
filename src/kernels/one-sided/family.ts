/** The one-sided family: ranks that share NVLink write straight into each other's windows. */
import { ArgumentError, type HeddleError, UnavailableError } from '../../errors/index.js';
import { type Field, section } from '../../lang/index.js';
import { type Dtype, expertsOf, type Layer, outputRowBytes } from '../../layer/index.js';
import type { Topology } from '../../world/index.js';
import { failureWords } from '../common/failure.js';
import { remembered } from '../common/remembered.js';
import { unitBytes, widestUnit } from '../common/units.js';
import type { BufferPlan, Family, Place, Plan, Step, View, WindowPlan } from '../family.js';
import { step } from '../family.js';
import { combineKernel } from './combine.js';
import { combineE4m3Kernel } from './combine-e4m3.js';
import { defaultTuning, weighSpread } from './defaults.js';
import { dispatchKernel } from './dispatch.js';
import { type OneSidedTuning, oneSidedKnobs } from './knobs.js';
import { weighKernel } from './weigh.js';
import { combineGrid, type OneSidedShape, oneSidedWindow, returnedRowBytes } from './window.js';

export const oneSided: Family<OneSidedTuning> = {
  name: 'one-sided',
  summary: 'ranks that share NVLink store into each other’s windows',
  knobs: oneSidedKnobs,
  refuses,
  defaults: (layer, { kind }) => adapted(defaultTuning(layer, kind), layer),
  adapt: adapted,
  plan,
};

function refuses(layer: Layer, { topology }: Place, tuning?: OneSidedTuning): HeddleError | null {
  if (topology.nodes > 1) return severalNodes(topology);
  const { ranks, maxTokens, output } = layer;
  if (output.wire === 'e4m3' && output.hidden % 16 !== 0) {
    const possible = "a multiple of 16 for wire 'e4m3'; wire 'rows' takes any length";
    return new ArgumentError('output.length', output.hidden, possible);
  }
  const reached = Math.floor(2 ** 32 / mostUnits(layer) / ranks);
  if (maxTokens > reached)
    return new ArgumentError('maxTokens', maxTokens, `at most ${reached} with such rows on ${ranks} ranks`);
  return tuning === undefined ? null : refusesTuning(layer, tuning);
}

function severalNodes({ nodes, members, node, apart }: Topology): HeddleError {
  return new UnavailableError(
    `dispatch and combine need all ranks in one node, but this world has ${nodes}; this rank's is ranks ` +
      `${members[node]!.join(', ')}${apart === null ? '' : ` (${apart})`}`,
    'Start ranks on GPUs that share NVLink: `heddle doctor` prints which do',
  );
}

function refusesTuning(layer: Layer, { dispatch, combine }: OneSidedTuning): HeddleError | null {
  for (const [phase, { threads }] of Object.entries({ dispatch, combine })) {
    if (threads >= layer.ranks) continue;
    return new ArgumentError(`tuning.${phase}.threads`, threads, `at least ranks, ${layer.ranks}`);
  }
  if (layer.output.wire === 'e4m3') {
    if (combine.way === 'pull')
      return new ArgumentError('tuning.combine.way', 'pull', "'push' for wire 'e4m3'");
    if (combine.threads > mostE4m3Threads) {
      const possible = `at most ${mostE4m3Threads} for wire 'e4m3'`;
      return new ArgumentError('tuning.combine.threads', combine.threads, possible);
    }
  }
  if (combine.way === 'push' && !pushable(layer))
    return new ArgumentError(
      'tuning.combine.way',
      'push',
      "'pull' for rows that are not a multiple of 16 bytes",
    );
  return null;
}

/** With more threads the sums would not fit in registers. */
const mostE4m3Threads = 512;

/** Only whole vectors can be pushed. */
const pushable = (layer: Layer): boolean => layer.output.wire === 'e4m3' || outputRowBytes(layer) % 16 === 0;

function adapted({ dispatch, combine }: OneSidedTuning, layer: Layer): OneSidedTuning {
  const e4m3 = layer.output.wire === 'e4m3';
  return {
    dispatch: { ...dispatch, blocks: blocksOf(dispatch, layer) },
    combine: {
      ...combine,
      blocks: blocksOf(combine, layer),
      threads: e4m3 ? Math.min(combine.threads, mostE4m3Threads) : combine.threads,
      way: e4m3 ? 'push' : pushable(layer) ? combine.way : 'pull',
    },
  };
}

/** A block without a piece of work would only wait. */
const blocksOf = ({ blocks, parts }: OneSidedTuning['dispatch' | 'combine'], { maxTokens }: Layer): number =>
  Math.min(blocks, maxTokens * parts);

/** The most elements a token has in any section: the kernels count a section's elements in 32 bits. */
function mostUnits(layer: Layer): number {
  const { payloads, output, topK } = layer;
  const row = outputRowBytes(layer);
  const outputUnits = row % 16 === 0 ? row / 16 : output.hidden;
  const units = payloads.map(({ rowBytes }) => rowBytes / unitBytes[widestUnit(rowBytes)]);
  const scales = output.wire === 'e4m3' ? returnedRowBytes(layer) / 4 : 0;
  return Math.max(...units, outputUnits * (output.weighting === 'combine' ? topK : 1), scales, topK);
}

function plan(layer: Layer, { kind, rank }: Place, tuning: OneSidedTuning): Plan {
  const weighs = layer.output.weighting === 'combine';
  const shape: OneSidedShape = {
    ...layer,
    dispatch: { ...tuning.dispatch, blocks: blocksOf(tuning.dispatch, layer) },
    combine: { ...tuning.combine, blocks: blocksOf(tuning.combine, layer) },
    weigh: weighs ? weighSpread(layer, tuning.combine, kind) : null,
  };
  const { window: layout, dispatch, weigh, combine } = kernelsOf(shape);

  const window: WindowPlan = {
    kind: 'window',
    purpose: 'receive window',
    layout,
    // `returned` is EMPTY until rows come. Where a rank is lost before its first dispatch, experts that run all the
    // same find -1 everywhere, not routes to expert 0.
    ones: [section(layout, 'returned'), section(layout, 'experts')],
    unwritten: [
      section(layout, 'experts'),
      section(layout, 'weights'),
      section(layout, 'output'),
      ...layer.payloads.map((_, i) => section(layout, 'payloads', i)),
    ],
  };
  const view = (of: Field, dtype: Dtype, shape: readonly number[]): View => ({
    in: window,
    offset: of.offset,
    dtype,
    shape,
  });
  const slots = [layer.ranks, layer.maxTokens];
  const { dtype, hidden } = layer.output;
  // Where combine weighs, the experts leave a row a route in memory that is nobody else's.
  const routes: BufferPlan | null = weighs
    ? {
        kind: 'buffer',
        purpose: 'rows of the experts',
        bytes: layer.ranks * layer.maxTokens * layer.topK * outputRowBytes(layer),
      }
    : null;

  return {
    windows: [window],
    buffers: routes === null ? [] : [routes],
    phases: {
      dispatchSend: [dispatchStep(dispatch, shape, window)],
      dispatchRecv: [],
      combineSend: routes === null ? [] : [weighStep(weigh!, shape, window, routes)],
      combineRecv: [combineStep(combine, shape, window)],
    },
    received: {
      experts: view(section(layout, 'experts'), 'i32', [...slots, layer.topK]),
      weights: layer.weights ? view(section(layout, 'weights'), 'f32', [...slots, layer.topK]) : null,
      counts: layer.counts ? view(section(layout, 'counts'), 'u32', [expertsOf(layer, rank).count]) : null,
      payloads: Object.fromEntries(
        layer.payloads.map(({ name, rowBytes }, i) => [
          name,
          view(section(layout, 'payloads', i), 'u8', [...slots, rowBytes]),
        ]),
      ),
      output:
        routes === null
          ? view(section(layout, 'output'), dtype, [...slots, hidden])
          : { in: routes, offset: 0, dtype, shape: [...slots, layer.topK, hidden] },
    },
    failure: view(section(layout, 'failure'), 'u32', [failureWords]),
  };
}

function dispatchStep(
  kernel: DispatchKernel,
  { dispatch, weights }: OneSidedShape,
  window: WindowPlan,
): Step {
  return step({
    kernel,
    blocks: dispatch.blocks,
    threads: dispatch.threads,
    once(set, placed) {
      set.win(placed.window(window));
      set.limit(placed.limit);
    },
    each(set, { tokens, topkIds, topkWeights, rows }) {
      set.tokens(tokens);
      set.topkIds(topkIds);
      set.topkWeights(weights ? topkWeights : topkIds); // which nobody reads then
      for (let i = 0; i < rows.length; i++) set.rows(i, rows[i]!);
    },
  });
}

function weighStep(
  kernel: WeighKernel,
  { weigh }: OneSidedShape,
  window: WindowPlan,
  rows: BufferPlan,
): Step {
  return step({
    kernel,
    blocks: weigh!.blocks,
    threads: weigh!.threads,
    once(set, placed) {
      set.win(placed.window(window));
      set.rows(placed.address(rows));
    },
  });
}

function combineStep(kernel: CombineKernel, shape: OneSidedShape, window: WindowPlan): Step {
  return step({
    kernel,
    blocks: combineGrid(shape),
    threads: shape.combine.threads,
    once(set, placed) {
      set.win(placed.window(window));
      set.limit(placed.limit);
    },
    each(set, { topkIds, out, tokens }) {
      set.topkIds(topkIds);
      set.out(out);
      set.tokens(tokens);
    },
  });
}

type DispatchKernel = ReturnType<typeof dispatchKernel>;
type WeighKernel = ReturnType<typeof weighKernel>;
type CombineKernel = ReturnType<typeof combineKernel>;

/** The kernels of a shape, made once: ranks of one process and runs of one check share them, compiled code included. */
const kernelsOf = remembered((shape: OneSidedShape) => {
  const window = oneSidedWindow(shape);
  return {
    window,
    dispatch: dispatchKernel(shape, window),
    weigh: shape.weigh === null ? null : weighKernel(shape, window, shape.weigh),
    combine: shape.output.wire === 'e4m3' ? combineE4m3Kernel(shape, window) : combineKernel(shape, window),
  };
});
