/** Every kernel that Heddle has, as nvcc sees it: no warning, no spilled register, no stack. */
import { describe, expect, test } from 'vitest';
import { entryName, hardwareOf, type IrModule, printCuda } from '../../../src/lang/index.js';
import { registry, type ShapeText } from '../../../src/verify/kernels/index.js';
import { architectures, type CompiledCuda, compileCuda } from '../../lang/cuda/nvcc.js';
import { needing } from '../../needs.js';

/** gpt-oss's experts, whose sizes only 64 divides. */
const gptOss = {
  ...{ hidden: 2880, inner: 2880, topk: 4, experts: 16 },
  ...{ activation: 'clamped-swiglu', biases: 'yes' },
};
const biased = { activation: 'clamped-swiglu', biases: 'yes' };

/** Besides its default: the other ways of dispatch and combine, many vectors in flight, rows that no vector divides, other types, one token, many ranks. */
const variants: Readonly<Record<string, readonly ShapeText[]>> = {
  one_sided_dispatch: [
    { ranks: 4, hidden: 77, counts: 'yes' },
    { replicas: 2, counts: 'yes' },
    { format: 'fp8', rounded: 'yes' },
    { format: 'fp8', rounded: 'yes', hidden: 640, 'dispatch.parts': 3, 'dispatch.threads': 1024 },
    { format: 'mxfp8', rounded: 'yes' },
    { tokens: 1, scales: 224, 'dispatch.parts': 4, 'dispatch.threads': 256 },
    { ranks: 72, experts: 288, topk: 32, 'combine.way': 'pull' },
    { hidden: 2 ** 17, 'dispatch.threads': 512, 'dispatch.inFlight': 8 },
    { hidden: 2 ** 17, 'dispatch.threads': 896, 'dispatch.inFlight': 8 },
    { scales: 36, counts: 'yes', 'combine.way': 'pull', 'dispatch.threads': 1024, 'dispatch.blocks': 16 },
    { ranks: 72, experts: 288, topk: 32, 'dispatch.threads': 128, 'dispatch.parts': 3 },
  ],
  one_sided_combine: [
    { 'combine.way': 'pull' },
    { 'combine.way': 'pull', hidden: 77, dtype: 'f16' },
    { ranks: 4, tokens: 1, 'combine.parts': 7, 'combine.threads': 128 },
    { ranks: 4, 'combine.way': 'pull', 'combine.threads': 1024, 'combine.teams': 8 },
    { dtype: 'f32', counts: 'yes', 'combine.ahead': 4 },
    { ranks: 72, experts: 288, topk: 32 },
    { hidden: 2 ** 17, 'combine.threads': 512, 'combine.inFlight': 8 },
    { hidden: 2 ** 17, 'combine.threads': 896, 'combine.inFlight': 8 },
    { weighting: 'plan' },
    { weighting: 'plan', ranks: 2, tokens: 2048 },
    { weighting: 'plan', ranks: 72, experts: 288, topk: 32 },
    { weighting: 'source', ranks: 4, tokens: 512, dtype: 'f32' },
    { weighting: 'source', ranks: 72, experts: 288, topk: 32 },
    { combineFormat: 'e4m3' },
    { combineFormat: 'mxfp8' },
    { replicas: 2 },
    { replicas: 4, combineFormat: 'e4m3', counts: 'yes' },
    { combineFormat: 'e4m3', weighting: 'plan', hidden: 144 },
    { combineFormat: 'e4m3', ranks: 4, tokens: 1, dtype: 'f32', 'combine.parts': 7, 'combine.threads': 128 },
    { combineFormat: 'e4m3', ranks: 72, experts: 288, topk: 32, dtype: 'f16', counts: 'yes' },
  ],
  one_sided_dispatch_send: [{ scales: 224 }],
  one_sided_dispatch_recv: [{ counts: 'yes' }],
  one_sided_combine_recv: [
    { combineFormat: 'e4m3' },
    { weighting: 'source', tokens: 8 },
    { ranks: 72, experts: 288, topk: 32 },
  ],
  portable_dispatch_send: [
    { ranks: 4, hidden: 77, weights: 'no' },
    { replicas: 2 },
    { tokens: 1, scales: 224, 'dispatch.parts': 7 },
    { ranks: 72, experts: 288, topk: 32, tokens: 5 },
    { format: 'fp8', rounded: 'yes' },
    { format: 'mxfp8', rounded: 'yes', ranks: 72, experts: 288, topk: 32, 'dispatch.parts': 3 },
  ],
  portable_dispatch_recv: [{ counts: 'yes' }, { ranks: 72, experts: 288, topk: 32 }],
  portable_combine_send: [
    { combineFormat: 'e4m3', 'combine.parts': 3 },
    { combineFormat: 'mxfp8', weighting: 'plan', hidden: 144 },
    { combineFormat: 'e4m3', weighting: 'plan', hidden: 144 },
    { hidden: 77, dtype: 'f16' },
  ],
  portable_combine_recv: [
    { replicas: 2 },
    { replicas: 4, combineFormat: 'e4m3', 'combine.parts': 3 },
    { ranks: 72, experts: 288, topk: 32 },
    { hidden: 77, dtype: 'f16', counts: 'yes' },
    { combineFormat: 'e4m3' },
    { combineFormat: 'e4m3', ranks: 72, experts: 288, topk: 32, dtype: 'f16' },
    { combineFormat: 'mxfp8', ranks: 72, experts: 288, topk: 32, dtype: 'f16' },
  ],
  portable_weigh: [
    { combineFormat: 'e4m3', topk: 32 },
    { hidden: 77, dtype: 'f16' },
  ],
  hybrid_dispatch_send: [
    { hidden: 77, weights: 'no' },
    { ranks: 64, nodes: 8, topk: 32, tokens: 5, scales: 224 },
    { replicas: 2 },
    { format: 'fp8', rounded: 'yes' },
    { format: 'mxfp8', rounded: 'yes', hidden: 640, ranks: 64, nodes: 8, topk: 32 },
  ],
  hybrid_dispatch_recv: [
    { counts: 'yes', scales: 224 },
    { ranks: 64, nodes: 2, topk: 32 },
    { format: 'fp8', rounded: 'yes' },
  ],
  hybrid_combine_send: [
    { combineFormat: 'e4m3', 'combine.parts': 3 },
    { combineFormat: 'e4m3', weighting: 'plan', hidden: 144 },
    { ranks: 64, nodes: 2, topk: 32 },
    { hidden: 77, dtype: 'f16' },
  ],
  hybrid_combine_recv: [
    { ranks: 64, nodes: 8, topk: 32, counts: 'yes' },
    { ranks: 64, nodes: 2, topk: 32 },
    { hidden: 77, dtype: 'f16' },
    { combineFormat: 'e4m3', ranks: 72, nodes: 9 },
    { combineFormat: 'mxfp8', ranks: 72, nodes: 9 },
    { combineFormat: 'e4m3', replicas: 4, 'combine.parts': 3 },
    { combineFormat: 'e4m3', ranks: 32, nodes: 2, topk: 32, dtype: 'f16' },
  ],
  hybrid_weigh: [{ combineFormat: 'e4m3', topk: 32 }],
  experts_plan: [
    { ranks: 4, tokens: 4096, alignment: 128 },
    { ranks: 1, experts: 512, tokens: 4096 },
    { ranks: 1, experts: 1024, form: 'masked', capacity: 128 },
    { ranks: 3, tokens: 1, topk: 1, experts: 3 },
  ],
  experts_expand: [{ scales: 224 }, { hidden: 77, topk: 32 }],
  experts_reduce: [{ hidden: 77, dtype: 'f16' }, { topk: 32 }, { topk: 32, dtype: 'f32', weights: 'no' }],
  // Of few tokens and of many.
  router_logits: [
    { weights: 'f32' },
    { hidden: 8, experts: 3, groups: 1, top: 1, topk: 1 },
    { tokens: 8192 },
    { tokens: 8192, weights: 'f32' },
    { tokens: 8192, hidden: 4096, experts: 64, groups: 1, top: 1 },
  ],
  router_choose: [
    { experts: 1024, topk: 32, groups: 1, top: 1 },
    { scores: 'softmax', experts: 8, topk: 2, groups: 1, top: 1, bias: 'yes', correction: 'no' },
  ],
  experts_gate_up: [
    { rows: 512 },
    { rows: 64, experts: 1024 },
    { of: 'all', rows: 128 },
    { hidden: 2880, inner: 2880, rows: 512 },
    gptOss,
    { ...gptOss, rows: 48 },
    { ...gptOss, rows: 512 },
    { ...biased, format: 'fp8', rows: 512 },
    { format: 'fp8' },
    { format: 'fp8', rows: 64 },
    { format: 'fp8', rows: 512 },
    { hidden: 64, inner: 64, rows: 1 },
  ],
  experts_gate_up_bf16: [
    { rows: 512 },
    { of: 'all', rows: 128 },
    gptOss,
    { ...gptOss, rows: 512 },
    { ...biased, rows: 512 },
  ],
  experts_down_bf16: [{ rows: 512 }, gptOss, { ...gptOss, rows: 512 }, { ...biased, rows: 512 }],
  experts_gate_up_parts_bf16: [biased],
  experts_down_parts_bf16: [biased],
  experts_gate_up_e4m3: [{ rows: 512 }, biased, { ...biased, rows: 512 }],
  experts_down_e4m3: [{ rows: 512 }, { ...biased, rows: 512 }],
  experts_down: [
    { rows: 512 },
    { rows: 64 },
    { of: 'all', rows: 128 },
    { hidden: 2880, inner: 2880 },
    gptOss,
    { ...gptOss, rows: 48 },
    { ...gptOss, rows: 512 },
  ],
  example_experts: [{ dtype: 'f32', weights: 'no' }, { hidden: 77 }, { planned: 'yes' }],
};

