/** The kernels that choose the experts of each token. */
export { mostRoutedExperts, type RouterShape } from './kernels/shape.js';
export { routerKernels } from './router.js';
