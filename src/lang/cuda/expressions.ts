/**
 * Expressions as C++. The text of an operation is the operation itself wherever C++ defines it as the language
 * does; i32 arithmetic goes through u32, because C++ leaves signed overflow undefined.
 */
import { HeddleError } from '../../base/errors.js';
import { heldName } from '../arithmetic.js';
import { settled } from '../build.js';
import type { BinaryOp, Expr, UnaryOp } from '../ir.js';
import { type PureFunction, pureFunctions } from '../operations/pure.js';
import { byteSize, type IrType, type ValueName } from '../types.js';
import type { Prelude } from './prelude.js';
import type { Scopes } from './scopes.js';

/** Binding strength, as in C++; a text binds at least as tightly as its number says. */
const strength = {
  ...{ primary: 20, unary: 15 },
  ...{ '*': 13, '/': 13, '%': 13, '+': 12, '-': 12, '<<': 11, '>>': 11 },
  ...{ '<': 10, '<=': 10, '>': 10, '>=': 10, '==': 9, '!=': 9 },
  ...{ '&': 8, '^': 7, '|': 6, '&&': 5, '||': 4, select: 3 },
} as const;

interface Text {
  readonly text: string;
  readonly strength: number;
  readonly op?: BinaryOp;
}

function cppType(type: IrType): string {
  switch (type.kind) {
    case 'value':
      return heldName(type.name);
    case 'pointer':
      return `${type.to}*`;
    case 'void':
      return 'void';
    case 'registers':
    case 'peers':
    case 'tensorMap':
      throw new HeddleError('HEDDLE_PRINT', `a value of type ${type.kind} cannot be used here`);
  }
}

export function valueName(type: IrType): ValueName {
  if (type.kind !== 'value') {
    throw new HeddleError('HEDDLE_PRINT', `a value is needed where the IR has a ${type.kind}`);
  }
  return type.name;
}

const storageNames: readonly ValueName[] = ['bf16', 'f16', 'e4m3'];
const namedTypes: readonly ValueName[] = ['u8', 'u16', ...storageNames, 'v16'];

/** An f32 literal: the shortest decimal text that reads back as the same value. */
function floatLiteral(prelude: Prelude, value: number): Text {
  if (Number.isNaN(value)) return primary(`${prelude.use('bits_f32')}(0x7fc00000u)`);
  if (!Number.isFinite(value)) {
    return primary(`${prelude.use('bits_f32')}(${value > 0 ? '0x7f800000u' : '0xff800000u'})`);
  }
  let digits = 1;
  while (digits < 17 && Math.fround(Number(value.toPrecision(digits))) !== value) digits++;
  const text = String(Number(value.toPrecision(digits)));
  const sign = Object.is(value, -0) ? '-' : '';
  const point = /[.e]/.test(text) ? '' : '.0';
  return negative(`${sign}${text}${point}f`);
}

/** A literal. Masks and powers of two are hexadecimal, as a person would write them. */
function unsignedLiteral(value: bigint): string {
  const hexadecimal = value.toString(16);
  return value > 0xffffn && /000|fff/.test(hexadecimal) ? `0x${hexadecimal}` : String(value);
}

function negative(text: string): Text {
  return { text, strength: text.startsWith('-') ? strength.unary : strength.primary };
}

function primary(text: string): Text {
  return { text, strength: strength.primary };
}

/** Operands of these get parentheses, because few readers know their precedence. */
const bitwise: readonly BinaryOp[] = ['&', '|', '^', '<<', '>>'];
const comparisons: readonly BinaryOp[] = ['<', '<=', '>', '>=', '==', '!='];
const associative: readonly BinaryOp[] = ['&', '|', '^', '&&', '||'];

export class Expressions {
  readonly #prelude: Prelude;
  readonly #scopes: Scopes;

  constructor(prelude: Prelude, scopes: Scopes) {
    this.#prelude = prelude;
    this.#scopes = scopes;
  }

  print(expr: Expr): string {
    return this.#text(expr).text;
  }

  /** Memory that a pointer names, as an lvalue: `tile[i]` or `*tile`. */
  place(pointer: Expr): string {
    if (pointer.kind === 'offset') {
      return `${this.#at(pointer.pointer, strength.primary)}[${this.print(pointer.index)}]`;
    }
    return `*${this.#at(pointer, strength.unary)}`;
  }

