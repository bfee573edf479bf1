/** Syntax and names that the language does not have, and what to write instead. */
import type { Expression, Node } from 'acorn';
import { editDistance } from '../../base/errors.js';
import type { Context } from './context.js';

/** 'ThisExpression' → 'this expression' */
export const wording = (type: string): string => type.replace(/(?!^)([A-Z])/g, ' $1').toLowerCase();

export function unsupported(ctx: Context, node: Node, what: string, advice?: string): never {
  const message = `the kernel language does not have this: ${what}${advice === undefined ? '' : `; ${advice}`}`;
  return ctx.fail(node, 'HK102', message);
}

export function propertyName(ctx: Context, key: Node): string {
  const node = key as Expression;
  if (node.type === 'Identifier') return node.name;
  if (node.type === 'Literal' && typeof node.value === 'string') return node.value;
  return unsupported(ctx, key, 'this kind of property name');
}

/** `; did you mean …?` for a name that resembles a known one, else ''. */
export function suggest(name: string, known: readonly string[]): string {
  const close = known
    .map((candidate) => ({
      candidate,
      // Swapped letters are the commonest slip.
      distance:
        letters(name) === letters(candidate) ? 1 : editDistance(name.toLowerCase(), candidate.toLowerCase()),
    }))
    .filter(
      ({ candidate, distance: away }) =>
        away <= (candidate.length < 4 ? 1 : Math.max(2, Math.floor(candidate.length / 3))),
    )
    .sort((a, b) => a.distance - b.distance)[0];
  return close === undefined ? '' : `; did you mean ${close.candidate}?`;
}

const letters = (name: string): string => [...name.toLowerCase()].sort().join('');

/** The names that people who come from CUDA or from plain TypeScript type first, and what to write here. */
const habits: Readonly<Record<string, string>> = {
  threadIdx: 'g.threadIdx.x',
  blockIdx: 'g.blockIdx.x',
  blockDim: 'g.blockDim.x',
  gridDim: 'g.gridDim.x',
  syncthreads: 'g.barrier()',
  syncwarp: 'g.warp.barrier()',
  threadfence_block: "g.fence('cta')",
  threadfence: "g.fence('gpu')",
  threadfence_system: "g.fence('sys')",
  nanosleep: 'g.sleep(nanoseconds)',
  Math: 'g.min, g.max and the like',
};

/** `; write …` for a name of CUDA, with or without its underscores, or of TypeScript, else ''. */
export function habit(name: string): string {
  const plain = name.replace(/^__/, '');
  return Object.hasOwn(habits, plain) ? `; write ${habits[plain]}` : '';
}
