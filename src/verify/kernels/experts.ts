/** The kernels of experts. */
import { ArgumentError } from '../../base/errors.js';
import type { ParamSpecs } from '../../lang/index.js';
import {
  type ExpertsShape,
  exampleExpertsKernel,
  expertsKernels,
  hopperKernels,
  mlpKernels,
  mostLocalExperts,
  swigluKernel,
} from '../../moe/experts/index.js';
import { count } from '../../moe/families/index.js';
import { rowsToFp8Kernel } from '../../moe/index.js';
import { alignments, type ExpertForm, expertForms, expertsOf, type RowDtype } from '../../moe/layer/index.js';
import { aGpu, layerOf, layerParameters, travelling } from './layer.js';
import {
  type CheckedShape,
  entry,
  none,
  number,
  type Parameters,
  type RegisteredKernel,
  word,
  yesNo,
} from './shape.js';

/** DeepSeek-V3's experts, as many as four of its ranks have at 128 tokens each. */
const mlpParameters = {
  hidden: layerParameters.hidden,
  inner: number('elements between the two GEMMs', [64, 2 ** 18], 2048),
  experts: number('experts of the rank', [0, mostLocalExperts], 64),
  topk: layerParameters.topk,
  rows: number('rows that an expert is likely to have', [1, 2 ** 26], 16),
  of: word('whose rows: a plan’s, or all of one expert', ['plan', 'all'], 'plan'),
  format: word('of rows that arrive', ['bf16', 'fp8'], 'bf16'),
} satisfies Parameters;

export const ofExperts: readonly RegisteredKernel[] = [
  entry(
    'example_experts',
    'small experts for demonstrations and checks',
    {
      ...layerParameters,
      threads: { knob: count('threads a block', [32, 1024], none, 32), default: 512 },
      routes: word('a row for each route', yesNo, 'no'),
    },
    (shape) =>
      exampleExpertsKernel({
        slots: (shape.number('ranks') / shape.number('replicas')) * shape.number('tokens'),
        topK: shape.number('topk'),
        hidden: shape.number('hidden'),
        dtype: shape.text('dtype') as RowDtype,
        weights: shape.text('weights') === 'yes',
        routes: shape.text('routes') === 'yes',
        threads: shape.number('threads'),
      }),
  ),
  ofPlan('experts_plan', 'sorts the routes that arrived by expert', 'plan'),
  ofPlan('experts_expand', 'copies rows into the order of experts', 'expand'),
  ofPlan('experts_reduce', 'adds up the experts’ rows of each slot', 'reduce'),
  ofMlp('experts_gate_up', 'rows times gates and what they scale, gathered by the plan; SwiGLU', 'gateUp'),
  ofMlp('experts_down', 'what SwiGLU made, times the second weights of experts', 'down'),
  ...onHopper('bf16'),
  ...onHopper('e4m3'),
  entry(
    'experts_swiglu',
    'SwiGLU as a launch of its own, for cuBLAS',
    { inner: mlpParameters.inner },
    (shape) => swigluKernel(shape.number('inner'), 256, 'plan'),
  ),
  entry('rows_to_fp8', 'rows as e4m3 with scales, for dispatch to carry', {}, () => rowsToFp8Kernel(256)),
];

/** A kernel of rank 0's plan for its experts. */
function ofPlan(
  name: string,
  summary: string,
  which: keyof ReturnType<typeof expertsKernels>,
): RegisteredKernel {
  const parameters = {
    ...travelling,
    form: word('how rows lie', expertForms, 'contiguous'),
    alignment: { knob: count('an expert begins at a multiple of it', [1, 128], none), default: 1 },
    capacity: number('rows of all experts; of each, if masked', [1, 2 ** 31], 2 ** 17),
  } satisfies Parameters;
  return entry<ParamSpecs>(name, summary, parameters, (shape) => {
    const layer = layerOf(shape);
    const alignment = alignments.find((one) => one === shape.number('alignment'));
    if (alignment === undefined)
      throw new ArgumentError(
        '--shape alignment',
        shape.number('alignment'),
        `one of ${alignments.join(', ')}`,
      );
    const of: ExpertsShape = {
      ...{ layer, experts: expertsOf(layer, 0).count, alignment },
      form: shape.text('form') as ExpertForm,
      capacity: shape.number('capacity'),
    };
    return expertsKernels({ shape: of, ...aGpu })[which].kernel;
  });
}

/** A GEMM of an expert. */
function ofMlp(name: string, summary: string, which: 'gateUp' | 'down'): RegisteredKernel {
  return entry<ParamSpecs>(name, summary, mlpParameters, (shape) => {
    const of = shape.text('of') === 'all' ? 'all' : 'plan';
    const experts = of === 'all' ? 1 : shape.number('experts');
    const [hidden, inner] = [shape.number('hidden'), shape.number('inner')];
    const [topK, rows] = [shape.number('topk'), shape.number('rows')];
    const e4m3 = shape.text('format') === 'fp8';
    return mlpKernels({ of, e4m3, experts, hidden, inner, topK, rows, ...aGpu })[which].kernel;
  });
}

/** The same two on Hopper's tensor cores, of rows and weights of this type. */
function onHopper(dtype: 'bf16' | 'e4m3'): RegisteredKernel[] {
  const { format: _, ...parameters } = mlpParameters;
  const build = (shape: CheckedShape) =>
    hopperKernels({
      ...{ dtype, of: shape.text('of') === 'all' ? 'all' : 'plan' },
      ...{ experts: shape.text('of') === 'all' ? 1 : shape.number('experts'), topK: shape.number('topk') },
      ...{ hidden: shape.number('hidden'), inner: shape.number('inner'), rows: shape.number('rows') },
      ...{ kind: aGpu.kind, multiprocessors: aGpu.multiprocessors },
    });
  // Kernels for experts with so few tiles that several blocks share one.
  const sharing = { ...parameters, experts: { ...parameters.experts, default: 1 } };
  const addsParts = (which: 'gateUp' | 'down') => (shape: CheckedShape) => {
    const { parts } = build(shape);
    const shared = parts[which];
    if (shared !== null) return shared.add;
    throw new ArgumentError(
      '--shape experts',
      shape.number('experts'),
      'fewer, or rows fewer: here there is a tile for every block',
    );
  };
  return [
    entry<ParamSpecs>(
      `experts_gate_up_${dtype}`,
      `the same on Hopper's tensor cores, of ${dtype}: rows times gates and what they scale; SwiGLU`,
      parameters,
      (shape) => build(shape).gateUp,
    ),
    entry<ParamSpecs>(
      `experts_down_${dtype}`,
      `the same on Hopper's tensor cores, of ${dtype}: what SwiGLU made, times the second weights`,
      parameters,
      (shape) => build(shape).down,
    ),
    entry<ParamSpecs>(
      `experts_gate_up_parts_${dtype}`,
      'adds up what blocks leave that share tiles of the first; SwiGLU',
      sharing,
      addsParts('gateUp'),
    ),
    entry<ParamSpecs>(
      `experts_down_parts_${dtype}`,
      'adds up what blocks leave that share tiles of the second',
      sharing,
      addsParts('down'),
    ),
  ];
}
