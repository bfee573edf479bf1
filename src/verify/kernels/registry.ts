/** Every kernel by name, with a shape that it has unless another is asked for: what `heddle emit` prints. */

import { ArgumentError } from '../../base/errors.js';
import type { Kernel, ParamSpecs } from '../../lang/index.js';
import {
  type ExpertsShape,
  exampleExpertsKernel,
  expertsKernels,
  mlpKernels,
  mostLocalExperts,
  narrowKernel,
  swigluKernel,
} from '../../moe/experts/index.js';
import {
  choice,
  count,
  type Family,
  hybrid,
  type Knob,
  oneSided,
  type Place,
  type Plan,
  phases,
  portable,
  requireKnob,
  type TransportName,
  type Tuning,
  transports,
  usualMultiprocessors,
} from '../../moe/families/index.js';
import {
  alignments,
  type ExpertForm,
  expertForms,
  expertsOf,
  type FormatName,
  formats,
  type Layer,
  limits,
  payloadsFor,
  type RowDtype,
  type RowFormatName,
  requireShape,
  rowFormatNames,
} from '../../moe/layer/index.js';
import { routerKernels } from '../../moe/router/index.js';
import { topologyOf } from '../../net/world/index.js';
import {
  flagBarrierKernel,
  flagBarrierWindow,
  loadCeilingKernel,
  storeCeilingKernel,
  transferWindow,
} from './ceilings/index.js';

/** A shape as people write it: `ranks=8,tokens=128,dtype=bf16,combine.way=pull`. */
export type ShapeText = Readonly<Record<string, number | string>>;

export interface RegisteredKernel {
  readonly name: string;
  readonly summary: string;
  /** What a shape may say. */
  readonly shape: readonly ShapeKey[];
  /** @throws ArgumentError for a key that there is not, or a value that makes no sense. */
  build(shape?: ShapeText): Kernel;
}

/** One thing that a shape may say. */
export interface ShapeKey {
  readonly name: string;
  readonly knob: Knob;
  /** What it is unless it is said; null where that depends on the layer. */
  readonly otherwise: number | string | null;
}

/** What a shape may say, and what it says otherwise. */
type Parameters = Readonly<Record<string, { readonly knob: Knob; readonly default: number | string }>>;

/** A shape whose values are known to be allowed. */
interface CheckedShape {
  number(key: string): number;
  text(key: string): string;
}

const none = () => [];
const number = (summary: string, range: readonly [number, number], otherwise: number) => ({
  knob: count(summary, range, none),
  default: otherwise,
});
const word = (summary: string, choices: readonly string[], otherwise: string) => ({
  knob: choice(summary, choices, none),
  default: otherwise,
});
const yesNo = ['yes', 'no'];

const aGpu = { kind: 'cuda', multiprocessors: usualMultiprocessors } as const;

/** DeepSeek-V3's layer on the 8 GPUs of a machine. */
const layerParameters = {
  ranks: number('ranks that share the experts', [1, limits.ranks], 8),
  replicas: number('consecutive ranks that hold the same tokens', [1, limits.ranks], 1),
  tokens: number('most tokens a rank', [1, limits.maxTokens], 128),
  hidden: number('elements of a row', [1, 2 ** 18], 7168),
  experts: number('experts of all ranks', [1, limits.experts], 256),
  topk: number('routes of a token', [1, limits.topK], 8),
  dtype: word('of a row’s elements', ['bf16', 'f16', 'f32'], 'bf16'),
  weights: word('router weights travel', yesNo, 'yes'),
} satisfies Parameters;

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

const travelling = {
  ...layerParameters,
  counts: word('routes are counted', yesNo, 'no'),
  format: word('of rows that dispatch carries; same: as dtype', ['same', ...Object.keys(formats)], 'same'),
  scales: number('bytes of a second payload; 0 for none', [0, 2 ** 20], 0),
  weighting: word('who applies the router weights', ['experts', 'combine'], 'experts'),
  wire: word('how rows come back', rowFormatNames, 'rows'),
  sum: word('where rows of several nodes are added up', ['nodes', 'source'], 'nodes'),
} satisfies Parameters;
const transport = word('what carries rows of the portable family', transports, 'windows');

