/** A router in the plainest code and in f64: kernels agree with it as far as f32 tells scores apart. */
import {
  ArgumentError,
  requireFlag,
  requireInteger,
  requireObject,
  requireOneOf,
} from '../../base/errors.js';
import type { MoeModel } from './profiles.js';
import { limits } from './shape.js';

/**
 * `bias` is added to logits. `correction` is added to scores when experts are chosen, but not to the weights of
 * routes.
 */
export interface RouterBiases {
  readonly bias?: ArrayLike<number>;
  readonly correction?: ArrayLike<number>;
}

export interface ReferenceRoutes {
  /** [token][k] in falling order; −1 where a token has fewer scores that are numbers. */
  readonly topkIds: Int32Array;
  /** [token][k]; 0 at −1. */
  readonly topkWeights: Float64Array;
  /** The least difference, relative to them, of two scores or groups of which the better one was taken first. */
  readonly margin: number;
}

/** The fields of a model that say how its tokens are routed. */
type Routed = Pick<MoeModel, 'experts' | 'topK' | 'routing'>;

/** Requires that so many experts can be chosen as the model says. */
export function requireRouting({ experts, topK, routing }: Routed): void {
  requireInteger('experts', experts, 1, limits.experts);
  requireInteger('topK', topK, 1, Math.min(experts, limits.topK));
  requireObject('routing', routing);
  requireOneOf('routing.scores', routing.scores, ['softmax', 'sigmoid']);
  requireFlag('routing.normalise', routing.normalise);
  const { scale } = routing;
  // Kernels multiply by it in f32.
  if (typeof scale !== 'number' || !(Math.fround(scale) > 0 && Number.isFinite(Math.fround(scale))))
    throw new ArgumentError('routing.scale', scale, 'a finite number above 0');
  if (routing.groups === undefined) return;
  requireObject('routing.groups', routing.groups);
  const { count, top } = routing.groups;
  requireInteger('routing.groups.count', count, 1, 32);
  requireInteger('routing.groups.top', top, 1, count);
  if (experts % count !== 0)
    throw new ArgumentError('routing.groups.count', count, `a divisor of experts, ${experts}`);
  if ((experts / count) * top < topK)
    throw new ArgumentError('routing.groups.top', top, `enough groups for ${topK} experts`);
}

/** The routes of tokens with these logits, `[tokens, experts]`. */
export function route(model: Routed, logits: ArrayLike<number>, biases: RouterBiases = {}): ReferenceRoutes {
  requireObject('model', model);
  requireRouting(model);
  const { experts, topK, routing } = model;
  requireNumbers('logits', logits);
  requireObject('biases', biases);
  const { bias, correction } = biases;
  for (const [name, values] of Object.entries({ bias, correction }))
    if (values !== undefined) requireNumbers(name, values);
  const tokens = Math.floor(logits.length / experts);
  const topkIds = new Int32Array(tokens * topK).fill(-1);
  const topkWeights = new Float64Array(tokens * topK);
  const { groups = { count: 1, top: 1 } } = routing;
  const size = experts / groups.count;
  let margin = Number.POSITIVE_INFINITY;
  const take = (values: readonly number[], count: number): number[] => {
    const order = falling(values);
    for (const [i, id] of order.entries()) {
      if (i === 0 || i > count) continue;
      const [better, worse] = [values[order[i - 1]!]!, values[id]!];
      margin = Math.min(margin, (better - worse) / Math.max(Math.abs(better), Math.abs(worse)));
    }
    return order.slice(0, count);
  };
  for (let token = 0; token < tokens; token++) {
    const own = Array.from({ length: experts }, (_, e) => logits[token * experts + e]! + (bias?.[e] ?? 0));
    const scores = routing.scores === 'softmax' ? softmax(own) : own.map((x) => 1 / (1 + Math.exp(-x)));
    const ranked = scores.map((score, e) => score + (correction?.[e] ?? 0));
    if (groups.top < groups.count) {
      const sums = Array.from({ length: groups.count }, (_, n) =>
        bestTwo(ranked.slice(n * size, (n + 1) * size)),
      );
      const kept = take(sums, groups.top);
      for (let e = 0; e < experts; e++) if (!kept.includes(Math.floor(e / size))) ranked[e] = Number.NaN;
    }
    const chosen = take(ranked, topK);
    const sum = chosen.reduce((all, e) => all + scores[e]!, 0);
    for (const [k, e] of chosen.entries()) {
      topkIds[token * topK + k] = e;
      topkWeights[token * topK + k] = (scores[e]! / (routing.normalise ? sum : 1)) * routing.scale;
    }
  }
  return { topkIds, topkWeights, margin };
}

/** Requires numbers, in a typed array or a plain one. */
function requireNumbers(argument: string, values: ArrayLike<number>): void {
  const typed = ArrayBuffer.isView(values) && !(values instanceof DataView);
  if (!typed && !(Array.isArray(values) && values.every((value) => typeof value === 'number')))
    throw new ArgumentError(argument, values, 'an array of numbers');
}

/** The indices of all values but NaN, the largest value first; of equal values the smaller index first. */
const falling = (values: readonly number[]): number[] =>
  [...values.keys()].filter((i) => !Number.isNaN(values[i])).sort((a, b) => values[b]! - values[a]! || a - b);

/** A missing score counts as −∞. */
function bestTwo(values: readonly number[]): number {
  const [first, second] = falling(values);
  const at = (index: number | undefined): number =>
    index === undefined ? Number.NEGATIVE_INFINITY : values[index]!;
  return values.length === 1 ? at(first) : at(first) + at(second);
}

/** A NaN stays what it is, and takes no part in the others'. */
function softmax(values: readonly number[]): number[] {
  const numbers = values.filter((value) => !Number.isNaN(value));
  const largest = Math.max(...numbers);
  const parts = values.map((value) => Math.exp(value - largest));
  const sum = parts.reduce((all, part) => (Number.isNaN(part) ? all : all + part), 0);
  return parts.map((part) => part / sum);
}