  /** The C++ type of a variable; includes its definition where it needs one. */
  type(type: IrType): string {
    const name = type.kind === 'value' ? heldName(type.name) : type.kind === 'pointer' ? type.to : undefined;
    if (name !== undefined && namedTypes.includes(name)) this.#prelude.use(name);
    return cppType(type);
  }

  /** The text, in parentheses if it binds less tightly than `least`. */
  #at(expr: Expr, least: number): string {
    return parenthesised(this.#text(expr), least);
  }

  #text(expr: Expr): Text {
    switch (expr.kind) {
      case 'const':
        return this.#constant(valueName(expr.type), expr.value);
      case 'variable':
        return primary(this.#scopes.nameOf(expr.variable));
      case 'builtin':
        return this.#builtin(expr.name);
      case 'unary':
        return this.#unary(expr.op, expr.type, expr.arg);
      case 'binary': {
        const known = settled(expr);
        return known === undefined ? this.#binary(expr.op, expr.left, expr.right) : primary(String(known));
      }
      case 'select':
        return {
          text: `${this.#at(expr.test, strength['||'])} ? ${this.#at(expr.then, strength['||'])} : ${this.#at(expr.else, strength.select)}`,
          strength: strength.select,
        };
      case 'pure':
        return this.#pure(expr.name, expr.args);
      case 'convert':
        return this.#convert(valueName(expr.type), expr.arg);
      case 'bits':
        return this.#bits(valueName(expr.type), expr.arg);
      case 'register':
        return primary(`${this.#scopes.nameOf(expr.array)}[${expr.index}]`);
      case 'array':
        return primary(this.#scopes.nameOf(expr.array));
      case 'lane':
        return this.#call(`lane_${valueName(expr.type)}`, [expr.vector, String(expr.index)]);
      case 'pack':
        // 32 bits of f32 are converted two at a time.
        return valueName(expr.type) === 'u32'
          ? this.#call(`${expr.of}x${expr.lanes.length}`, expr.lanes)
          : this.#pack(expr.of, expr.lanes);
      case 'offset':
        return {
          text: `${this.#at(expr.pointer, strength['+'])} + ${this.#at(expr.index, strength['*'])}`,
          strength: strength['+'],
          op: '+',
        };
      case 'index':
        return this.#text(expr.value);
      case 'view': {
        if (expr.type.kind !== 'pointer') throw new HeddleError('HEDDLE_PRINT', 'a view must be a pointer');
        this.type(expr.type);
        // Tiles are named by their elements.
        if (expr.pointer.type.kind === 'pointer' && expr.pointer.type.to === expr.type.to)
          return this.#text(expr.pointer);
        this.#prelude.use('as');
        return primary(`as<${expr.type.to}>(${this.print(expr.pointer)})`);
      }
      case 'field': {
        if (expr.type.kind !== 'pointer' || expr.window.type.kind !== 'peers') {
          throw new HeddleError('HEDDLE_PRINT', 'a field must be a pointer into a window');
        }
        this.type(expr.type);
        const offset = this.#scopes.offsetOf(expr.window.type.layout, expr.field);
        const window = this.#scopes.nameOf(expr.window);
        return primary(
          `${this.#prelude.use('peer')}<${expr.type.to}>(${window}, ${this.print(expr.rank)}, ${offset})`,
        );
      }
    }
  }

  /** A call of a helper. An argument is an expression, or its text. */
  #call(helper: string, args: readonly (Expr | string)[]): Text {
    const texts = args.map((arg) => (typeof arg === 'string' ? arg : this.print(arg)));
    return primary(`${this.#prelude.use(helper)}(${texts.join(', ')})`);
  }

  #constant(type: ValueName, value: number | bigint | boolean): Text {
    switch (type) {
      case 'bool':
        return primary(String(value));
      case 'f32':
        return floatLiteral(this.#prelude, Number(value));
      case 'u64':
        return primary(`${unsignedLiteral(BigInt.asUintN(64, BigInt(value)))}ull`);
      case 'u8':
      case 'u16':
      case 'u32':
        return primary(`${unsignedLiteral(BigInt(Number(value) >>> 0))}u`);
      case 'i32': {
        const integer = Number(value) | 0;
        // The literal 2147483648 would be a long before the minus reached it.
        return integer === -(2 ** 31) ? primary('(-2147483647 - 1)') : negative(String(integer));
      }
      default:
        throw new HeddleError('HEDDLE_PRINT', `there are no constants of type ${type}`);
    }
  }

