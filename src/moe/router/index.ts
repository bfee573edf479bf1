/** A model's router on one rank: from tokens' rows to the experts they go to, and with what weights. */

import { ArgumentError, DisposedError, requireInteger, requireObject } from '../../base/errors.js';
import {
  type CallSite,
  callSite,
  type Device,
  inRange,
  requireDevice,
  requireStream,
  type Stream,
} from '../../gpu/index.js';
import { memoized, usualChip } from '../families/family.js';
import { limits, type MoeModel, requireRouting } from '../layer/index.js';
import { type Allocate, Scratch } from '../rounds/scratch.js';
import { requireVectors, type Tensor, wrap } from '../rounds/tensor.js';
import { chooseKernel } from './kernels/choose.js';
import { logitsKernel } from './kernels/logits.js';
import {
  choosingThreads,
  type LogitsTile,
  logitsTiles,
  mostRoutedExperts,
  type RouterShape,
  threadsOf,
  tilesOf,
} from './kernels/shape.js';

export { mostRoutedExperts };

export interface RouterWeights {
  /** bf16 or f32 [experts, hidden]. */
  readonly weights: Tensor;
  /** f32 [experts]: added to logits. */
  readonly bias?: Tensor;
  /** f32 [experts]: added to scores where experts are chosen; weights do without it. */
  readonly correction?: Tensor;
}

/** The tensors that a router reads of a model. */
export type RoutedModel = Pick<MoeModel, 'hidden' | 'experts' | 'topK' | 'routing'>;

/** The inputs of dispatch. */
export interface RoutedTokens {
  /** i32 [tokens, topK], the best first; −1 where a token has fewer scores that are numbers. */
  readonly topkIds: Tensor;
  /** f32 [tokens, topK]; 0 at −1. */
  readonly topkWeights: Tensor;
}

export class Router {
  readonly #of: RouterParts;
  #disposed = false;

  private constructor(of: RouterParts) {
    this.#of = of;
  }

  /**
   * Allocates its memory and compiles its kernels, for this rank alone. The weights stay the caller's. `scratch`: the memory of routers
   * that take turns, each until the round of what it routed is combined. Default: its own.
   */
  static async create(
    world: { readonly device: Device; readonly rank: number },
    model: RoutedModel,
    weights: RouterWeights,
    maxTokens: number,
    scratch?: Scratch,
  ): Promise<Router> {
    requireObject('world', world, 'what has a device and a rank');
    const { device, rank } = world;
    requireDevice('world.device', device);
    requireInteger('world.rank', rank, 0, limits.worldRanks - 1);
    const shape = routerShapeOf(model, weights);
    requireInteger('maxTokens', maxTokens, 1, limits.maxTokens);
    const kernels = routerKernels({ shape, maxTokens, kind: device.kind });
    const { few, logits: small, logitsOfMany: large, choose: chooses } = kernels;
    // Not programmatic: what begins early behind this one finds all that came before it, a round ago.
    const siteOf = ({ kernel, blocks, threads }: typeof small) =>
      callSite(device, kernel, { grid: blocks, block: threads, rank });
    const [logits, logitsOfMany, choose] = await Promise.all([
      siteOf(small),
      maxTokens > few ? siteOf(large) : null,
      callSite(device, chooses.kernel, {
        ...{ grid: chooses.blocks, block: chooses.threads, programmatic: true, rank },
      }),
    ]);
    const own = scratch === undefined ? new Scratch(device) : null;
    let memory: Buffers;
    try {
      memory = buffersOf((scratch ?? own!).user(), shape, maxTokens);
    } catch (error) {
      own?.dispose();
      throw error;
    }
    for (const site of [logits, logitsOfMany]) {
      site?.set.weights(weights.weights.data);
      site?.set.logits(memory.logits.data);
    }
    choose.set.logits(memory.logits.data);
    for (const name of ['bias', 'correction'] as const) {
      const tensor = weights[name];
      if (tensor !== undefined) choose.set[name](0, tensor.data);
    }
    choose.set.ids(memory.ids.data);
    choose.set.weights(memory.weights.data);
    return new Router({ shape, maxTokens, memory, own, few, logits, logitsOfMany, choose });
  }

