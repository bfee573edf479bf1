/** How kernels are spread over a device, as it was measured: the files that keep it, and the nearest shape in them. */
export * from './file.js';
export * from './nearest.js';
