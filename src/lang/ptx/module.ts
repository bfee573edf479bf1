/** Files of PTX, read: what is declared in them, and the instructions of its functions, each with its lines. */
import { HeddleError } from '../../base/errors.js';

/** PTX that cannot be read, or has something that the simulated machine does not know. Names the line. */
export class PtxError extends HeddleError {
  constructor(
    /** 'kernel.ptx:107' */
    readonly where: string,
    message: string,
  ) {
    super('HEDDLE_PTX', `${where}: ${message}`);
  }
}

export const ptxBytes = {
  ...{ b8: 1, u8: 1, s8: 1 },
  ...{ b16: 2, u16: 2, s16: 2, f16: 2, bf16: 2 },
  ...{ b32: 4, u32: 4, s32: 4, f32: 4, f16x2: 4, bf16x2: 4, u16x2: 4, s16x2: 4 },
  ...{ b64: 8, u64: 8, s64: 8, f64: 8 },
  b128: 16,
} as const;

/** A fundamental type. Registers may also be predicates. */
export type PtxType = keyof typeof ptxBytes;

export const isPtxType = (name: string): name is PtxType => Object.hasOwn(ptxBytes, name);

export type PtxSpace = 'global' | 'shared' | 'local' | 'const' | 'param';

export interface PtxVariable {
  readonly name: string;
  readonly space: PtxSpace;
  readonly type: PtxType;
  readonly align: number;
  /** Null where the launch says how long it is: dynamic shared memory. */
  readonly bytes: number | null;
  /** Its first value, an element each: numbers, or addresses of other variables. */
  readonly init: readonly (PtxInteger | PtxFloat | PtxSymbol)[] | null;
  readonly line: number;
  /** All devices and the host have the same one, at the same address. */
  readonly managed?: boolean;
}

export interface PtxRegister {
  readonly kind: 'register';
  /** Unique in its function. */
  readonly name: string;
  readonly type: PtxType | 'pred';
}

export interface PtxInteger {
  readonly kind: 'integer';
  readonly value: bigint;
}

/** A floating-point constant, exact as a double. */
export interface PtxFloat {
  readonly kind: 'float';
  readonly value: number;
  /** The bits as written: of an f32 where `single`. */
  readonly bits: bigint;
  readonly single: boolean;
}

export interface PtxSymbol {
  readonly kind: 'symbol';
  readonly name: string;
  readonly offset: number;
}

export type PtxOperand =
  | PtxRegister
  | PtxInteger
  | PtxFloat
  | PtxSymbol
  /** `%tid.x` and the like, without the `%`. */
  | { readonly kind: 'special'; readonly name: string }
  | {
      readonly kind: 'address';
      readonly base: PtxRegister | PtxSymbol | PtxInteger;
      readonly offset: number;
      /** Coordinates of a box, where it is a tensor's. */
      readonly coordinates: readonly PtxOperand[];
    }
  /** `{a, b}`, or the parameters of a call in parentheses. */
  | { readonly kind: 'list'; readonly elements: readonly PtxOperand[] }
  /** `d|p` */
  | { readonly kind: 'pair'; readonly first: PtxOperand; readonly second: PtxOperand }
  | { readonly kind: 'not'; readonly of: PtxRegister }
  /** `_`: nobody wants the result. */
  | { readonly kind: 'sink' };

export function registersIn(operand: PtxOperand | undefined): readonly PtxRegister[] {
  switch (operand?.kind) {
    case 'register':
      return [operand];
    case 'not':
      return [operand.of];
    case 'address':
      return [operand.base, ...operand.coordinates].flatMap(registersIn);
    case 'list':
      return operand.elements.flatMap(registersIn);
    case 'pair':
      return [operand.first, operand.second].flatMap(registersIn);
    default:
      return [];
  }
}

export interface PtxGuard {
  readonly register: PtxRegister;
  readonly negated: boolean;
}

export interface PtxInstruction {
  /** 'ld', 'relaxed', 'gpu', 'global', 'u32' */
  readonly parts: readonly string[];
  readonly guard: PtxGuard | null;
  readonly operands: readonly PtxOperand[];
  /** The line in the module, from 1. */
  readonly line: number;
  /** The place in the source, as `.loc` says. */
  readonly source: PtxLocation | null;
}

/** A place in a source, and, if that was inlined, the place that called it. */
export interface PtxLocation {
  readonly file: number;
  readonly line: number;
  readonly column: number;
  readonly inlinedAt: PtxLocation | null;
}

export interface PtxFunction {
  readonly name: string;
  readonly isEntry: boolean;
  readonly params: readonly PtxVariable[];
  readonly returns: readonly PtxVariable[];
  readonly variables: readonly PtxVariable[];
  readonly instructions: readonly PtxInstruction[];
  /** The instruction that each label stands before. */
  readonly labels: ReadonlyMap<string, number>;
  /** Lists of labels, for `brx.idx`. */
  readonly tables: ReadonlyMap<string, readonly string[]>;
  /** Most threads of a block, if it says so. */
  readonly maxThreads: number | null;
  /** Blocks of a cluster along x, y and z, if it says so. */
  readonly cluster: readonly number[] | null;
  readonly line: number;
}

/** A file of PTX, by its name in findings: 'kernel.ptx'. */
export interface PtxText {
  readonly file: string;
  readonly text: string;
}

export interface PtxModule {
  /** The names of its files, and the line of the module with which each begins, from 0. */
  readonly files: readonly { readonly file: string; readonly first: number }[];
  readonly version: string;
  readonly target: string;
  readonly sources: ReadonlyMap<number, string>;
  readonly variables: readonly PtxVariable[];
  readonly functions: ReadonlyMap<string, PtxFunction>;
  /** The lines of all files, one behind the other. */
  readonly lines: readonly string[];
}

/** 'kernel.ptx:107' */
export function placeOfLine({ files }: PtxModule, line: number): string {
  const { file, first } = files.findLast((one) => one.first < line)!;
  return `${file}:${line - first}`;
}
