/**
 * IR evaluated the plain way: BigInt for integers, Math.fround for f32, a tree walk for control flow, of one thread. What tests of the
 * lowering and of printed programs hold these against.
 */
import { bf16ToF32, e4m3ToF32, f16ToF32, f32ToBf16, f32ToE4m3, f32ToF16 } from '../../src/gpu/index.js';
import type { Constant } from '../../src/lang/arithmetic.js';
import type { BinaryOp, Effect, Expr, InlinedCall, IrModule, Stmt } from '../../src/lang/ir.js';
import { computePure } from '../../src/lang/operations/pure.js';
import { byteSize, type ComputeName, type ValueName } from '../../src/lang/types.js';

/** u64 as bigint, other numbers (storage types: their bits) as number, v16 as its bytes. */
export type Value = number | bigint | boolean | Uint8Array | Pointer;

/** Bytes, or elements of one type, and how many bytes are before it. */
export interface Pointer {
  readonly memory: DataView | (number | bigint)[];
  readonly offset: number;
}

/** What memory holds. */
type Element = Exclude<ValueName, 'bool'>;

type Environment = Map<number, Value | Value[]>;
type Outcome =
  | { readonly kind: 'next' | 'break' | 'continue' | 'return' }
  | { readonly kind: 'leave'; readonly call: InlinedCall };
const next: Outcome = { kind: 'next' };

export function run({ entry }: IrModule, args: readonly Value[]): void {
  execute(entry.body, new Map(entry.params.map(({ id }, i) => [id, args[i]!])));
}

/** Runs a kernel on arguments by flattened name; a pointer is an array of elements. */
export function evaluate(
  module: IrModule,
  args: Readonly<Record<string, Constant | (number | bigint)[]>>,
): void {
  const given = module.entry.params.map(({ name }) => args[name]!);
  run(
    module,
    given.map((value) => (Array.isArray(value) ? { memory: value, offset: 0 } : value)),
  );
}

function execute(body: readonly Stmt[], env: Environment): Outcome {
  for (const statement of body) {
    const outcome = step(statement, env);
    if (outcome.kind !== 'next') return outcome;
  }
  return next;
}

function step(statement: Stmt, env: Environment): Outcome {
  switch (statement.kind) {
    case 'let':
      if (statement.init !== null) env.set(statement.variable.id, compute(statement.init, env));
      return next;
    case 'assign':
      env.set(statement.variable.id, compute(statement.value, env));
      return next;
    case 'registers': {
      const { type } = statement.variable;
      const length = type.kind === 'registers' ? type.length : 0;
      env.set(statement.variable.id, Array<Value>(length).fill(compute(statement.fill, env)));
      return next;
    }
    case 'assignRegister': {
      (env.get(statement.array.id) as Value[])[statement.index] = compute(statement.value, env);
      return next;
    }
    case 'effect': {
      const result = perform(statement.effect, env);
      if (statement.result !== null) env.set(statement.result.id, result);
      return next;
    }
    case 'if':
      return execute(compute(statement.test, env) ? statement.then : statement.else, env);
    case 'for':
      execute(statement.init, env);
      return repeat(statement.test, statement.body, statement.update, env);
    case 'while':
      return repeat(statement.test, statement.body, [], env);
    case 'block': {
      const outcome = execute(statement.body, env);
      return outcome.kind === 'leave' && outcome.call === statement.call ? next : outcome;
    }
    case 'foreign':
      return execute(statement.twin, env);
    case 'leave':
      return { kind: 'leave', call: statement.call };
    default:
      return { kind: statement.kind };
  }
}

function repeat(test: Expr, body: readonly Stmt[], update: readonly Stmt[], env: Environment): Outcome {
  while (compute(test, env)) {
    const outcome = execute(body, env);
    if (outcome.kind === 'break') break;
    if (outcome.kind === 'return' || outcome.kind === 'leave') return outcome;
    execute(update, env);
  }
  return next;
}

