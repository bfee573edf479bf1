export { lowerKernel } from './module.js';
