/** The kernels of a router. */
import { requireRouting } from '../../moe/layer/index.js';
import { mostRoutedExperts, routerKernels } from '../../moe/router/index.js';
import { layerParameters } from './layer.js';
import { entry, number, oneOf, type Parameters, type RegisteredKernel, yesNo } from './shape.js';

export const ofRouter: readonly RegisteredKernel[] = [
  routing('router_logits', 'products of tokens with the router’s rows of experts', 'logits'),
  routing('router_choose', 'the best experts of each token, and their weights', 'choose'),
];

/** A kernel of a router: DeepSeek-V3's, unless told otherwise. */
function routing(name: string, summary: string, which: 'logits' | 'choose'): RegisteredKernel {
  const { tokens, topk } = layerParameters;
  const parameters = {
    tokens,
    hidden: number('elements of a row', [8, 2 ** 18], 7168, 8),
    experts: number('experts of all ranks', [1, mostRoutedExperts], 256),
    topk,
    weights: oneOf('the type of the router’s weights', ['bf16', 'f32'], 'bf16'),
    scores: oneOf('what becomes of logits', ['softmax', 'sigmoid'], 'sigmoid'),
    groups: number('groups of experts', [1, 32], 8),
    top: number('groups that a token may choose from', [1, 32], 4),
    bias: oneOf('something is added to logits', yesNo, 'no'),
    correction: oneOf('something is added where experts are chosen', yesNo, 'yes'),
  } satisfies Parameters;
  return entry(name, summary, parameters, (of) => {
    const { hidden, experts, topk: topK, weights, scores, tokens: maxTokens } = of;
    const groups = { count: of.groups, top: of.top };
    const shape = {
      ...{ hidden, experts, topK, weights, bias: of.bias === 'yes', correction: of.correction === 'yes' },
      routing: { scores, groups, normalise: true, scale: 2.5 },
    };
    requireRouting(shape);
    const { few, logits, logitsOfMany, choose } = routerKernels({ shape, maxTokens, kind: 'cuda' });
    if (which === 'choose') return choose.kernel;
    return (maxTokens > few ? logitsOfMany : logits).kernel;
  });
}
