/** Routers with inputs from a seed, as a rank runs them, beside the reference. */
import type { Device } from '../../gpu/index.js';
import { type RoutedModel, Router, read, tensorFrom } from '../../moe/index.js';
import { fromF32, type ReferenceRoutes, type RouterBiases, reference, toF32 } from '../../moe/layer/index.js';
import { type Comparison, compareBits, mergeComparisons, random } from '../testing/index.js';

export interface RoutedOptions {
  readonly model: RoutedModel;
  readonly tokens: number;
  readonly seed: number;
  readonly weights?: 'bf16' | 'f32';
  readonly bias?: boolean;
  readonly correction?: boolean;
}

/** The inputs of a router, all of them values that its types have. */
export interface RoutedInputs extends RouterBiases {
  readonly model: RoutedModel;
  readonly dtype: 'bf16' | 'f32';
  /** [token][element] */
  readonly x: Float32Array;
  /** [expert][element] */
  readonly weights: Float32Array;
}

/** Logits of about ±2, biases of about ±1/2. */
export function makeRouted({ model, tokens, seed, weights = 'bf16', ...has }: RoutedOptions): RoutedInputs {
  const { hidden, experts } = model;
  const values = (length: number, own: number, most: number): Float32Array => {
    const draw = random(seed, own);
    return Float32Array.from({ length }, () => (2 * draw.uniform() - 1) * most);
  };
  const bf16 = (of: Float32Array): Float32Array => toF32('bf16', fromF32('bf16', of));
  const rows = values(experts * hidden, 12, 3 / Math.sqrt(hidden));
  return {
    ...{ model, dtype: weights, x: bf16(values(tokens * hidden, 11, 2)) },
    weights: weights === 'bf16' ? bf16(rows) : rows,
    ...(has.bias && { bias: values(experts, 13, 0.5) }),
    ...(has.correction && { correction: values(experts, 14, 0.5) }),
  };
}

export function expectedRoutes({ model, x, weights, ...biases }: RoutedInputs): ReferenceRoutes {
  const { hidden, experts } = model;
  const logits = Float64Array.from({ length: (x.length / hidden) * experts }, (_, at) => {
    const [token, expert] = [Math.floor(at / experts), at % experts];
    let sum = 0;
    for (let i = 0; i < hidden; i++) sum += x[token * hidden + i]! * weights[expert * hidden + i]!;
    return sum;
  });
  return reference.route(model, logits, biases);
}

/** Routes all tokens so often, back to back, as one rank. */
export async function runRouter(
  world: { readonly device: Device; readonly rank: number },
  { model, dtype, x, weights, bias, correction }: RoutedInputs,
  times = 1,
) {
  const { device } = world;
  const { hidden, experts } = model;
  const stream = device.createStream();
  const vector = (of: ArrayLike<number>) =>
    tensorFrom(device, stream, Float32Array.from(of), 'f32', [experts]);
  const tokens = x.length / hidden;
  const rows = tensorFrom(device, stream, x, 'bf16', [tokens, hidden]);
  const router = await Router.create(
    world,
    model,
    {
      weights: tensorFrom(device, stream, weights, dtype, [experts, hidden]),
      ...(bias && { bias: vector(bias) }),
      ...(correction && { correction: vector(correction) }),
    },
    tokens,
  );
  let routed = router.route(rows, stream);
  for (let n = 1; n < times; n++) routed = router.route(rows, stream);
  const [topkIds, topkWeights] = [await read(routed.topkIds, stream), await read(routed.topkWeights, stream)];
  router.dispose();
  return { topkIds, topkWeights };
}

/** Scores whose relative difference is less may be taken in either order; weights may be off by so much. */
export const routedTolerance = 1e-5;

/**
 * Ids must equal those of the reference. Inputs whose best experts f32 cannot tell apart are a mistake of the test.
 */
export function compareRouted(
  { topK }: RoutedModel,
  actual: Awaited<ReturnType<typeof runRouter>>,
  expected: ReferenceRoutes,
): Comparison {
  if (expected.margin < routedTolerance)
    throw new RangeError(`the inputs leave a choice to rounding: scores differ by ${expected.margin}`);
  const close = expected.topkWeights.map((weight, i) => {
    const is = actual.topkWeights[i]!;
    return Math.abs(is - weight) <= routedTolerance * Math.abs(weight) ? is : weight;
  });
  return mergeComparisons([
    compareBits('ids', 'i32', actual.topkIds, expected.topkIds, topK),
    compareBits('weights', 'f32', actual.topkWeights, Float32Array.from(close), topK),
  ]);
}
