export { routerKernels } from './kernels.js';
export { mostRoutedExperts, type RouterShape } from './shape.js';
