/** The experts' GEMMs behind a plan, twice over the same memory; those that take longest, as all on Hopper, once. */
import { type Layer, reference } from '../../../moe/layer/index.js';
import type { World } from '../../../net/world/index.js';
import { makeSources, type RoundsShape, type RoutesOptions, shapeOfRounds } from '../../testing/index.js';
import {
  compareMlp,
  inE4m3,
  makeMlp,
  makePackedMlp,
  makeScaledMlp,
  ofKind,
  placeReceived,
  runMlp,
} from '../../trials/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { ofOneRank, once } from './by-rank.js';

interface Experts {
  /** Options that it leaves out are as in `usual`. */
  readonly shape?: Partial<RoundsShape>;
  readonly inner?: number;
  readonly routes?: RoutesOptions;
  /** Rows that arrive are e4m3; for Hopper's kernels weights are too. */
  readonly e4m3?: boolean;
  /** Weights are MXFP4. */
  readonly packed?: boolean;
  /** Experts have biases, and gpt-oss's activation. */
  readonly biases?: boolean;
  readonly single?: boolean;
  readonly on?: Pick<CheckConfiguration, 'residentBlocks'>;
}

const usual: RoundsShape = { ranks: 1, experts: 2, topK: 2, maxTokens: 3, hidden: 64, dtype: 'bf16' };

/** All rows are one expert's, one more than a tile has; of it and of the next tile 16 at a time are loaded and multiplied. */
const toOne: Experts = {
  shape: { experts: 5, topK: 1, maxTokens: 33, hidden: 128 },
  routes: { router: { kind: 'repeated' } },
};

const all: Readonly<Record<string, Experts>> = {
  // More steps than stages, so that each is filled again.
  'few rows, all stages again': { shape: { hidden: 256 } },
  // Every block takes several tiles, each of another expert.
  'one resident block': { shape: { experts: 3 }, inner: 128, on: { residentBlocks: 1 } },
  'few rows likely, many come': toOne,
  'few rows of e4m3 likely, many come': { ...toOne, e4m3: true },
  // Four blocks: of the first GEMM the last of nine tiles is cut for four, of the second the last two of six for two each.
  'many rows likely': { shape: { experts: 3, maxTokens: 25, hidden: 256 }, inner: 192, single: true },
  // The other way round: the last two of ten tiles are cut for two each, and the last of five for four.
  'many rows likely, other cuts': {
    shape: { experts: 5, maxTokens: 25, hidden: 128 },
    inner: 128,
    single: true,
  },
  // Most experts have no rows, and the others have different numbers of them.
  'more experts than lanes': { shape: { experts: 40 } },
  'nobody comes': { routes: { holes: 1 } },
  'rows of e4m3, all stages again': { shape: { hidden: 256 }, e4m3: true },
  'few rows, biases': { biases: true },
  // More steps than stages, and every block takes several tiles: the loads of the next may not overtake the last reads.
  'MXFP4, few rows, biases': { shape: { hidden: 256 }, inner: 192, packed: true, biases: true },
  'MXFP4, few rows of e4m3 likely, many come': { ...toOne, e4m3: true, packed: true },
  'MXFP4, many rows likely': {
    shape: { experts: 3, maxTokens: 25, hidden: 256 },
    inner: 128,
    packed: true,
    single: true,
  },
};

export const mlp: CheckSubject = {
  name: 'mlp',
  kernels: ['experts_gate_up', 'experts_down', 'experts_gate_up_mxfp4', 'experts_down_mxfp4'],
  configurations: Object.entries(all).map(([name, of]) => configuration(`mlp, ${name}`, of, 'mma.sync')),
};

/**
 * Hopper's kernels, of four blocks. In both GEMMs of few rows of bf16 a block takes two units of three steps, more than there are
 * stages, and so fills them again. Few rows are gathered; many are brought in order, and the second tile of their expert has two rows.
 */
