/** Every kernel by name, with a shape that it has unless another is asked for: what `heddle emit` prints. */
import { ArgumentError, requireInteger } from '../errors/index.js';
import type { Kernel, ParamSpecs } from '../lang/index.js';
import {
  flagBarrierKernel,
  flagBarrierWindow,
  loadCeilingKernel,
  storeCeilingKernel,
  transferWindow,
} from './ceilings/index.js';
import { exampleExpertsKernel } from './experts/index.js';
import {
  combineE4m3Kernel,
  combineKernel,
  dispatchKernel,
  dtypeBytes,
  mostInFlight,
  type OneSidedShape,
  type OutputRows,
  oneSidedWindow,
  outputRowBytes,
  type RowDtype,
  weighKernel,
  widestUnit,
} from './one-sided/index.js';

/** A shape as people write it: `ranks=8,tokens=128,dtype=bf16`. */
export type ShapeText = Readonly<Record<string, number | string>>;

export interface RegisteredKernel {
  readonly name: string;
  readonly summary: string;
  /** What a shape may say, and what it says otherwise. */
  readonly defaults: ShapeText;
  /** @throws ArgumentError for a key that `defaults` lacks, or a value that makes no sense. */
  build(shape?: ShapeText): Kernel;
}

interface Parameter {
  readonly default: number | string;
  /** The range of a number, or the choices of a text. */
  readonly allowed: readonly [min: number, max: number] | readonly string[];
}

type Parameters = Readonly<Record<string, Parameter>>;

/** A shape whose values are known to be allowed. */
interface CheckedShape {
  number(key: string): number;
  text(key: string): string;
}

const dtypes = Object.keys(dtypeBytes);
const yesNo = ['yes', 'no'];

/** DeepSeek-V3's layer on the 8 GPUs of a machine. */
const layer: Parameters = {
  ranks: { default: 8, allowed: [1, 72] },
  tokens: { default: 128, allowed: [1, 2 ** 20] },
  hidden: { default: 7168, allowed: [1, 2 ** 18] },
  experts: { default: 256, allowed: [1, 65_536] },
  topk: { default: 8, allowed: [1, 32] },
  dtype: { default: 'bf16', allowed: dtypes },
  weights: { default: 'yes', allowed: yesNo },
};

const spread: Parameters = {
  blocks: { default: 128, allowed: [1, 2 ** 16] },
  threads: { default: 512, allowed: [32, 1024] },
  parts: { default: 1, allowed: [1, 64] },
};

const oneSided: Parameters = {
  ...layer,
  counts: { default: 'no', allowed: yesNo },
  /** Bytes of a second payload; 0 for none. */
  scales: { default: 0, allowed: [0, 2 ** 20] },
  ...spread,
  way: { default: 'push', allowed: ['push', 'pull'] },
  ahead: { default: 1, allowed: [1, 1024] },
  /** How dispatch moves rows. */
  dispatch: { default: 'store', allowed: ['store', 'bulk'] },
  inflight: { default: 4, allowed: [1, mostInFlight] },
};
const pushing: Parameters = { ...oneSided, way: { default: 'push', allowed: ['push'] } };

