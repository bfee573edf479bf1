/** The plans that the engine in C++ carries out on GPUs, and what is built of each. */
import { join } from 'node:path';
import { familyNamed } from '../../src/moe/families/index.js';
import { type Exported, exportPlan } from '../../src/tools/export/index.js';
import { familyShape, type ShapeText } from '../../src/verify/kernels/index.js';

export const ranks = 2;
const shape = { ranks, tokens: 64, hidden: 1024, experts: 16, topk: 4 };

export const cases = ['one-sided', 'portable'].flatMap((family) =>
  [false, true].map((split) => ({ name: `${family}${split ? '-split' : ''}`, family, split })),
);
type Case = (typeof cases)[number];

/** For these architectures the kernels are compiled where the tests are built. */
export const architectures = ['sm_90a', 'sm_100a'];

/** Where `export-hosts` writes, beside the JavaScript of these files. */
export const folderOf = (name: string): string => join(import.meta.dirname, '../../export', name);

export const exported = ({ family, split }: Case): Promise<Exported> => planOf(family, shape, split);

/** What the page of Python carries out: examples/export/engine.py. */
export const pages = [
  { name: 'torch-bf16', shape: { ...shape, tokens: 128 } },
  { name: 'torch-fp8', shape: { ...shape, tokens: 128, format: 'fp8' } },
  { name: 'torch-rounded', shape: { ...shape, tokens: 128, format: 'fp8', rounded: 'yes' } },
];

export function planOf(family: string, given: ShapeText, split = false): Promise<Exported> {
  const found = familyNamed(family);
  return exportPlan(found, familyShape(found, given, { split, sms: null }), 'of the test');
}
