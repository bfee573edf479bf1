/**
 * Kernels of one's own for hosts that are not TypeScript: the ring of examples/ring.ts for four ranks.
 *
 *   heddle export ./examples/export/kernels.ts --arch sm_90a --prefix rings --out rings
 */
import { ring } from '../ring.js';

export const ring4 = ring(4);