const few: Experts = { shape: { hidden: 192 }, inner: 128, on: { residentBlocks: 1 } };
const many: Experts = {
  shape: { topK: 1, maxTokens: 130, hidden: 192 },
  inner: 128,
  routes: { router: { kind: 'repeated' } },
};
const onHopper: Readonly<Record<string, Experts>> = {
  'few rows': few,
  'many rows': many,
  'few rows, biases': { ...few, biases: true },
  'few tiles, shared, biases': { shape: { experts: 1, topK: 1, hidden: 256 }, inner: 128, biases: true },
  'few rows of e4m3': { ...few, shape: { experts: 5, topK: 5, hidden: 256 }, inner: 128, e4m3: true },
  // There are four blocks and two tiles, so two blocks share each tile.
  'few tiles, shared': { shape: { experts: 1, topK: 1, hidden: 256 }, inner: 128 },
  'few tiles of e4m3, shared': { shape: { experts: 1, topK: 1, hidden: 256 }, inner: 128, e4m3: true },
  'few tiles of e4m3, the second shared': {
    shape: { experts: 1, topK: 1, hidden: 128 },
    inner: 256,
    e4m3: true,
  },
  // Each block takes two units of three steps, more than there are stages.
  'many rows of e4m3': { ...many, shape: { ...many.shape, hidden: 384 }, inner: 256, e4m3: true },
  // Nine stages, which are no multiple of those that a fetch is for; of the second GEMM the last unit has outputs for one warp group only.
  'MXFP4, few rows, biases': { ...few, shape: { hidden: 576 }, packed: true, biases: true },
  'MXFP4, many rows': { ...many, shape: { ...many.shape, maxTokens: 66, hidden: 192 }, packed: true },
};

export const hopper: CheckSubject = {
  name: 'hopper',
  kernels: [
    ...(['bf16', 'e4m3'] as const).flatMap((dtype) => [
      ...[`experts_gate_up_${dtype}`, `experts_down_${dtype}`],
      ...[`experts_gate_up_parts_${dtype}`, `experts_down_parts_${dtype}`],
    ]),
    ...['experts_gate_up_mxfp4_bf16', 'experts_down_mxfp4_bf16'],
  ],
  configurations: Object.entries(onHopper).map(([name, of]) => configuration(`hopper, ${name}`, of, 'wgmma')),
};

function configuration(
  name: string,
  { shape, inner = 64, routes, e4m3 = false, packed = false, biases = false, single = false, on }: Experts,
  instructions: 'mma.sync' | 'wgmma',
): CheckConfiguration {
  const wide: Layer = { ...shapeOfRounds({ ...usual, ...shape }), weights: true, counts: false };
  const { experts, maxTokens, topK, output } = wide;
  const brought = makeSources(wide, maxTokens, 1, routes);
  const { layer, sources } = e4m3 ? inE4m3(wide, brought) : { layer: wide, sources: brought };
  const times = single || instructions === 'wgmma' ? 1 : 2;
  const makeExpert = packed ? makePackedMlp : e4m3 && instructions === 'wgmma' ? makeScaledMlp : makeMlp;
  const { hidden } = output;
  const kind = { hidden, biases, activation: biases ? 'clamped-swiglu' : 'swiglu' } as const;
  const made = once(() => ({
    received: reference.dispatch(layer, sources, 0),
    weights: Array.from({ length: experts }, (_, e) => ofKind(makeExpert(hidden, inner, e), kind, e)),
  }));
  const work = async ({ device, rank }: World) => {
    const { received, weights } = made();
    const stream = device.createStream();
    const placed = placeReceived(device, stream, layer, received);
    await stream.synchronize();
    const of = { world: { device, rank }, shape: layer, received: placed };
    const actual = await runMlp(of, weights, {}, times, { instructions });
    return compareMlp(layer, rank, received, weights, maxTokens * topK, actual);
  };
  return ofOneRank(name, work, on);
}
