/** The plans that the host in C carries out on GPUs, and where its binary for each is. */
import { join } from 'node:path';
import { familyNamed } from '../../src/moe/families/index.js';
import { type Exported, exportPlan } from '../../src/tools/export/index.js';
import { familyShape } from '../../src/verify/kernels/index.js';

export const ranks = 2;
const shape = { ranks, tokens: 64, hidden: 1024, experts: 16, topk: 4 };

export const cases = ['one-sided', 'portable'].flatMap((family) =>
  [false, true].map((split) => ({ name: `${family}${split ? '-split' : ''}`, family, split })),
);
type Case = (typeof cases)[number];

/** What `export-hosts` writes, beside the JavaScript of these files. */
export const hostOf = ({ name }: Case): string => join(import.meta.dirname, '../../export-hosts', name);

export function exported({ family, split }: Case): Promise<Exported> {
  const found = familyNamed(family);
  return exportPlan(found, familyShape(found, shape, split), 'of the test');
}