export const registry: readonly RegisteredKernel[] = [
  ofFamily(oneSided, 'one_sided_dispatch', 'sends tokens to the ranks that own their experts'),
  ofFamily(oneSided, 'one_sided_combine', 'brings partial rows back and adds them up'),
  ofFamily(oneSided, 'one_sided_weigh', 'from a row a route to the row that travels', {
    otherwise: { weighting: 'combine' },
  }),
  ofFamily(oneSided, 'one_sided_dispatch_send', 'a split dispatch: sends, waits for nobody', { split: true }),
  ofFamily(oneSided, 'one_sided_dispatch_recv', 'a split dispatch: until all has come', { split: true }),
  ofFamily(oneSided, 'one_sided_combine_send', 'a split combine: sends, waits for nobody', { split: true }),
  ofFamily(oneSided, 'one_sided_combine_recv', 'a split combine: adds up what comes', { split: true }),
  ofFamily(
    portable,
    'portable_dispatch_send',
    'sends tokens to the ranks that own their experts, as messages',
  ),
  ofFamily(portable, 'portable_stage', 'brings rows to where the network reads them', {
    otherwise: { transport: 'proxy' },
  }),
  ofFamily(portable, 'portable_dispatch_recv', 'waits until all of a dispatch has come'),
  ofFamily(portable, 'portable_weigh', 'from a row a route to the row that travels', {
    otherwise: { weighting: 'combine' },
  }),
  ofFamily(portable, 'portable_combine_send', 'sends partial rows home, as messages'),
  ofFamily(portable, 'portable_combine_recv', 'adds up partial rows as they come home'),
  ofFamily(hybrid, 'hybrid_dispatch_send', 'packs messages for other nodes, and stores to its own', {
    nodes: 2,
  }),
  ofFamily(hybrid, 'hybrid_dispatch_recv', 'forwards what comes from other nodes to its owners', {
    nodes: 2,
  }),
  ofFamily(hybrid, 'hybrid_weigh', 'from a row a route to the row that travels', {
    nodes: 2,
    otherwise: { weighting: 'combine' },
  }),
  ofFamily(hybrid, 'hybrid_combine_send', 'sums inside the node what goes home to others', { nodes: 2 }),
  ofFamily(hybrid, 'hybrid_combine_recv', 'adds up the sums of all nodes', { nodes: 2 }),
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
  ofExperts('experts_plan', 'sorts the routes that arrived by expert', 'plan'),
  ofExperts('experts_expand', 'copies rows into the order of experts', 'expand'),
  ofExperts('experts_reduce', 'adds up the experts’ rows of each slot', 'reduce'),
  ofMlp('experts_gate_up', 'rows times gates and what they scale, gathered by the plan; SwiGLU', 'gateUp'),
  ofMlp('experts_down', 'what SwiGLU made, times the second weights of experts', 'down'),
  entry(
    'experts_swiglu',
    'SwiGLU as a launch of its own, for cuBLAS',
    { inner: mlpParameters.inner },
    (shape) => swigluKernel(shape.number('inner'), 256, 'plan'),
  ),
  entry('experts_narrow', 'rows as e4m3 with scales, for dispatch to carry', {}, () => narrowKernel(256)),
  ofRouter('router_logits', 'products of tokens with the router’s rows of experts', 'logits'),
  ofRouter('router_choose', 'the best experts of each token, and their weights', 'choose'),
  entry('flag_barrier', 'what it costs that all ranks meet', { ranks: layerParameters.ranks }, (shape) => {
    const ranks = shape.number('ranks');
    return flagBarrierKernel(ranks, flagBarrierWindow(ranks));
  }),
  ...(
    [
      ['ceiling_stores', 'what the links carry at best: stores to all peers', storeCeilingKernel],
      ['ceiling_loads', 'what the links carry at best: loads from all peers', loadCeilingKernel],
    ] as const
  ).map(([name, summary, make]) =>
    entry(
      name,
      summary,
      {
        ranks: number('ranks', [2, limits.ranks], 8),
        vectors: number('16-byte vectors to each peer', [1, 2 ** 26], 2 ** 16),
      },
      (shape) => {
        const [ranks, vectors] = [shape.number('ranks'), shape.number('vectors')];
        return make(ranks, vectors, transferWindow(ranks, vectors));
      },
    ),
  ),
];

/** A kernel of a family's plan. Its shape also takes the family's knobs, as phase.knob; otherwise they suit the layer. */
function ofFamily(
  family: Family,
  name: string,
  summary: string,
  {
    otherwise = {},
    split = false,
    nodes,
  }: {
    /** What a shape says unless it is told. */
    readonly otherwise?: Readonly<Record<string, string>>;
    readonly split?: boolean;
    /** Of a family that reaches beyond one: how many, unless a shape says otherwise. */
    readonly nodes?: number;
  } = {},
): RegisteredKernel {
  const form = formOf(family, otherwise, nodes);
  const build = (given: ShapeText = {}): Kernel => {
    const { layer, place, tuning } = form.read(name, given, split);
    return kernelNamed(family.plan(layer, place, tuning), name);
  };
  return { name, summary, shape: form.keys, build };
}

