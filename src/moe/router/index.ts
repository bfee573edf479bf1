/** Chooses the experts of each token. */
export { mostRoutedExperts, type RouterShape } from './kernels/shape.js';
export { type RoutedModel, type RoutedTokens, Router, type RouterWeights, routerKernels } from './router.js';
