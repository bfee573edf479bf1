/**
 * `heddle/testing`: what a test of dispatch, combine or a kernel of one's own takes: layers of known models, routes and
 * inputs from a seed, the reference, and the comparison of what came out with it.
 */
export { readBits } from '../../moe/index.js';
export {
  type Bits,
  type Bytes,
  type FormatName,
  formats,
  fromF32,
  type Payload,
  type Profile,
  type ProfileName,
  payloadsFor,
  profile,
  profiles,
  reference,
  type Shape,
  type Traffic,
  toF32,
  traffic,
} from '../../moe/layer/index.js';
export * from './compare.js';
export * from './random.js';
export { makeSources, type RoundsShape, shapeOfRounds } from './rounds.js';
export { makeAllRoutes, makeRoutes, type RouterLaw, type Routes, type RoutesOptions } from './routes.js';