function perform(effect: Effect, env: Environment): Value {
  switch (effect.op) {
    case 'load': {
      const { memory, offset } = compute(effect.pointer, env) as Pointer;
      return get(memory, offset, elementOf(effect.pointer));
    }
    case 'store': {
      const { memory, offset } = compute(effect.pointer, env) as Pointer;
      put(memory, offset, elementOf(effect.pointer), compute(effect.value, env));
      return 0;
    }
    default:
      throw new Error(`${effect.op} is not for one thread`);
  }
}

function elementOf(pointer: Expr): Element {
  if (pointer.type.kind !== 'pointer') throw new Error('not a pointer');
  return pointer.type.to;
}

function nameOf(expr: Expr): ValueName {
  if (expr.type.kind !== 'value') throw new Error(`not a value: ${expr.type.kind}`);
  return expr.type.name;
}

/** An element of memory, or a lane of a vector. */
function get(memory: Pointer['memory'], offset: number, type: ValueName): Value {
  if (Array.isArray(memory)) return memory[offset / byteSize[type as Element]]!;
  switch (type) {
    case 'u8':
    case 'e4m3':
      return memory.getUint8(offset);
    case 'u16':
    case 'bf16':
    case 'f16':
      return memory.getUint16(offset, true);
    case 'i32':
      return memory.getInt32(offset, true);
    case 'u32':
      return memory.getUint32(offset, true);
    case 'u64':
      return memory.getBigUint64(offset, true);
    case 'f32':
      return memory.getFloat32(offset, true);
    case 'v16':
      return new Uint8Array(memory.buffer.slice(memory.byteOffset + offset, memory.byteOffset + offset + 16));
    case 'bool':
      throw new Error('bool is not in memory');
  }
}

function put(memory: Pointer['memory'], offset: number, type: Element, value: Value): void {
  if (Array.isArray(memory)) memory[offset / byteSize[type]] = value as number | bigint;
  else if (value instanceof Uint8Array) {
    value.forEach((byte, i) => {
      memory.setUint8(offset + i, byte);
    });
  } else if (type === 'u64') memory.setBigUint64(offset, value as bigint, true);
  else if (type === 'f32') memory.setFloat32(offset, value as number, true);
  else if (type === 'u8' || type === 'e4m3') memory.setUint8(offset, value as number);
  else if (type === 'u16' || type === 'bf16' || type === 'f16')
    memory.setUint16(offset, value as number, true);
  else memory.setUint32(offset, value as number, true);
}

function compute(expr: Expr, env: Environment): Value {
  const of = (inner: Expr): Value => compute(inner, env);
  switch (expr.kind) {
    case 'const':
      return expr.value;
    case 'variable':
      return env.get(expr.variable.id) as Value;
    case 'builtin':
      return 0;
    case 'unary': {
      const arg = of(expr.arg);
      if (expr.op === '!') return !arg;
      if (nameOf(expr) === 'f32') return -(arg as number);
      return wrap(nameOf(expr), expr.op === '-' ? -big(arg) : ~big(arg));
    }
    case 'binary':
      return binary(expr.op, nameOf(expr.left), of(expr.left), of(expr.right));
    case 'select':
      return of(expr.test) ? of(expr.then) : of(expr.else);
    case 'pure':
      return computePure(expr.name, nameOf(expr) as ComputeName, expr.args.map(of) as Constant[]);
    case 'convert':
      return convert(nameOf(expr.arg), nameOf(expr), of(expr.arg));
    case 'bits': {
      const view = new DataView(new ArrayBuffer(4));
      put(view, 0, nameOf(expr.arg) as Element, of(expr.arg));
      return get(view, 0, nameOf(expr));
    }
    case 'register':
      return (env.get(expr.array.id) as Value[])[expr.index]!;
    case 'lane': {
      const bytes = of(expr.vector) as Uint8Array;
      const name = nameOf(expr) as Element;
      return get(new DataView(bytes.buffer), expr.index * byteSize[name], name);
    }
    case 'pack': {
      const bytes = new Uint8Array(16);
      const isWord = nameOf(expr) === 'u32';
      const of16 = expr.of as Element;
      expr.lanes.forEach((inner, i) => {
        const from = nameOf(inner);
        const same = from === of16 || !['bf16', 'f16', 'e4m3'].includes(of16);
        put(
          new DataView(bytes.buffer),
          i * byteSize[of16],
          of16,
          same ? of(inner) : convert(from, of16, of(inner)),
        );
      });
      return isWord ? new DataView(bytes.buffer).getUint32(0, true) : bytes;
    }
    case 'offset': {
      const { memory, offset } = of(expr.pointer) as Pointer;
      return { memory, offset: offset + Number(of(expr.index)) * byteSize[elementOf(expr)] };
    }
    case 'index':
      return compute(expr.value, env);
    case 'view':
      return of(expr.pointer);
    case 'array':
      throw new Error('operations that change register arrays are not for one thread');
    case 'field':
      throw new Error('windows are not for one thread');
  }
}