  /** Two launches; the result is in the router's memory, which the next call writes again. */
  route(x: Tensor, stream: Stream): RoutedTokens {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this Router');
    const { shape: of, maxTokens, memory, few, logitsOfMany, choose } = this.#of;
    requireVectors('x', x, ['bf16'], [[0, maxTokens], of.hidden]);
    const [tokens = 0] = x.shape;
    const logits = tokens > few ? logitsOfMany! : this.#of.logits;
    logits.set.x(x.data);
    logits.set.tokens(tokens);
    choose.set.tokens(tokens);
    inRange('router', stream, () => {
      logits.launch(stream);
      choose.launch(stream);
    });
    const { ids, weights } = memory;
    const shape = [tokens, of.topK];
    return { topkIds: wrap(ids.data, 'i32', shape), topkWeights: wrap(weights.data, 'f32', shape) };
  }

  /** Frees the memory that is its own. Nothing enqueued may still use it. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#of.own?.dispose();
  }
}

function buffersOf(allocate: Allocate, { experts, topK }: RouterShape, maxTokens: number) {
  return {
    logits: allocate('f32', [maxTokens, experts], 'logits'),
    ids: allocate('i32', [maxTokens, topK], 'ids of routes'),
    weights: allocate('f32', [maxTokens, topK], 'weights of routes'),
  };
}

type Buffers = ReturnType<typeof buffersOf>;
type Kernels = ReturnType<typeof routerKernels>;
type Logits = CallSite<Kernels['logits']['kernel']['params']>;
interface RouterParts {
  readonly shape: RouterShape;
  readonly maxTokens: number;
  readonly memory: Buffers;
  /** Null where the memory is the caller's. */
  readonly own: Scratch | null;
  /** The most tokens that `logits` takes; of more there is the other. */
  readonly few: number;
  readonly logits: Logits;
  readonly logitsOfMany: Logits | null;
  readonly choose: CallSite<Kernels['choose']['kernel']['params']>;
}

/** The launches of a router, made once for all ranks of a process that are alike. Spread for as many tokens; fewer keep fewer blocks busy. */
export const routerKernels = memoized(
  (of: { readonly shape: RouterShape; readonly maxTokens: number; readonly kind: 'sim' | 'cuda' }) => {
    const { shape, maxTokens, kind } = of;
    const most = kind === 'sim' ? 4 : 2048;
    const blocks = (pieces: number) => Math.min(pieces, most);
    const tiles = logitsTiles(shape, kind);
    const logits = (tile: LogitsTile) => ({
      kernel: logitsKernel(shape, tile),
      blocks: blocks(tilesOf(shape, tile, maxTokens)),
      threads: threadsOf(tile),
    });
    const threads = choosingThreads[kind];
    return {
      /** The most tokens whose logits small tiles make: of more these would read too much, each for itself. */
      few:
        kind === 'sim' ? 32 : 16 * Math.floor((2 * usualChip.multiprocessors) / Math.ceil(shape.experts / 8)),
      logits: logits(tiles.few),
      logitsOfMany: logits(tiles.many),
      choose: {
        kernel: chooseKernel(shape, threads),
        blocks: blocks(Math.ceil(maxTokens / (threads / 32))),
        threads,
      },
    };
  },
);

/** The shape for which a router's kernels are made. Requires a model that can be routed, and weights that fit it. */
export function routerShapeOf(model: RoutedModel, given: RouterWeights): RouterShape {
  requireObject('model', model);
  const { hidden, experts, topK, routing } = model;
  requireInteger('hidden', hidden, 8, limits.rowBytes / 2);
  if (hidden % 8 !== 0) throw new ArgumentError('hidden', hidden, 'a multiple of 8');
  requireInteger('experts', experts, 1, mostRoutedExperts);
  requireRouting(model);
  requireObject('router', given);
  requireVectors('router.weights', given.weights, ['bf16', 'f32'], [experts, hidden]);
  for (const name of ['bias', 'correction'] as const) {
    const tensor = given[name];
    if (tensor !== undefined) requireVectors(`router.${name}`, tensor, ['f32'], [experts]);
  }
  return {
    ...{ hidden, experts, topK, routing },
    weights: given.weights.dtype === 'f32' ? 'f32' : 'bf16',
    bias: given.bias !== undefined,
    correction: given.correction !== undefined,
  };
}
