export type * from './device.js';
export { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from './numerics.js';
