/**
 * Pure functions of values: what they take, what the compiler makes of constants, and the prelude's helper, which
 * both C++ targets have. All operands and the result have one type.
 */
import { type Constant, extreme } from '../arithmetic.js';
import type { ComputeName, ValueName } from '../types.js';

interface PureOperation {
  /** 'a, b': one name an operand. */
  readonly takes: string;
  /** The types it is defined for. */
  readonly types: readonly ComputeName[];
  helper(type: ValueName): string;
  /** Of constants; undefined where a double is not enough to compute it. */
  fold?(type: ComputeName, a: Constant, b: Constant): Constant;
}

const minMax = (name: 'min' | 'max'): PureOperation => ({
  takes: 'a, b',
  types: ['i32', 'u32', 'u64', 'f32'],
  helper: (type) => (type === 'f32' ? `${name}_f32` : name),
  fold: (type, a, b) => extreme(name, type, a, b),
});

const table = {
  min: minMax('min'),
  max: minMax('max'),
  /** a · b + c with one rounding. */
  fma: { takes: 'a, b, c', types: ['f32'], helper: () => 'fma_f32' },
  /** 1 / a, correctly rounded. */
  rcp: {
    takes: 'a',
    types: ['f32'],
    helper: () => 'rcp_f32',
    fold: (_, a) => Math.fround(1 / Number(a)),
  },
  popc: {
    takes: 'a',
    types: ['u32'],
    helper: () => 'popc',
    fold: (_, a) => Number(a).toString(2).replaceAll('0', '').length,
  },
  /** 1 + index of the lowest set bit; 0 if none. */
  ffs: {
    takes: 'a',
    types: ['u32'],
    helper: () => 'ffs',
    fold: (_, a) => (a === 0 ? 0 : 32 - Math.clz32(Number(a) & -Number(a))),
  },
} satisfies Record<string, PureOperation>;

export type PureFunction = keyof typeof table;
export const pureFunctions: Readonly<Record<PureFunction, PureOperation>> = table;
