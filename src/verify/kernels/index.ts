/** Every kernel by name, and those that only measure a machine. */
export * from './ceilings.js';
export { type FamilyShape, familyKernels, familyKeys, familyShape } from './families.js';
export * from './registry.js';
export type { RegisteredKernel, ShapeKey, ShapeText } from './shape.js';
