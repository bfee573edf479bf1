/** A whole layer with weights from a seed, as its ranks run it, and what it means in the plainest code. */
import type { Device, Stream } from '../../src/gpu/index.js';
import { emptyTensor, type LayerWeightsType, tensorFrom } from '../../src/moe/index.js';
import {
  type Bits,
  type Dtype,
  dequantise,
  expertsOf,
  fromF32,
  type MlpMatrices,
  type MoeModel,
  type Placement,
  quantise,
  reference,
  toF32,
} from '../../src/moe/layer/index.js';
import { type Comparison, compareClosely, mergeComparisons } from '../../src/verify/testing/index.js';
import {
  dtypeOf,
  expectedRoutes,
  isScaled,
  layerWeights,
  makeMlp,
  makePackedMlp,
  makeRouted,
  makeScaledMlp,
  ofKind,
  type RoutedInputs,
  routedTolerance,
  stacked,
  type WeightsType,
} from '../../src/verify/trials/index.js';

/** All weights of a layer, of all ranks, and what each rank brings. */
export interface LayerInputs {
  readonly model: MoeModel;
  /** [expert] */
  readonly experts: readonly MlpMatrices[];
  readonly shared: MlpMatrices | null;
  /** [rank]: the weights and biases of the router, and the tokens of that rank as `x`. */
  readonly routed: readonly RoutedInputs[];
}

/**
 * `tokens[rank]`. A router that corrects its choices, where scores are sigmoids, as such models do; and tokens whose choices
 * do not hang by rounding.
 */
export function makeLayer(
  model: MoeModel,
  tokens: readonly number[],
  seed: number,
  weights: LayerWeightsType = 'bf16',
): LayerInputs {
  const make = { bf16: makeMlp, fp8: makeScaledMlp, mxfp4: makePackedMlp }[weights];
  const { hidden, experts, inner, sharedInner } = model;
  const correction = model.routing.scores === 'sigmoid';
  const all = tokens.reduce((sum, own) => sum + own, 0);
  const router = makeRouted({ model, tokens: all, seed, correction });
  let at = 0;
  return {
    model,
    experts: Array.from({ length: experts }, (_, e) =>
      ofKind(make(hidden, inner, seed * 1009 + e), model, seed * 1009 + e),
    ),
    shared: sharedInner === undefined ? null : make(hidden, sharedInner, seed * 1009 + experts),
    routed: tokens.map((own) => {
      const start = at;
      at += own;
      return { ...router, x: clearRows(router, start, at, seed) };
    }),
  };
}

/** The rows from `start` to `end`, others in place of those that a rounding might send elsewhere. */
function clearRows(router: RoutedInputs, start: number, end: number, seed: number): Float32Array {
  const { model } = router;
  const rows = router.x.slice(start * model.hidden, end * model.hidden);
  for (let row = 0; row < rows.length; row += model.hidden) {
    let x: Float32Array = rows.slice(row, row + model.hidden);
    for (let n = 1; !isClear({ ...router, x }); n++)
      x = makeRouted({ model, tokens: 1, seed: seed + n * 2 ** 20 + start + row }).x;
    rows.set(x, row);
  }
  return rows;
}

const isClear = (inputs: RoutedInputs): boolean => expectedRoutes(inputs).margin >= routedTolerance;

/**
 * Puts the weights of one rank on its device. An empty place gets the weights of some expert, which no kernel may
 * read.
 */
export function placeWeights(
  world: { readonly device: Device; readonly rank: number; readonly ranks: number },
  stream: Stream,
  { model, experts, shared, routed }: LayerInputs,
  placement?: Placement,
): ReturnType<typeof layerWeights> {
  const all =
    placement?.places.map(
      (expert, place) => experts.at(expert < 0 ? (place + 1) % experts.length : expert)!,
    ) ?? experts;
  const { first, count } = expertsOf({ experts: all.length, ranks: world.ranks }, world.rank);
  const mine = { experts: all.slice(first, first + count), sharedExperts: shared ? [shared] : [] };
  const place = (bits: Bits | Float32Array, dtype: Dtype, shape: readonly number[], what: string) =>
    tensorFrom(world.device, stream, bits, dtype, shape, what);
  const { weights, dtype, correction } = routed[0]!;
  return layerWeights(
    model,
    { rank: world.rank, ranks: world.ranks, places: all.length },
    (of, part, shape) =>
      place(
        stacked(mine[of], part),
        dtypeOf((of === 'experts' ? experts[0] : shared)!, part),
        shape,
        `${of}, ${part}`,
      ),
    {
      weights: place(weights, dtype, [model.experts, model.hidden], 'router'),
      ...(correction && {
        correction: place(Float32Array.from(correction), 'f32', [model.experts], 'correction'),
      }),
    },
    dtypeOf(experts[0]!, 'down') as WeightsType,
  );
}

/** The rows that a rank brings, and room for those that it gets: [tokens, hidden]. */
export function placeRows(
  { device, rank }: { readonly device: Device; readonly rank: number },
  stream: Stream,
  { model: { hidden }, routed }: LayerInputs,
) {
  const own = routed[rank]!.x;
  const x = tensorFrom(device, stream, own, 'bf16', [own.length / hidden, hidden], 'x');
  return { x, out: emptyTensor(device, 'bf16', x.shape, 'out') };
}

/** The rows that each rank gets: rows are rounded as experts and what travels as fp8 round them, and added in f64. */
export function plainLayer(
  { model, experts, shared, routed }: LayerInputs,
  rows: 'bf16' | 'fp8' = 'bf16',
): Bits[] {
  const { hidden, topK } = model;
  const made = (row: Float32Array, expert: MlpMatrices): Float32Array => {
    if (!isScaled(expert)) return toF32('bf16', reference.mlp(fromF32('bf16', row), hidden, expert));
    const { e4m3, scales } = quantise(row);
    return toF32('bf16', reference.scaledMlp(e4m3, scales, hidden, expert));
  };
  return routed.map((inputs) => {
    const { topkIds, topkWeights } = expectedRoutes(inputs);
    const out = new Float32Array(inputs.x.length);
    for (let token = 0; token < out.length / hidden; token++) {
      const row = inputs.x.subarray(token * hidden, (token + 1) * hidden);
      const sent = rows === 'fp8' ? dequantise(quantise(row)) : row;
      const sum = Float64Array.from(shared === null ? new Float64Array(hidden) : made(row, shared));
      for (let k = 0; k < topK; k++) {
        const part = made(sent, experts[topkIds[token * topK + k]!]!);
        for (let i = 0; i < hidden; i++) sum[i]! += topkWeights[token * topK + k]! * part[i]!;
      }
      out.set(sum, token * hidden);
    }
    return fromF32('bf16', out);
  });
}

/**
 * Compares with a tolerance, because a row is rounded to bf16 in several places: between the GEMMs, by each expert,
 * in each rank's sum, and in the shared expert's.
 */
export function compareLayer(hidden: number, actual: readonly Bits[], expected: readonly Bits[]): Comparison {
  return mergeComparisons(
    actual.map((out, rank) =>
      compareClosely(`rank ${rank}: out`, 'bf16', out, expected[rank]!, hidden, 2 ** -7),
    ),
  );
}
