/** The five steps of docs/gemm.md. */
import { loop } from './1-loop.js';
import { shared } from './2-shared.js';
import { wgmma } from './3-wgmma.js';
import { roles } from './4-roles.js';
import { persistent } from './5-persistent.js';

export type { Gemm, Sizes } from './multiply.js';
export { prepare } from './multiply.js';
export const steps = [loop, shared, wgmma, roles, persistent] as const;