export const registry: readonly RegisteredKernel[] = [
  entry(
    'one_sided_dispatch',
    'pushes tokens into the windows of the ranks that own their experts',
    oneSided,
    (shape) => {
      const of = oneSidedShape(shape);
      return dispatchKernel(of, oneSidedWindow(of));
    },
  ),
  entry(
    'one_sided_combine',
    'brings partial rows back (way=push or pull) and adds them up',
    oneSided,
    (shape) => {
      const of = oneSidedShape(shape);
      return combineKernel(of, oneSidedWindow(of));
    },
  ),
  entry(
    'one_sided_combine_e4m3',
    'brings partial rows back as 8-bit floats with scales, and adds them up',
    { ...pushing, weighting: { default: 'experts', allowed: ['experts', 'combine'] } },
    (shape) => {
      const weighting = shape.text('weighting') as 'experts' | 'combine';
      const of = oneSidedShape(shape, { weighting, transport: 'e4m3' });
      return combineE4m3Kernel(of, oneSidedWindow(of));
    },
  ),
  entry(
    'one_sided_weigh',
    'where combine applies the router weights: from a row a route to the row that travels',
    { ...oneSided, transport: { default: 'rows', allowed: ['rows', 'e4m3'] } },
    (shape) => {
      const transport = shape.text('transport') as 'rows' | 'e4m3';
      const of = oneSidedShape(shape, { weighting: 'combine', transport });
      return weighKernel(of, oneSidedWindow(of));
    },
  ),
  entry(
    'example_experts',
    'small experts for demonstrations and checks',
    { ...layer, threads: spread.threads!, routes: { default: 'no', allowed: yesNo } },
    (shape) =>
      exampleExpertsKernel({
        slots: shape.number('ranks') * shape.number('tokens'),
        topK: shape.number('topk'),
        hidden: shape.number('hidden'),
        dtype: shape.text('dtype') as RowDtype,
        weights: shape.text('weights') === 'yes',
        routes: shape.text('routes') === 'yes',
        threads: shape.number('threads'),
      }),
  ),
  entry('flag_barrier', 'what it costs that all ranks meet', { ranks: layer.ranks! }, (shape) => {
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
      { ranks: { default: 8, allowed: [2, 72] }, vectors: { default: 2 ** 16, allowed: [1, 2 ** 26] } },
      (shape) => {
        const [ranks, vectors] = [shape.number('ranks'), shape.number('vectors')];
        return make(ranks, vectors, transferWindow(ranks, vectors));
      },
    ),
  ),
];

function entry<P extends ParamSpecs>(
  name: string,
  summary: string,
  parameters: Parameters,
  build: (shape: CheckedShape) => Kernel<P>,
): RegisteredKernel {
  const defaults = Object.fromEntries(Object.entries(parameters).map(([key, of]) => [key, of.default]));
  return { name, summary, defaults, build: (shape = {}) => build(checked(name, parameters, shape)) };
}

function checked(kernel: string, parameters: Parameters, given: ShapeText): CheckedShape {
  const values = new Map(Object.entries(parameters).map(([key, of]) => [key, of.default]));
  for (const [written, value] of Object.entries(given)) {
    const key = written.toLowerCase();
    const parameter = Object.hasOwn(parameters, key) ? parameters[key] : undefined;
    if (parameter === undefined) {
      throw new ArgumentError(
        '--shape',
        written,
        `a key of ${kernel}: ${Object.keys(parameters).join(', ')}`,
      );
    }
    values.set(key, requireAllowed(key, value, parameter.allowed));
  }
  return { number: (key) => Number(values.get(key)), text: (key) => String(values.get(key)) };
}

function requireAllowed(key: string, value: number | string, allowed: Parameter['allowed']): number | string {
  const [first, second] = allowed;
  if (typeof first === 'number' && typeof second === 'number') {
    return requireInteger(`--shape ${key}`, value, first, second);
  }
  if (allowed.some((choice) => choice === value)) return value;
  throw new ArgumentError(`--shape ${key}`, value, `one of ${allowed.join(', ')}`);
}

function oneSidedShape(
  shape: CheckedShape,
  options: Pick<OutputRows, 'weighting' | 'transport'> = {},
): OneSidedShape {
  const [ranks, threads] = [shape.number('ranks'), shape.number('threads')];
  if (threads % 32 !== 0 || threads < ranks) {
    throw new ArgumentError('--shape threads', threads, `a multiple of 32, and at least ranks (${ranks})`);
  }
  const output = { dtype: shape.text('dtype') as RowDtype, hidden: shape.number('hidden'), ...options };
  const rows = [outputRowBytes({ output }), shape.number('scales')].filter((bytes) => bytes > 0);
  const parts = shape.number('parts');
  const launch = {
    blocks: Math.min(shape.number('blocks'), shape.number('tokens') * parts),
    threads,
    parts,
    inFlight: shape.number('inflight'),
  };
  return {
    ranks,
    experts: shape.number('experts'),
    topK: shape.number('topk'),
    maxTokens: shape.number('tokens'),
    payloads: rows.map((rowBytes) => ({ rowBytes, unit: widestUnit(rowBytes) })),
    output,
    weights: options.weighting === 'combine' || shape.text('weights') === 'yes',
    counts: shape.text('counts') === 'yes',
    dispatch: { ...launch, way: shape.text('dispatch') as 'store' | 'bulk' },
    combine: { ...launch, way: shape.text('way') as 'push' | 'pull', ahead: shape.number('ahead') },
  };
}
