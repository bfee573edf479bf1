/**
 * Pure expressions as JavaScript. Every scalar is one expression; a v16 is four, one a word; a pointer is a buffer
 * and a byte offset.
 *
 * i32 and u32 are both signed in locals (see arithmetic.ts): `+ - * & | ^ << ==` do not care, the rest says `>>> 0`.
 */
import {
  byteSize,
  type Expr,
  type PureFunction,
  pureFunctions,
  pureNames,
  type ValueName,
  type Variable,
} from '../../../lang/index.js';
import type { IndexedPlace } from '../compiled.js';
import { literal, type Named, unsigned } from '../text.js';
import type { Bounds, Locals } from './locals.js';

export type Words = readonly [string, string, string, string];
export interface Address {
  readonly buffer: string;
  readonly offset: string;
}

const identifier = /^[A-Za-z_$][\w$]*$|^-?\d+$/;

export function valueName(e: Expr): ValueName {
  if (e.type.kind !== 'value') throw new Error(`a ${e.type.kind} is not a value`);
  return e.type.name;
}

/** The function that is printed, as those see it who print its parts. */
export interface Printing {
  readonly checked: boolean;
  readonly inCluster: boolean;
  readonly locals: Locals;
  readonly named: Named;
  emit(line: string): void;
  /** The number of the statement that is printed. */
  site(): number;
  /** The loop around it may wait for other threads. */
  polls(): void;
}

export class Expressions {
  readonly #in: Printing;

  constructor(printing: Printing) {
    this.#in = printing;
  }

  /** The text as something that is cheap to repeat. */
  simple(text: string, kind: 'i' | 'q' | 'b' | 'n'): string {
    if (identifier.test(text)) return text;
    const name = this.#in.locals.temporary(kind);
    this.#in.emit(`${name} = ${text};`);
    return name;
  }

  scalar(e: Expr): string {
    switch (e.kind) {
      case 'const':
        return constant(e.value, valueName(e));
      case 'variable':
        return this.#in.locals.slot(e.variable, 'scalar').name;
      case 'builtin':
        return e.name;
      case 'unary':
        return this.#unary(e);
      case 'binary':
        return this.#binary(e);
      case 'select':
        return `(${this.scalar(e.test)} ? ${this.scalar(e.then)} : ${this.scalar(e.else)})`;
      case 'pure':
        return this.#pure(e);
      case 'convert':
        return this.#convert(e.arg, valueName(e));
      case 'bits':
        return this.#reinterpret(this.scalar(e.arg), valueName(e.arg), valueName(e));
      case 'register':
        this.touch(e.array);
        return this.#in.locals.slot(e.array, 'registers').elements[e.index]![0]!;
      case 'lane':
        return this.#lane(this.words(e.vector), valueName(e), e.index);
      case 'pack':
        return joined(e.lanes.map((lane) => this.convertText(this.scalar(lane), valueName(lane), e.of)));
      default:
        throw new Error(`${e.kind} is not a scalar`);
    }
  }

  /** Says in checked mode that sums of products are read or written. */
  touch(array: Variable): void {
    if (!this.#in.checked || !this.#in.locals.arrays.includes(array)) return;
    this.#in.emit(`t.products.touch(${this.#in.locals.arrayOf(array)}, ${this.#in.site()});`);
  }

  /** A tensorMap: only parameters are any. */
  tensor(e: Expr): string {
    if (e.kind !== 'variable') throw new Error(`${e.kind} is no tensorMap`);
    return this.#in.locals.slot(e.variable, 'tensorMap').name;
  }

  #unary(e: Extract<Expr, { kind: 'unary' }>): string {
    const a = this.scalar(e.arg);
    if (e.op === '!') return `(!${a})`;
    const type = valueName(e);
    if (type === 'f32') return `(-${a})`;
    if (type === 'u64') return `u64(${e.op}${a})`;
    return e.op === '~' ? `(~${a})` : `(-${a} | 0)`;
  }

