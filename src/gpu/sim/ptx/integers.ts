/** Operations on integers, as arithmetic and atomic updates have them: of at most 32 bits, and of 64 as two words. */
import { type PtxType, ptxBytes } from '../../../lang/ptx/index.js';
import { unsigned } from '../text.js';
import type { Instruction, Pair } from './code.js';

export const isSigned = (type: PtxType): boolean => type.startsWith('s');
export const isWide = (type: PtxType): boolean => ptxBytes[type] === 8;

const operators = { and: '&', or: '|', xor: '^', add: '+', sub: '-', min: '<', max: '>' } as const;
export type IntegerOperation = keyof typeof operators;
export const isIntegerOperation = (name: string): name is IntegerOperation => Object.hasOwn(operators, name);

/** Both are cheap to repeat. */
export function ofWords(op: IntegerOperation, type: PtxType, a: string, b: string): string {
  const operator = operators[op];
  if (op === 'add' || op === 'sub') return `${a} ${operator} ${b} | 0`;
  if (op !== 'min' && op !== 'max') return `${a} ${operator} ${b}`;
  const [first, second] = isSigned(type) ? [a, b] : [unsigned(a), unsigned(b)];
  return `${first} ${operator} ${second} ? ${a} : ${b}`;
}

export function ofLongs(x: Instruction, op: IntegerOperation, type: PtxType, a: Pair, b: Pair): Pair {
  if (op === 'add') return add64(x, a, b);
  if (op === 'sub') {
    const low = x.simple(`${a[0]} - ${b[0]} | 0`, 'i');
    return [low, `${a[1]} - ${b[1]} - (${unsigned(a[0])} < ${unsigned(b[0])} | 0) | 0`];
  }
  if (op !== 'min' && op !== 'max') {
    const operator = operators[op];
    return [`${a[0]} ${operator} ${b[0]}`, `${a[1]} ${operator} ${b[1]}`];
  }
  const isLess = x.simple(less64(a, b, isSigned(type)), 'b');
  const [first, second] = op === 'min' ? [a, b] : [b, a];
  return [`${isLess} ? ${first[0]} : ${second[0]}`, `${isLess} ? ${first[1]} : ${second[1]}`];
}

export function add64(x: Instruction, a: Pair, b: Pair): Pair {
  const low = x.simple(`${a[0]} + ${b[0]} | 0`, 'i');
  return [low, `${a[1]} + ${b[1]} + (${unsigned(low)} < ${unsigned(a[0])} | 0) | 0`];
}

export function less64(a: Pair, b: Pair, isSigned: boolean): string {
  const [high, other] = isSigned ? [a[1], b[1]] : [unsigned(a[1]), unsigned(b[1])];
  return `${high} < ${other} || (${a[1]} === ${b[1]} && ${unsigned(a[0])} < ${unsigned(b[0])})`;
}
