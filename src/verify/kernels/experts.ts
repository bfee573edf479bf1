/** The kernels of experts. */
import { ArgumentError } from '../../base/errors.js';
import {
  exampleExpertsKernel,
  expertsKernels,
  hopperKernels,
  mlpKernels,
  mlpUnit,
  mostLocalExperts,
  rowsToFp8Kernel,
  swigluKernel,
} from '../../moe/experts/index.js';
import { count } from '../../moe/families/index.js';
import { scaleBlock } from '../../moe/formats/index.js';
import { mxfp4ToBf16Kernel } from '../../moe/index.js';
import { activations, alignments, expertForms, expertsOf } from '../../moe/layer/index.js';
import { aGpu, layerOf, layerParameters, travelling } from './layer.js';
import {
  entry,
  none,
  number,
  oneOf,
  type Parameters,
  type RegisteredKernel,
  type ShapeOf,
  yesNo,
} from './shape.js';

/** DeepSeek-V3's experts, as many as four of its ranks have at 128 tokens each. Lengths are multiples of what a tile takes. */
const multiplying = {
  hidden: number('elements of a row', [mlpUnit, 2 ** 18], 7168, mlpUnit),
  inner: number('elements between the two GEMMs', [mlpUnit, 2 ** 18], 2048, mlpUnit),
  experts: number('experts of the rank', [1, mostLocalExperts], 64),
  topk: layerParameters.topk,
  rows: number('rows that an expert is likely to have', [1, 2 ** 26], 16),
  of: oneOf('whose rows: a plan’s, or all of one expert', ['plan', 'all'], 'plan'),
  activation: oneOf('of gates and what they scale', activations, 'swiglu'),
  biases: oneOf('sums have biases', yesNo, 'no'),
} satisfies Parameters;
const mlpParameters = {
  ...multiplying,
  format: oneOf('of rows that arrive', ['bf16', 'fp8'], 'bf16'),
} satisfies Parameters;

export const ofExperts: readonly RegisteredKernel[] = [
  entry(
    'example_experts',
    'small experts for demonstrations and checks',
    {
      ...layerParameters,
      threads: { knob: count('threads a block', [32, 1024], none, 32), default: 512 },
      planned: oneOf('a row for each route, where a plan put it', yesNo, 'no'),
    },
    ({ ranks, replicas, tokens, topk: topK, hidden, dtype, weights, planned, threads }) =>
      exampleExpertsKernel({
        ...{ slots: (ranks / replicas) * tokens, topK, hidden, dtype, threads },
        ...{ weights: weights === 'yes', planned: planned === 'yes' },
      }),
  ),
  ofPlan('experts_plan', 'sorts the routes that arrived by expert', 'plan'),
  ofPlan('experts_expand', 'copies rows into the order of experts', 'expand'),
  ofPlan('experts_reduce', 'adds up the experts’ rows of each slot', 'reduce'),
  ofMlp('experts_gate_up', 'rows times gates and what they scale, gathered by the plan; SwiGLU', 'gateUp'),
  ofMlp('experts_down', 'what SwiGLU made, times the second weights of experts', 'down'),
  ofMlp('experts_gate_up_mxfp4', 'the first of weights of MXFP4', 'gateUp', true),
  ofMlp('experts_down_mxfp4', 'the second of weights of MXFP4', 'down', true),
  ...onHopper('bf16'),
  ...onHopper('e4m3'),
  ...(['gate_up', 'down'] as const).map((which) =>
    entry(
      `experts_${which}_mxfp4_bf16`,
      "the same on Hopper's tensor cores, of weights of MXFP4",
      multiplying,
      (shape) =>
        hopperKernels({ ...multiplied(shape), dtype: 'bf16', packed: true, ...aGpu })[
          which === 'down' ? 'down' : 'gateUp'
        ],
    ),
  ),
  entry(
    'experts_swiglu',
    'SwiGLU as a launch of its own, for cuBLAS',
    { inner: multiplying.inner },
    ({ inner }) => swigluKernel(inner, 256, 'plan'),
  ),
  entry('rows_to_fp8', 'rows of bf16 as e4m3 with scales, for an expert that takes all', {}, () =>
    rowsToFp8Kernel(256),
  ),
  entry('mxfp4_to_bf16', 'weights of MXFP4 as bf16, gates before what they scale', {}, () =>
    mxfp4ToBf16Kernel(256),
  ),
];