  #binary(e: Extract<Expr, { kind: 'binary' }>): string {
    const type = valueName(e.left);
    const a = this.scalar(e.left);
    const b = this.scalar(e.right);
    switch (e.op) {
      case '&&':
      case '||':
        return `(${a} ${e.op} ${b})`;
      case '==':
        return `(${a} === ${b})`;
      case '!=':
        return `(${a} !== ${b})`;
      case '<':
      case '<=':
      case '>':
      case '>=':
        return type === 'u32' ? `(${unsigned(a)} ${e.op} ${unsigned(b)})` : `(${a} ${e.op} ${b})`;
      default:
    }
    if (type === 'f32') return `fround(${a} ${e.op} ${b})`;
    if (type === 'bool') {
      if (e.op === '^') return `(${a} !== ${b})`;
      return `(${a} ${e.op === '&' ? '&&' : '||'} ${b})`;
    }
    if (type === 'u64') return this.#long(e.op, a, b);
    switch (e.op) {
      case '*':
        return `imul(${a}, ${b})`;
      case '/':
      case '%':
        return this.#divide(e.op, type === 'u32', a, b, e.right);
      case '>>':
        return type === 'u32' ? `(${a} >>> ${b} | 0)` : `(${a} >> ${b})`;
      case '+':
      case '-':
        return `(${a} ${e.op} ${b} | 0)`;
      default:
        return `(${a} ${e.op} ${b})`;
    }
  }

  #divide(op: '/' | '%', isUnsigned: boolean, a: string, b: string, by: Expr): string {
    if (by.kind === 'const') {
      const n = Number(by.value);
      if (isUnsigned && n > 0 && (n & (n - 1)) === 0 && n < 2 ** 31) {
        return op === '/' ? `(${a} >>> ${31 - Math.clz32(n)} | 0)` : `(${a} & ${n - 1})`;
      }
      if (isUnsigned && n > 0) return `(${unsigned(a)} ${op} ${n} | 0)`;
      if (!isUnsigned && n > 0) return `(${a} ${op} ${n} | 0)`;
    }
    return `${isUnsigned ? 'u' : 'i'}${op === '/' ? 'div' : 'rem'}(${a}, ${b})`;
  }

  #long(op: string, a: string, b: string): string {
    switch (op) {
      case '/':
        return `ldiv(${a}, ${b})`;
      case '%':
        return `lrem(${a}, ${b})`;
      case '<<':
        return `u64(${a} << big(${b} & 63))`;
      case '>>':
        return `(${a} >> big(${b} & 63))`;
      case '&':
      case '|':
      case '^':
        return `(${a} ${op} ${b})`;
      default:
        return `u64(${a} ${op} ${b})`;
    }
  }

  #pure(e: Extract<Expr, { kind: 'pure' }>): string {
    const type = valueName(e);
    const texts = e.args.map((arg) => this.scalar(arg));
    return (
      pureFunctions[e.name].forms[type]!.inline?.(...texts) ?? `${callOf(e.name, type)}(${texts.join(', ')})`
    );
  }

  #convert(arg: Expr, to: ValueName): string {
    const from = valueName(arg);
    // The two halves of a word need no detour through 16 bits.
    if (arg.kind === 'lane' && from === 'bf16' && to === 'f32') {
      const word = this.words(arg.vector)[arg.index >> 1]!;
      return floatFrom(arg.index & 1 ? `${word} & -65536` : `${word} << 16`);
    }
    return this.convertText(this.scalar(arg), from, to);
  }

  convertText(a: string, from: ValueName, to: ValueName): string {
    if (from === to) return a;
    switch (to) {
      case 'i32':
      case 'u32':
        if (from === 'bool') return `(${a} ? 1 : 0)`;
        if (from === 'f32') return `${to === 'i32' ? 'f32ToI32' : 'f32ToU32'}(${a})`;
        if (from === 'u64') return `u32of(${a})`;
        return a;
      case 'u8':
        return `(${this.convertText(a, from, 'u32')} & 255)`;
      case 'u16':
        return `(${this.convertText(a, from, 'u32')} & 65535)`;
      case 'u64':
        if (from === 'bool') return `(${a} ? 1n : 0n)`;
        if (from === 'f32') return `f32ToU64(${a})`;
        return from === 'i32' ? `u64(big(${a}))` : `big(${unsigned(a)})`;
      case 'f32':
        if (from === 'bool') return `(${a} ? 1 : 0)`;
        if (from === 'i32') return `fround(${a})`;
        if (from === 'u64') return `u64ToF32(${a})`;
        if (from === 'bf16' || from === 'f16' || from === 'e4m3') return `${from}ToF32(${a})`;
        return `fround(${unsigned(a)})`;
      case 'bool':
        return from === 'u64' ? `(${a} !== 0n)` : `(${a} !== 0)`;
      case 'bf16':
      case 'f16':
      case 'e4m3':
        return `f32To${to[0]!.toUpperCase()}${to.slice(1)}(${this.convertText(a, from, 'f32')})`;
      case 'v16':
        throw new Error('nothing converts to v16');
    }
  }

  #reinterpret(a: string, from: ValueName, to: ValueName): string {
    if (from === 'f32' && to !== 'f32') return bitsOf(a);
    if (to === 'f32' && from !== 'f32') return floatFrom(a);
    return a;
  }

  #lane(words: Words, type: ValueName, index: number): string {
    switch (type) {
      case 'f32':
        return floatFrom(words[index]!);
      case 'u64':
        return `u64FromHalves(${words[2 * index]}, ${words[2 * index + 1]})`;
      default:
    }
    switch (byteSize[type as Exclude<ValueName, 'bool'>]) {
      case 2:
        return index & 1 ? `(${words[index >> 1]} >>> 16)` : `(${words[index >> 1]} & 65535)`;
      case 1: {
        const word = words[index >> 2];
        return (index & 3) === 3 ? `(${word} >>> 24)` : `(${word} >>> ${8 * (index & 3)} & 255)`;
      }
      default:
        return words[index]!;
    }
  }

  words(e: Expr): Words {
    switch (e.kind) {
      case 'variable':
        return this.#in.locals.slot(e.variable, 'v16').words;
      case 'register':
        return this.#in.locals.slot(e.array, 'registers').elements[e.index] as unknown as Words;
      case 'pack':
        return this.#pack(e);
      case 'select': {
        const test = this.simple(this.scalar(e.test), 'b');
        const a = this.words(e.then);
        const b = this.words(e.else);
        return [0, 1, 2, 3].map((i) => `(${test} ? ${a[i]} : ${b[i]})`) as unknown as Words;
      }
      case 'const':
        // The only constant of this type is the vector of zeros.
        return ['0', '0', '0', '0'];
      default:
        throw new Error(`${e.kind} is not a vector`);
    }
  }

  #pack(e: Extract<Expr, { kind: 'pack' }>): Words {
    const lanes = e.lanes.map((lane) => {
      const text = this.scalar(lane);
      const from = valueName(lane);
      if (e.of === 'f32') return bitsOf(this.convertText(text, from, 'f32'));
      return from === e.of ? text : this.convertText(text, from, e.of);
    });
    if (e.of === 'u64') {
      return [0, 1].flatMap((i) => {
        const x = this.simple(lanes[i]!, 'n');
        return [`u32of(${x})`, `u32of(${x} >> 32n)`];
      }) as unknown as Words;
    }
    const perWord = lanes.length / 4;
    return [0, 1, 2, 3].map((i) => joined(lanes.slice(perWord * i, perWord * (i + 1)))) as unknown as Words;
  }

  address(e: Expr): Address {
    switch (e.kind) {
      case 'variable':
        return this.#in.locals.slot(e.variable, 'pointer');
      case 'view':
        return this.address(e.pointer);
      case 'offset': {
        const { buffer, offset } = this.address(e.pointer);
        if (e.type.kind !== 'pointer') throw new Error('an offset is a pointer');
        return { buffer, offset: this.#advance(offset, e.index, byteSize[e.type.to]) };
      }
      case 'field': {
        const { buffers, offsets } = this.#in.locals.slot(e.window, 'peers');
        const rank = this.simple(this.scalar(e.rank), 'i');
        return {
          // In checked mode a rank outside the node is a finding at the access, not a crash here.
          buffer: this.#in.checked ? `(${buffers}[${rank}] ?? noWindow)` : `${buffers}[${rank}]`,
          offset: this.#add(
            this.#in.checked ? `(${offsets}[${rank}] ?? 0)` : `${offsets}[${rank}]`,
            e.field.offset,
          ),
        };
      }
      case 'select': {
        const test = this.simple(this.scalar(e.test), 'b');
        const a = this.address(e.then);
        const b = this.address(e.else);
        return {
          buffer: `(${test} ? ${a.buffer} : ${b.buffer})`,
          offset: `(${test} ? ${a.offset} : ${b.offset})`,
        };
      }
      default:
        throw new Error(`${e.kind} is not a pointer`);
    }
  }

  /** The field of a window that a pointer is of, in checked mode and where that is known. */
  boundsOf(e: Expr): Bounds | null {
    if (!this.#in.checked) return null;
    switch (e.kind) {
      case 'variable':
        return this.#in.locals.boundsOf(e.variable);
      case 'field': {
        const { offsets } = this.#in.locals.slot(e.window, 'peers');
        const base = `(${offsets}[${this.scalar(e.rank)}] ?? 0)`;
        return { start: this.#add(base, e.field.offset), field: e.field, strays: false };
      }
      case 'view': {
        const bounds = this.boundsOf(e.pointer);
        return bounds && { ...bounds, strays: bounds.strays || bytesAt(e) > bytesAt(e.pointer) };
      }
      case 'offset': {
        const bounds = this.boundsOf(e.pointer);
        const known = e.index.kind === 'index' || (e.pointer.kind === 'field' && e.index.kind === 'const');
        return bounds && { ...bounds, strays: bounds.strays || !known };
      }
      default:
        return null;
    }
  }

  /** The address of an access to `pointer`: nowhere, if that lies outside the field of the window that it is of. */
  place(pointer: Expr): Address {
    const { buffer, offset } = this.address(pointer);
    const bounds = this.boundsOf(pointer);
    if (!bounds?.strays) return { buffer, offset };
    const { name, type, length } = bounds.field;
    const bytes = bytesAt(pointer);
    const within = this.#in.locals.temporary('i');
    this.#in.emit(`${within} = ${offset} - ${bounds.start};`);
    const all = length * byteSize[type];
    const strayed = `t.strayed(${JSON.stringify(name)}, ${all}, ${bytes}, ${within}, ${this.#in.site()})`;
    const inside = `${within} >= 0 && ${within} <= ${all - bytes}`;
    return { buffer, offset: `(${inside} ? ${within} + ${bounds.start} : ${strayed})` };
  }

  /** Fast mode wraps at 32 bits, which a view's index undoes; checked mode is exact, so that no overrun wraps. */
  #advance(offset: string, index: Expr, size: number): string {
    if (index.kind === 'const') return this.#add(offset, Number(index.value) * size);
    if (index.kind === 'index')
      return this.#in.checked ? this.#within(offset, index, size) : this.#advance(offset, index.value, size);
    const i = this.scalar(index);
    if (this.#in.checked) {
      const exact = valueName(index) === 'u32' ? unsigned(i) : i;
      return `(${offset} + ${size === 1 ? exact : `${exact} * ${size}`})`;
    }
    if (size === 1) return `(${offset} + ${i} | 0)`;
    return `(${offset} + (${i} << ${31 - Math.clz32(size)}) | 0)`;
  }

  /** Inside the shape of the field, or nowhere. */
  #within(offset: string, { value, indices, extents, of }: Expr & { kind: 'index' }, size: number): string {
    const names = indices.map((index) => unsigned(this.scalar(index)));
    const inside = names.map((name, i) => `${name} < ${extents[i]}`).join(' && ');
    const { field, layout, before } = of;
    const place: IndexedPlace = { layout, field: field.name, before, dimensions: field.dimensions, extents };
    const outside = `t.outside(${JSON.stringify(place)}, [${names.join(', ')}], ${this.#in.site()})`;
    return `(${inside} ? ${this.#advance(offset, value, size)} : ${outside})`;
  }

  #add(offset: string, bytes: number): string {
    if (bytes === 0) return offset;
    if (/^\d+$/.test(offset)) return String(Number(offset) + bytes);
    return this.#in.checked ? `(${offset} + ${bytes})` : `(${offset} + ${bytes} | 0)`;
  }
}