  #builtin(name: (Expr & { kind: 'builtin' })['name']): Text {
    switch (name) {
      case 'laneId':
        return { text: 'threadIdx.x % 32u', strength: strength['%'], op: '%' };
      case 'warpId':
        return { text: 'threadIdx.x / 32u', strength: strength['/'], op: '/' };
      case 'rank':
        return primary('rank');
      default:
        return primary(`${name}.x`);
    }
  }

  #unary(op: UnaryOp, type: IrType, arg: Expr): Text {
    if (op === '-' && valueName(type) === 'i32') return primary(`i32(${this.#wrapping(arg, '-').text})`);
    // A space keeps -(-x) from becoming --x.
    const operand = this.#at(arg, strength.unary);
    return {
      text: operand.startsWith(op) ? `${op}(${operand})` : `${op}${operand}`,
      strength: strength.unary,
    };
  }

  #binary(op: BinaryOp, left: Expr, right: Expr): Text {
    const type = left.type.kind === 'value' ? left.type.name : 'u64';
    if (op === '/' || op === '%') return this.#division(op, type, left, right);
    if (type === 'i32' && (op === '+' || op === '-' || op === '*')) {
      return primary(`i32(${this.#unsigned({ kind: 'binary', type: left.type, op, left, right }).text})`);
    }
    if (op === '<<' || op === '>>') return this.#shift(op, type, left, right);
    const joined = join(op, this.#text(left), this.#text(right));
    return type === 'bool' && (op === '&' || op === '|' || op === '^')
      ? primary(`bool(${joined.text})`)
      : joined;
  }

  /**
   * An i32 expression as a u32 text with the same bits. Sums stay unsigned until their end, so that
   * a + b + c is converted once.
   */
  #unsigned(expr: Expr): Text {
    if (expr.kind === 'const') return this.#constant('u32', expr.value);
    if (expr.kind === 'unary' && expr.op === '-') return this.#wrapping(expr.arg, '-');
    if (expr.kind === 'binary' && (expr.op === '+' || expr.op === '-' || expr.op === '*')) {
      const { left, right } = expr;
      if (
        expr.op !== '*' &&
        right.kind === 'const' &&
        Number(right.value) < 0 &&
        Number(right.value) > -(2 ** 31)
      ) {
        return join(expr.op === '+' ? '-' : '+', this.#unsigned(left), primary(`${-Number(right.value)}u`));
      }
      return join(expr.op, this.#unsigned(left), this.#unsigned(right));
    }
    if (expr.kind === 'convert' && expr.arg.type.kind === 'value' && expr.arg.type.name === 'u32') {
      return this.#text(expr.arg);
    }
    return primary(`u32(${this.print(expr)})`);
  }

  #wrapping(arg: Expr, op: '-'): Text {
    return join(op, primary('0u'), this.#unsigned(arg));
  }

  #division(op: '/' | '%', type: ValueName, left: Expr, right: Expr): Text {
    if (type === 'f32') {
      if (op === '%') throw new HeddleError('HEDDLE_PRINT', 'f32 has no remainder');
      // Infinity or NaN is what is meant, but compilers remark on a zero that they see.
      if (right.kind === 'const' && right.value === 0) {
        return this.#call('divide_f32', [left, right]);
      }
      return join(op, this.#text(left), this.#text(right));
    }
    // A constant divisor leaves no case open, so the plain operator will do and hot code stays plain.
    const divisor = right.kind === 'const' ? BigInt(right.value) : 0n;
    if (divisor !== 0n && divisor !== -1n) return join(op, this.#text(left), this.#text(right));
    const helper = `${op === '/' ? 'divide' : 'remainder'}_${type}`;
    return this.#call(helper, [left, right]);
  }

  /** Counts are taken modulo the width: C++ leaves larger ones undefined. */
  #shift(op: '<<' | '>>', type: ValueName, left: Expr, right: Expr): Text {
    const mask = type === 'u64' ? 63 : 31;
    const count: Text =
      right.kind === 'const'
        ? primary(`${Number(BigInt(right.value) & BigInt(mask))}`)
        : join('&', this.#text(right), primary(`${mask}u`));
    if (type === 'i32' && op === '<<') return primary(`i32(${join(op, this.#unsigned(left), count).text})`);
    return join(op, this.#text(left), count);
  }

  #pure(name: PureFunction, args: readonly Expr[]): Text {
    const { cuda } = pureFunctions[name].forms[valueName(args[0]!.type)]!;
    const texts = args.map((arg) => this.print(arg));
    return primary(`${this.#prelude.add(cuda)}(${texts.join(', ')})`);
  }

  #convert(to: ValueName, arg: Expr): Text {
    const from = valueName(arg.type);
    const target = heldName(to);
    if (target === heldName(from)) return this.#text(arg);
    if (storageNames.includes(from)) {
      if (to !== 'f32') throw new HeddleError('HEDDLE_PRINT', `${from} converts to f32 only, not to ${to}`);
      if (from === 'e4m3' && arg.kind === 'lane') {
        return this.#call('lane_e4m3_f32', [arg.vector, String(arg.index)]);
      }
      return this.#call(`f32_of_${from}`, [arg]);
    }
    if (storageNames.includes(to)) {
      if (from !== 'f32') throw new HeddleError('HEDDLE_PRINT', `${to} is made of f32 only, not of ${from}`);
      return this.#call(`to_${to}`, [arg]);
    }
    if (to === 'bool')
      return { text: `${this.#at(arg, strength['<'])} != 0`, strength: strength['!='], op: '!=' };
    if (from === 'f32') return this.#call(`to_${target}`, [arg]);
    if (target === 'u32' && from === 'i32') return this.#unsigned(arg);
    return primary(`${target}(${this.print(arg)})`);
  }

  #bits(to: ValueName, arg: Expr): Text {
    const from = valueName(arg.type);
    if (from === to) return this.#text(arg);
    if (to === 'f32') return this.#call('bits_f32', [from === 'i32' ? this.#unsigned(arg).text : arg]);
    const unsigned = from === 'f32' ? this.#call('bits_u32', [arg]) : this.#unsigned(arg);
    return to === 'i32' ? primary(`i32(${unsigned.text})`) : unsigned;
  }

  #pack(of: ValueName, lanes: readonly Expr[]): Text {
    const size = of === 'bool' ? 0 : byteSize[of];
    if (lanes.length * size !== 16) {
      throw new HeddleError('HEDDLE_PRINT', `${lanes.length} lanes of ${of} do not make 16 bytes`);
    }
    if (!storageNames.includes(of)) return this.#call(`pack_${of}`, lanes);
    // All f32: convert two at a time. Otherwise the lanes' bits, each f32 among them converted alone.
    if (lanes.every((lane) => valueName(lane.type) === 'f32')) return this.#call(`pack_${of}_f32`, lanes);
    const bits = lanes.map((lane) =>
      valueName(lane.type) === of
        ? `${this.#at(lane, strength.primary)}.bits`
        : `${this.#convert(of, lane).text}.bits`,
    );
    return this.#call(of === 'e4m3' ? 'pack_u8' : 'pack_u16', bits);
  }
}

function parenthesised(text: Text, least: number): string {
  return text.strength >= least ? text.text : `(${text.text})`;
}

/** `left op right` with the parentheses that C++ needs and those that a reader would miss. */
function join(op: BinaryOp, left: Text, right: Text): Text {
  return {
    text: `${operand(op, left, false)} ${op} ${operand(op, right, true)}`,
    strength: strength[op],
    op,
  };
}

function operand(parent: BinaryOp, { text, strength: own, op }: Text, isRight: boolean): string {
  const same = op === parent && associative.includes(parent);
  const mixed = op !== undefined && op !== parent && (bitwise.includes(parent) || bitwise.includes(op));
  const compared = op !== undefined && comparisons.includes(parent) && comparisons.includes(op);
  const logical = (parent === '&&' || parent === '||') && (op === '&&' || op === '||') && op !== parent;
  const needed = isRight && !same ? own <= strength[parent] : own < strength[parent];
  return needed || mixed || compared || logical ? `(${text})` : text;
}
