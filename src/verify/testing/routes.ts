/** Routes for tests, the demo, the checker and the benchmark: the same for the same seed, everywhere. */
import { ArgumentError, requireInteger, requireObject, requireOneOf } from '../../base/errors.js';
import { expertsOf, firstOf, limits, ownerOf, type Shape } from '../../moe/layer/index.js';
import { type Random, random } from './random.js';

/** The routes of one rank's tokens. */
export interface Routes {
  /** How many. */
  readonly tokens: number;
  /** `[tokens, topK]` expert ids; −1 is 'no expert'. */
  readonly topkIds: Int32Array;
  /** `[tokens, topK]` router weights: 0 at −1, the others positive and normalised to a sum of 1. */
  readonly topkWeights: Float32Array;
}

/** How a router chooses. Ids are distinct within a token wherever there are enough to choose from. */
export type RouterLaw =
  | { readonly kind: 'uniform' }
  /**
   * The perfect router: consecutive routes go to consecutive ranks and through all experts in turn, so that every
   * expert and every rank gets the same load (±1). Its tokens reach more ranks than those of `uniform`.
   */
  | { readonly kind: 'balanced' }
  /**
   * The n-th most popular expert is chosen in proportion to n^−exponent. All ranks agree who is popular; `favourites`, a seed, lets
   * routes of several seeds agree too (default: that of the routes).
   */
  | { readonly kind: 'zipf'; readonly exponent: number; readonly favourites?: number }
  /** Only experts of one rank. */
  | { readonly kind: 'one-rank'; readonly target: number }
  /** Only experts of other ranks. */
  | { readonly kind: 'remote' }
  /** Independent draws from a few experts, so that most tokens name one twice or more. */
  | { readonly kind: 'repeated' };

/** The kind of routes that `makeRoutes` makes. */
export interface RoutesOptions {
  /** Default uniform. */
  readonly router?: RouterLaw;
  /** The share of routes that become −1, from 0 (default) to 1. */
  readonly holes?: number;
}

/** Makes the routes of `rank`'s tokens. */
export function makeRoutes(
  shape: Pick<Shape, 'ranks' | 'experts' | 'topK'>,
  rank: number,
  tokens: number,
  seed: number,
  options: RoutesOptions = {},
): Routes {
  return routesOf({ shape, rank, tokens, seed, options, before: rank * tokens });
}

/** The routes that are asked for. `before`: the tokens of the ranks before it, behind which balanced routes go on. */
interface Request {
  readonly shape: Pick<Shape, 'ranks' | 'experts' | 'topK'>;
  readonly rank: number;
  readonly tokens: number;
  readonly seed: number;
  readonly options: RoutesOptions;
  readonly before: number;
}

function routesOf(request: Request): Routes {
  requireRequest(request);
  const { shape, rank, tokens, seed, options } = request;
  const draw = random(seed, rank, 1);
  const choose = chooser(request, draw);
  const { holes = 0 } = options;
  const topkIds = new Int32Array(tokens * shape.topK);
  const topkWeights = new Float32Array(tokens * shape.topK);
  for (let token = 0; token < tokens; token++) {
    const at = token * shape.topK;
    const ids = topkIds.subarray(at, at + shape.topK);
    choose(token, ids);
    if (holes > 0) for (let k = 0; k < ids.length; k++) if (draw.uniform() < holes) ids[k] = -1;
    weigh(ids, topkWeights.subarray(at, at + shape.topK), draw);
  }
  return { tokens, topkIds, topkWeights };
}