/** A word of one, two or four lanes. */
function joined(lanes: readonly string[]): string {
  if (lanes.length === 1) return lanes[0]!;
  const bits = 32 / lanes.length;
  return `(${lanes.map((lane, i) => (i === 0 ? lane : `${lane} << ${i * bits}`)).join(' | ')})`;
}

/** Size of what a pointer points at. */
function bytesAt(pointer: Expr): number {
  if (pointer.type.kind !== 'pointer') throw new Error(`a ${pointer.type.kind} is no pointer`);
  return byteSize[pointer.type.to];
}

/** The name of a pure function in generated code: `ffs`; `umin`, where it has several types. */
function callOf(name: PureFunction, type: string): string {
  if (Object.keys(pureFunctions[name].forms).length === 1) return name;
  return `${type === 'u32' ? 'u' : type === 'u64' ? 'l' : type === 'f32' ? 'f' : ''}${name}`;
}

export const pureCalls: Readonly<Record<string, unknown>> = Object.fromEntries(
  pureNames.flatMap((name) =>
    Object.entries(pureFunctions[name].forms).map(([type, { compute }]) => [callOf(name, type), compute]),
  ),
);

/** Through memory that both types share, written out: large kernels exceed what V8 inlines. */
export const floatFrom = (word: string): string => `(scratchWord[0] = ${word}, scratchFloat[0])`;
export const bitsOf = (float: string): string => `(scratchFloat[0] = ${float}, scratchWord[0])`;

function constant(value: number | bigint | boolean, type: ValueName): string {
  switch (type) {
    case 'bool':
      return value ? 'true' : 'false';
    case 'u64':
      return `${BigInt.asUintN(64, BigInt(value))}n`;
    case 'f32':
      return literal(Math.fround(Number(value)));
    case 'bf16':
    case 'f16':
    case 'e4m3':
      throw new Error(`a constant of type ${type} must be written as a conversion`);
    default:
      return literal(Number(BigInt.asIntN(32, BigInt(value))));
  }
}