/** A kernel of rank 0's plan for its experts. */
function ofPlan(
  name: string,
  summary: string,
  which: keyof ReturnType<typeof expertsKernels>,
): RegisteredKernel {
  const parameters = {
    ...travelling,
    form: oneOf('how rows lie', expertForms, 'contiguous'),
    alignment: { knob: count('an expert begins at a multiple of it', [1, 128], none), default: 1 },
    capacity: number('rows of all experts; of each, if masked', [1, 2 ** 31], 2 ** 17),
  } satisfies Parameters;
  return entry(name, summary, parameters, (shape) => {
    const { form, capacity } = shape;
    const layer = layerOf(shape);
    const alignment = alignments.find((one) => one === shape.alignment);
    if (alignment === undefined)
      throw new ArgumentError('--shape alignment', shape.alignment, `one of ${alignments.join(', ')}`);
    const experts = expertsOf(layer, 0).count;
    return expertsKernels({ shape: { layer, experts, alignment, form, capacity }, ...aGpu })[which].kernel;
  });
}

function ofMlp(name: string, summary: string, which: 'gateUp' | 'down', packed = false): RegisteredKernel {
  return entry(name, summary, mlpParameters, ({ format, ...shape }) => {
    if (format === 'fp8') requireBlocks(shape);
    const dtype = format === 'fp8' ? 'e4m3' : 'bf16';
    return mlpKernels({ ...multiplied(shape), dtype, packed, ...aGpu })[which].kernel;
  });
}

/** e4m3 have a scale for so many. */
function requireBlocks({ hidden, inner }: ShapeOf<typeof multiplying>): void {
  for (const [name, length] of Object.entries({ hidden, inner }))
    if (length % scaleBlock !== 0)
      throw new ArgumentError(
        `--shape ${name}`,
        length,
        `a multiple of ${scaleBlock}, so many e4m3 have a scale`,
      );
}

function multiplied({ topk: topK, biases, ...shape }: ShapeOf<typeof multiplying>) {
  const biased = biases === 'yes';
  const experts = shape.of === 'all' ? 1 : shape.experts;
  return { ...shape, experts, topK, gateUpBias: biased, downBias: biased };
}

/** Gate-up and down on Hopper's tensor cores, of rows and weights of this type. */
function onHopper(dtype: 'bf16' | 'e4m3'): RegisteredKernel[] {
  const build = (shape: ShapeOf<typeof multiplying>) => {
    if (dtype === 'e4m3') requireBlocks(shape);
    return hopperKernels({ ...multiplied(shape), dtype, ...aGpu });
  };
  // Kernels for experts with so few tiles that several blocks share one.
  const sharing = { ...multiplying, experts: { ...multiplying.experts, default: 1 } };
  const addsParts = (which: 'gateUp' | 'down') => (shape: ShapeOf<typeof multiplying>) => {
    const { parts } = build(shape);
    const shared = parts[which];
    if (shared !== null) return shared.add;
    throw new ArgumentError(
      '--shape experts',
      shape.experts,
      'fewer, or rows fewer: here there is a tile for every block',
    );
  };
  const here = `the same on Hopper's tensor cores, of ${dtype}`;
  const rest = 'adds up what blocks leave that share tiles of the';
  const [gateUp, down] = [
    `${here}: rows times gates and what they scale; SwiGLU`,
    `${here}: what SwiGLU made, times the second weights`,
  ];
  return [
    entry(`experts_gate_up_${dtype}`, gateUp, multiplying, (shape) => build(shape).gateUp),
    entry(`experts_down_${dtype}`, down, multiplying, (shape) => build(shape).down),
    entry(`experts_gate_up_parts_${dtype}`, `${rest} first; SwiGLU`, sharing, addsParts('gateUp')),
    entry(`experts_down_parts_${dtype}`, `${rest} second`, sharing, addsParts('down')),
  ];
}