const shapes = registry().flatMap(({ name, build }) =>
  [{}, ...(variants[name] ?? [])].map((shape) => ({
    name: [name, ...Object.entries(shape).map(([key, value]) => `${key}=${value}`)].join(' '),
    build: () => build(shape),
  })),
);

/** Most of what a run of nvcc takes is its start: so many kernels share one. */
const inOneRun = 20;

const built = new Map<number, IrModule>();
/** Kernel i of `shapes`, under a name of its own. */
function kernelOf(i: number): IrModule {
  let module = built.get(i);
  if (module === undefined) {
    const ir = shapes[i]!.build().ir();
    module = { ...ir, name: `${ir.name}_${i}` };
    built.set(i, module);
  }
  return module;
}

test('every variant is one of a kernel that is there', () => {
  const known = registry().map(({ name }) => name);
  expect(Object.keys(variants).filter((name) => !known.includes(name))).toEqual([]);
});

/** Those of some chips alone, which Heddle compiles for what it finds; and of chips from Ampere and from Hopper on. */
describe.each([...architectures, 'sm_90', 'sm_80'])(
  'nvcc compiles for %s',
  needing('nvcc'),
  (architecture) => {
    const isThere = (i: number): boolean => {
      const only = hardwareOf(kernelOf(i))?.only;
      if (only === 'hopper') return architecture === 'sm_90a';
      return only === undefined || architecture !== 'sm_80';
    };
    const runs = new Map<number, Promise<CompiledCuda>>();
    /** What nvcc says about kernel i and those that share its run. */
    const compiled = (i: number): Promise<CompiledCuda> => {
      const first = i - (i % inOneRun);
      let run = runs.get(first);
      if (run === undefined) {
        const those = Array.from(shapes.slice(first, first + inOneRun), (_, n) => first + n).filter(isThere);
        run = compileCuda(printCuda(those.map(kernelOf)), architecture);
        runs.set(first, run);
      }
      return run;
    };

    const those = shapes.map(({ name }, i) => ({ name, i })).filter(({ i }) => isThere(i));
    test.each(those)('$name', async ({ i }) => {
      let { kernels, warnings } = await compiled(i);
      // Its neighbours may change what the compiler does to a kernel; it is loaded without them.
      if (warnings.length > 0)
        ({ kernels, warnings } = await compileCuda(printCuda([kernelOf(i)]), architecture));
      expect(warnings).toEqual([]);
      const own = kernels.filter(({ name }) => name === entryName(kernelOf(i)));
      expect(own).toEqual([expect.objectContaining({ spillBytes: 0, stackBytes: 0 })]);
    });
  },
);