function big(value: Value): bigint {
  return BigInt(value as number | bigint | boolean);
}

function wrap(type: ValueName, value: bigint): Value {
  if (type === 'u64') return BigInt.asUintN(64, value);
  return Number(type === 'i32' ? BigInt.asIntN(32, value) : BigInt.asUintN(32, value));
}

function binary(op: BinaryOp, type: ValueName, left: Value, right: Value): Value {
  switch (op) {
    case '==':
      return left === right;
    case '!=':
      return left !== right;
    case '<':
      return left < right;
    case '<=':
      return left <= right;
    case '>':
      return left > right;
    case '>=':
      return left >= right;
    case '&&':
      return Boolean(left) && Boolean(right);
    case '||':
      return Boolean(left) || Boolean(right);
    default:
  }
  if (type === 'f32') {
    const [a, b] = [left as number, right as number];
    return Math.fround(op === '+' ? a + b : op === '-' ? a - b : op === '*' ? a * b : a / b);
  }
  const [a, b] = [big(left), big(right)];
  const count = b & (type === 'u64' ? 63n : 31n);
  switch (op) {
    case '+':
      return wrap(type, a + b);
    case '-':
      return wrap(type, a - b);
    case '*':
      return wrap(type, a * b);
    case '/':
      return wrap(type, b === 0n ? -1n : a / b);
    case '%':
      return wrap(type, b === 0n ? a : a % b);
    case '&':
      return wrap(type, a & b);
    case '|':
      return wrap(type, a | b);
    case '^':
      return wrap(type, a ^ b);
    case '<<':
      return wrap(type, a << count);
    default:
      return wrap(type, a >> count);
  }
}

function convert(from: ValueName, to: ValueName, value: Value): Value {
  if (from === to) return value;
  const number = value as number;
  if (from === 'bf16') return bf16ToF32(number);
  if (from === 'f16') return f16ToF32(number);
  if (from === 'e4m3') return e4m3ToF32(number);
  if (to === 'bf16') return f32ToBf16(number);
  if (to === 'f16') return f32ToF16(number);
  if (to === 'e4m3') return f32ToE4m3(number);
  if (to === 'bool') return from === 'f32' ? number !== 0 : big(value) !== 0n;
  if (to === 'f32') return from === 'u64' ? nearestF32(value as bigint) : Math.fround(Number(value));
  if (from !== 'f32') return wrap(to, big(value));
  if (Number.isNaN(number)) return wrap(to, 0n);
  const [low, high] =
    to === 'i32' ? [-(2n ** 31n), 2n ** 31n] : to === 'u32' ? [0n, 2n ** 32n] : [0n, 2n ** 64n];
  if (number >= Number(high)) return wrap(to, high - 1n);
  return wrap(to, number <= Number(low) ? low : BigInt(Math.trunc(number)));
}

/** Of the two f32 around it the nearer one, of two equally near the even one. */
function nearestF32(value: bigint): number {
  const drop = BigInt(Math.max(value.toString(2).length - 24, 0));
  const kept = value >> drop;
  const rest = value - (kept << drop);
  const half = drop === 0n ? 1n : 1n << (drop - 1n);
  const up = rest > half || (rest === half && (kept & 1n) === 1n) ? 1n : 0n;
  return Number((kept + up) << drop);
}