/** A layer that a family can carry, all ranks on GPUs, as rank 0 sees it. */
export interface FamilyShape {
  readonly layer: Layer;
  readonly place: Place;
  readonly tuning: Tuning;
}

/**
 * Reads a layer for a family: `ranks=8,tokens=128,combine.way=pull`. Knobs that it does not name are those of `otherwise`.
 * @throws ArgumentError for a key that there is not, or a value that makes no sense.
 */
export const familyShape = (
  family: Family,
  given: ShapeText,
  split: boolean,
  otherwise: (layer: Layer, place: Place) => Tuning = family.defaults,
): FamilyShape => formOf(family).read(family.name, given, split, otherwise);

/** What `familyShape` takes of a family. */
export const familyKeys = (family: Family): readonly ShapeKey[] => formOf(family).keys;

/** What a shape of a family may say: the layer, and the knobs as phase.knob. */
function formOf(family: Family, otherwise: Readonly<Record<string, string>> = {}, nodes?: number) {
  const parameters: Parameters = {
    ...Object.fromEntries(
      Object.entries({ ...travelling, transport }).map(([key, of]) => [
        key,
        { ...of, default: otherwise[key] ?? of.default },
      ]),
    ),
    ...(nodes !== undefined && { nodes: number('nodes of equal size', [2, 72], nodes) }),
  };
  const knobs = new Map<string, { readonly phase: string; readonly key: string; readonly knob: Knob }>(
    Object.entries(family.knobs).flatMap(([phase, table]) =>
      Object.entries(table).map(([key, knob]) => [`${phase}.${key}`, { phase, key, knob }] as const),
    ),
  );
  const keys: readonly ShapeKey[] = [
    ...keysOf(parameters),
    ...Array.from(knobs, ([name, { knob }]) => ({ name, knob, otherwise: null })),
  ];
  const names = keys.map(({ name }) => name);
  const read = (name: string, given: ShapeText, split: boolean, start = family.defaults): FamilyShape => {
    const entries = Object.entries(given).map(([key, value]) => [keyAmong(names, key), value] as const);
    const shape = checked(
      name,
      names,
      parameters,
      Object.fromEntries(entries.filter(([key]) => !knobs.has(key))),
    );
    const layer = layerOf(shape);
    const place: Place = {
      ...placeOf(layer, split, nodes === undefined ? 1 : shape.number('nodes')),
      transport: shape.text('transport') as TransportName,
    };
    const tuning: Record<string, Record<string, number | string>> = structuredClone(start(layer, place));
    for (const [path, value] of entries) {
      const found = knobs.get(path);
      if (found) tuning[found.phase]![found.key] = requireKnob(found.knob, value, `--shape ${path}`);
    }
    const refusal = family.refuses(layer, place, tuning);
    if (refusal !== null) throw refusal;
    return { layer, place, tuning };
  };
  return { keys, read };
}

