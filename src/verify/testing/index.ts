/**
 * Tools for a test of dispatch, combine or a kernel of one's own: layers of known models, routes and inputs from a seed,
 * experts to put between the two, whole rounds, and the comparison of what came out with the reference.
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
export * from './example-experts.js';
export * from './random.js';
export * from './rounds.js';
export * from './routes.js';
