import { device } from '../../../../lang/index.js';
import { exp } from '../../../families/common/exp.js';

/** x / (1 + e^−x) */
export const silu = device(
  { name: 'silu', params: { x: 'f32' }, returns: 'f32', using: { exp } },
  (g, { x }, u) => x * g.rcp(1 + u.exp({ x: -x })),
);