/** A kernel of rank 0's plan for its experts. */
function ofExperts(
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
function ofMlp(name: string, summary: string, which: keyof ReturnType<typeof mlpKernels>): RegisteredKernel {
  return entry<ParamSpecs>(name, summary, mlpParameters, (shape) => {
    const of = shape.text('of') === 'all' ? 'all' : 'plan';
    const experts = of === 'all' ? 1 : shape.number('experts');
    const [hidden, inner] = [shape.number('hidden'), shape.number('inner')];
    const [topK, rows] = [shape.number('topk'), shape.number('rows')];
    const e4m3 = shape.text('format') === 'fp8';
    return mlpKernels({ of, e4m3, experts, hidden, inner, topK, rows, ...aGpu })[which].kernel;
  });
}

/** A kernel of a router: DeepSeek-V3's, unless told otherwise. */
function ofRouter(
  name: string,
  summary: string,
  which: keyof ReturnType<typeof routerKernels>,
): RegisteredKernel {
  const { tokens, hidden, experts, topk } = layerParameters;
  const parameters = {
    ...{ tokens, hidden, experts, topk },
    weights: word('the type of the router’s weights', ['bf16', 'f32'], 'bf16'),
    scores: word('what becomes of logits', ['softmax', 'sigmoid'], 'sigmoid'),
    groups: number('groups of experts', [1, 32], 8),
    top: number('groups that a token may choose from', [1, 32], 4),
    bias: word('something is added to logits', yesNo, 'no'),
    correction: word('something is added where experts are chosen', yesNo, 'yes'),
  } satisfies Parameters;
  return entry<ParamSpecs>(name, summary, parameters, (of) => {
    const groups = { count: of.number('groups'), top: of.number('top') };
    const routing = {
      scores: of.text('scores') as 'softmax' | 'sigmoid',
      groups,
      normalise: true,
      scale: 2.5,
    };
    const shape = {
      ...{ hidden: of.number('hidden'), experts: of.number('experts'), topK: of.number('topk'), routing },
      weights: of.text('weights') as 'bf16' | 'f32',
      ...{ bias: of.text('bias') === 'yes', correction: of.text('correction') === 'yes' },
    };
    return routerKernels({ shape, maxTokens: of.number('tokens'), kind: 'cuda' })[which].kernel;
  });
}

function kernelNamed(plan: Plan, name: string): Kernel {
  const kernels = phases.flatMap((phase) => plan.phases[phase].map(({ kernel }) => kernel));
  const found = kernels.find((kernel) => kernel.name === name);
  if (found !== undefined) return found;
  throw new ArgumentError(
    'kernel',
    name,
    `with such a shape one of ${kernels.map((k) => k.name).join(', ')}`,
  );
}

/** GPUs of so many equal nodes. */
const placeOf = ({ ranks }: Layer, split: boolean, nodes: number): Place => ({
  ...aGpu,
  rank: 0,
  split,
  sms: null,
  transport: 'windows',
  topology: topologyOf(
    Array.from({ length: ranks }, (_, rank) => Math.floor((rank * nodes) / ranks)),
    0,
  ),
});

function layerOf(shape: CheckedShape): Layer {
  const dtype = shape.text('dtype') as RowDtype;
  const hidden = shape.number('hidden');
  const weighting = shape.text('weighting') as 'experts' | 'combine';
  const format = shape.text('format') as FormatName | 'same';
  const carried = payloadsFor(format === 'same' ? dtype : format, hidden);
  const scales = { name: 'scales', rowBytes: shape.number('scales') };
  if (scales.rowBytes > 0 && carried.length > 1)
    throw new ArgumentError(
      '--shape scales',
      scales.rowBytes,
      `0: rows of ${format} have scales of their own`,
    );
  const layer: Layer = {
    ranks: shape.number('ranks'),
    experts: shape.number('experts'),
    topK: shape.number('topk'),
    maxTokens: shape.number('tokens'),
    replicas: shape.number('replicas'),
    payloads: scales.rowBytes > 0 ? [...carried, scales] : carried,
    output: {
      dtype,
      hidden,
      weighting,
      wire: shape.text('wire') as RowFormatName,
      sum: shape.text('sum') as 'nodes' | 'source',
    },
    weights: weighting === 'combine' || shape.text('weights') === 'yes',
    counts: shape.text('counts') === 'yes',
  };
  requireShape(layer);
  return layer;
}

function entry<P extends ParamSpecs>(
  name: string,
  summary: string,
  parameters: Parameters,
  build: (shape: CheckedShape) => Kernel<P>,
): RegisteredKernel {
  const keys = Object.keys(parameters);
  return {
    ...{ name, summary, shape: keysOf(parameters) },
    build: (shape = {}) => build(checked(name, keys, parameters, shape)),
  };
}

function keysOf(parameters: Parameters): ShapeKey[] {
  return Object.entries(parameters).map(([name, { knob, default: otherwise }]) => ({
    name,
    knob,
    otherwise,
  }));
}

/** The key that is written like this, in whatever case. */
const keyAmong = (keys: readonly string[], written: string): string =>
  keys.find((key) => key.toLowerCase() === written.toLowerCase()) ?? written;

function checked(
  kernel: string,
  keys: readonly string[],
  parameters: Parameters,
  given: ShapeText,
): CheckedShape {
  const values = new Map(Object.entries(parameters).map(([key, of]) => [key, of.default]));
  for (const [written, value] of Object.entries(given)) {
    const key = keyAmong(keys, written);
    const parameter = Object.hasOwn(parameters, key) ? parameters[key] : undefined;
    if (parameter === undefined)
      throw new ArgumentError('--shape', written, `a key of ${kernel}: ${keys.join(', ')}`);
    values.set(key, requireKnob(parameter.knob, value, `--shape ${key}`));
  }
  return { number: (key) => Number(values.get(key)), text: (key) => String(values.get(key)) };
}
