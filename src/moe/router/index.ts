/** Chooses the experts of each token. */
export { routerKernels } from './kernels/kernels.js';
export { mostRoutedExperts, type RouterShape } from './kernels/shape.js';
export { type RoutedModel, type RoutedTokens, Router, type RouterWeights } from './router.js';