function requireRequest({ shape, rank, tokens, seed, options }: Request): void {
  requireObject('shape', shape);
  const ranks = requireInteger('shape.ranks', shape.ranks, 1, limits.worldRanks);
  requireInteger('shape.experts', shape.experts, 1, limits.experts);
  requireInteger('shape.topK', shape.topK, 1, limits.topK);
  requireInteger('rank', rank, 0, ranks - 1);
  requireInteger('tokens', tokens, 0, limits.maxTokens);
  requireInteger('seed', seed, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  requireObject('options', options);
  const { router = { kind: 'uniform' }, holes = 0 } = options;
  requireFrom('holes', holes, 0, 1);
  requireObject('router', router, "such as { kind: 'uniform' }");
  requireOneOf('router.kind', router.kind, ['uniform', 'balanced', 'zipf', 'one-rank', 'remote', 'repeated']);
  if (router.kind === 'zipf') {
    const { exponent, favourites = 0 } = router;
    requireFrom('router.exponent', exponent, 0, 100);
    requireInteger('router.favourites', favourites, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  }
  if (router.kind === 'one-rank') requireInteger('router.target', router.target, 0, limits.worldRanks - 1);
}

function requireFrom(argument: string, value: unknown, min: number, max: number): void {
  if (typeof value !== 'number' || !(value >= min && value <= max)) {
    throw new ArgumentError(argument, value, `a number from ${min} to ${max}`);
  }
}

/**
 * The routes of every rank; `tokens` is each rank's number of tokens, or one number for all. The ranks of a group bring
 * what its first does.
 */
export function makeAllRoutes(
  shape: Pick<Shape, 'ranks' | 'experts' | 'topK' | 'replicas'>,
  tokens: number | readonly number[],
  seed: number,
  options: RoutesOptions = {},
): Routes[] {
  requireObject('shape', shape);
  const { ranks, replicas = 1 } = shape;
  requireInteger('shape.ranks', ranks, 1, limits.worldRanks);
  requireInteger('shape.replicas', replicas, 1, ranks);
  if (typeof tokens !== 'number' && !Array.isArray(tokens))
    throw new ArgumentError('tokens', tokens, 'an integer, or one for each rank');
  let before = 0;
  return Array.from({ length: shape.ranks }, (_, rank) => {
    const first = firstOf(shape, rank);
    const own = typeof tokens === 'number' ? tokens : (tokens[first] ?? 0);
    const routes = routesOf({ shape, rank: first, tokens: own, seed, options, before });
    if ((rank + 1) % replicas === 0) before += own;
    return routes;
  });
}

type Choose = (token: number, ids: Int32Array) => void;

function chooser({ shape, rank, before, seed, options }: Request, draw: Random): Choose {
  const { router = { kind: 'uniform' } } = options;
  const all = Array.from({ length: shape.experts }, (_, id) => id);
  const ownedBy = (holds: (owner: number) => boolean): Choose => {
    const pool = all.filter((id) => holds(ownerOf(shape, id)));
    return distinct(pool, draw);
  };
  switch (router.kind) {
    case 'uniform':
      return distinct(all, draw);
    case 'one-rank':
      return ownedBy((owner) => owner === router.target);
    case 'remote':
      return ownedBy((owner) => owner !== rank);
    case 'repeated': {
      const offered = Math.max(1, Math.min(shape.experts, Math.ceil(shape.topK / 2)));
      return (_, ids) => {
        // Few experts, evenly spread over the ranks, so that repeated experts also share ranks.
        for (let k = 0; k < ids.length; k++)
          ids[k] = Math.floor((draw.below(offered) * shape.experts) / offered);
      };
    }
    case 'balanced': {
      const turn = interleaved(shape);
      const start = random(seed, 2).below(shape.experts) + before * shape.topK;
      return (token, ids) => {
        for (let k = 0; k < ids.length; k++) ids[k] = turn[(start + token * shape.topK + k) % turn.length]!;
      };
    }
    case 'zipf':
      return skewed(byPopularity(shape.experts, router.favourites ?? seed), router.exponent, draw);
  }
}

/** Distinct uniform draws from a pool; once it is exhausted the rest repeat; −1 from an empty pool. */
function distinct(pool: number[], draw: Random): Choose {
  return (_, ids) => {
    for (let k = 0; k < ids.length; k++) {
      if (k < pool.length) {
        // A step of Fisher and Yates' shuffle. The pool keeps its new order for the next token, since any order will do to start from.
        const other = k + draw.below(pool.length - k);
        [pool[k], pool[other]] = [pool[other]!, pool[k]!];
        ids[k] = pool[k]!;
      } else {
        ids[k] = pool.length === 0 ? -1 : pool[draw.below(pool.length)]!;
      }
    }
  };
}

/** Distinct draws with weights n^−exponent; with fewer experts than routes the rest repeat. */
function skewed(byPopularity: readonly number[], exponent: number, draw: Random): Choose {
  const weights = byPopularity.map((_, n) => (n + 1) ** -exponent);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return (_, ids) => {
    let left: number[] = [];
    let remaining = 0;
    for (let k = 0; k < ids.length; k++) {
      if (k % weights.length === 0) {
        left = weights.slice();
        remaining = total;
      }
      let point = draw.uniform() * remaining;
      let chosen = -1;
      for (let n = 0; n < left.length; n++) {
        if (left[n] === 0) continue;
        chosen = n; // where rounding leaves `point` above 0 to the end, the last one is chosen
        point -= left[n]!;
        if (point < 0) break;
      }
      ids[k] = byPopularity[chosen]!;
      remaining -= left[chosen]!;
      left[chosen] = 0;
    }
  };
}

/** The experts that are popular where routes are skewed: experts, the most popular first. */
export function byPopularity(experts: number, seed: number): number[] {
  return shuffled(
    Array.from({ length: experts }, (_, id) => id),
    random(seed, 3),
  );
}

/** All experts in an order that visits the ranks in turn: the first of each rank, the second of each rank … */
export function interleaved(shape: Pick<Shape, 'ranks' | 'experts'>): number[] {
  const order: number[] = [];
  for (let nth = 0; order.length < shape.experts; nth++) {
    for (let rank = 0; rank < shape.ranks; rank++) {
      const { first, count } = expertsOf(shape, rank);
      if (nth < count) order.push(first + nth);
    }
  }
  return order;
}

function shuffled(values: number[], draw: Random): number[] {
  for (let i = values.length - 1; i > 0; i--) {
    const other = draw.below(i + 1);
    [values[i], values[other]] = [values[other]!, values[i]!];
  }
  return values;
}

function weigh(ids: Int32Array, weights: Float32Array, draw: Random): void {
  let sum = 0;
  const raw = Array.from(ids, (id) => {
    if (id < 0) return 0;
    const weight = draw.uniform() + 0.05;
    sum += weight;
    return weight;
  });
  for (let k = 0; k < raw.length; k++) weights[k] = raw[k]! === 0 ? 0 : raw[k]! / sum;
}
