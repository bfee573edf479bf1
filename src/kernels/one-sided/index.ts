export { combineKernel } from './combine.js';
export { combineE4m3Kernel } from './combine-e4m3.js';
export { dispatchKernel } from './dispatch.js';
export * from './specialise.js';
export { weighKernel } from './weigh.js';
export * from './window.js';
