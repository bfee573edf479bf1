export { combineKernel } from './combine.js';
export { dispatchKernel } from './dispatch.js';
export * from './specialise.js';
export { weighKernel } from './weigh.js';
export * from './window.js';
