/** A model's router on one rank: from tokens' rows to the experts they go to, and with what weights. */

import { ArgumentError, DisposedError, requireInteger, requireObject } from '../../base/errors.js';
import {
  type CallSite,
  callSite,
  type Device,
  requireDevice,
  requireStream,
  type Stream,
} from '../../gpu/index.js';
import { remembered } from '../families/common/remembered.js';
import { limits, type MoeModel, requireRouting } from '../layer/index.js';
import { emptyTensor, type OwnedTensor, requireVectors, type Tensor, wrap } from '../rounds/tensor.js';
import { chooseKernel } from './kernels/choose.js';
import { logitsKernel } from './kernels/logits.js';
import { mostRoutedExperts, type RouterShape, routerThreads, tilesOf } from './kernels/shape.js';

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
  readonly #shape: RouterShape;
  readonly #maxTokens: number;
  readonly #memory: Buffers;
  readonly #sites: Sites;
  #disposed = false;

  private constructor(shape: RouterShape, maxTokens: number, memory: Buffers, sites: Sites) {
    this.#shape = shape;
    this.#maxTokens = maxTokens;
    this.#memory = memory;
    this.#sites = sites;
  }

  /** Allocates its memory and compiles its kernels, for this rank alone. The weights stay the caller's. */
  static async create(
    world: { readonly device: Device; readonly rank: number },
    model: RoutedModel,
    weights: RouterWeights,
    maxTokens: number,
  ): Promise<Router> {
    requireObject('world', world, 'what has a device and a rank');
    const { device, rank } = world;
    requireDevice('world.device', device);
    requireInteger('world.rank', rank, 0, limits.worldRanks - 1);
    const shape = routerShapeOf(model, weights);
    requireInteger('maxTokens', maxTokens, 1, limits.maxTokens);
    const kernels = routerKernels({ shape, maxTokens, kind: device.kind });
    const [first, second] = [kernels.logits, kernels.choose];
    const [logits, choose] = await Promise.all([
      // Not programmatic: what begins early behind this one finds all that came before it, a round ago.
      callSite(device, first.kernel, { grid: first.blocks, block: first.threads, rank }),
      callSite(device, second.kernel, {
        grid: second.blocks,
        block: second.threads,
        programmatic: true,
        rank,
      }),
    ]);
    const { experts, topK } = shape;
    const memory = {
      logits: emptyTensor(device, 'f32', [maxTokens, experts], 'logits'),
      ids: emptyTensor(device, 'i32', [maxTokens, topK], 'ids of routes'),
      weights: emptyTensor(device, 'f32', [maxTokens, topK], 'weights of routes'),
    };
    logits.set.weights(weights.weights.data);
    logits.set.logits(memory.logits.data);
    choose.set.logits(memory.logits.data);
    // Where there are none nobody looks.
    choose.set.bias((weights.bias ?? weights.weights).data);
    choose.set.correction((weights.correction ?? weights.weights).data);
    choose.set.ids(memory.ids.data);
    choose.set.weights(memory.weights.data);
    return new Router(shape, maxTokens, memory, { logits, choose });
  }

  /** Two launches; the result is in the router's own memory, which the next call writes again. */
  route(x: Tensor, stream: Stream): RoutedTokens {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this Router');
    requireVectors('x', x, ['bf16'], [[0, this.#maxTokens], this.#shape.hidden]);
    const [tokens = 0] = x.shape;
    const { logits, choose } = this.#sites;
    logits.set.x(x.data);
    logits.set.tokens(tokens);
    choose.set.tokens(tokens);
    logits.launch(stream);
    choose.launch(stream);
    const { ids, weights } = this.#memory;
    const shape = [tokens, this.#shape.topK];
    return { topkIds: wrap(ids.data, 'i32', shape), topkWeights: wrap(weights.data, 'f32', shape) };
  }

  /** Frees its memory. Nothing enqueued may still use it. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const tensor of Object.values(this.#memory)) tensor.free();
  }
}

type Buffers = Readonly<Record<'logits' | 'ids' | 'weights', OwnedTensor>>;
type Kernels = ReturnType<typeof routerKernels>;
type Sites = { readonly [K in keyof Kernels]: CallSite<Kernels[K]['kernel']['params']> };

/** The launches of a router, made once for all ranks of a process that are alike. Spread for as many tokens; fewer keep fewer blocks busy. */
export const routerKernels = remembered(
  (of: { readonly shape: RouterShape; readonly maxTokens: number; readonly kind: 'sim' | 'cuda' }) => {
    const { shape, maxTokens, kind } = of;
    const threads = routerThreads(kind);
    const most = kind === 'sim' ? 4 : 2048;
    const blocks = (pieces: number) => Math.min(pieces, most);
    const choosing = Math.ceil(maxTokens / (threads.choose / 32));
    return {
      logits: {
        kernel: logitsKernel(shape, threads.logits),
        blocks: blocks(tilesOf(shape, maxTokens)),
        threads: threads.logits,
      },
      choose: {
        kernel: chooseKernel(shape, threads.choose),
        blocks: blocks(choosing),
        threads: threads.choose,
      },
    };
  },
);

/** Requires a model that can be routed, and weights that fit it. */
function routerShapeOf(model: RoutedModel, given: RouterWeights): RouterShape {
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
