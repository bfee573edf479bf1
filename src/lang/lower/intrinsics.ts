/**
 * The translation of each function of `g`. Operations say that themselves (operations/); here are those that belong to the
 * language, whose signatures are in gpu.ts: types make sure that neither has what the other lacks.
 */

import { HeddleError } from '../../base/errors.js';
import { heldName, heldType } from '../arithmetic.js';
import * as build from '../build.js';
import type { Code } from '../diagnostics.js';
import type { Gpu } from '../gpu.js';
import { registerNames } from '../header.js';
import type { Builtin, Expr } from '../ir.js';
import { printedTypes } from '../operations/debug.js';
import {
  type KernelFunctions,
  type OperationEffect,
  type OperationName,
  operationNames,
  operations,
} from '../operations/index.js';
import type { like, Operand } from '../operations/operation.js';
import { type PureFunction, pureFunctions, pureNames } from '../operations/pure.js';
import { byteSize, type IrType, type MemoryName, type ValueName } from '../types.js';
import { isExpr } from '../walk.js';
import type { Call } from './call.js';
import { anyValue, condition, constantText, select, unify, valueAs } from './coerce.js';
import type { Declared } from './context.js';
import { type Argument, expression, shown, type Value } from './values.js';

type Lowering = (call: Call) => Value;

/** The functions of `g` that are no operations. */
type Functions = {
  [K in keyof Gpu]: Gpu[K] extends (...args: never[]) => unknown ? K : never;
}[Exclude<keyof Gpu, keyof KernelFunctions>];

export const builtins: Readonly<Record<string, Builtin>> = {
  'threadIdx.x': 'threadIdx',
  'blockIdx.x': 'blockIdx',
  'blockDim.x': 'blockDim',
  'gridDim.x': 'gridDim',
  laneId: 'laneId',
  warpId: 'warpId',
  rank: 'rank',
};
/** The function that stands in the head of a loop only; statements.ts lowers it there. */
export const unroll = 'unroll';
const mostRegisters = 256;
/** Most elements of an array in shared memory. The bytes of all arrays together are checked once all of them are known. */
const mostElements = 2 ** 20;

const conversions = ['i32', 'u32', 'u64', 'f32', 'bf16', 'f16', 'e4m3'] as const;
type Conversion = (typeof conversions)[number];

function convertTo(name: Conversion, index = 0): Lowering {
  return (call) => {
    call.expect(index === 0 ? 'value' : 'type, value');
    const { node, value } = call.arg(index);
    const type = build.valueType(name);
    if (name === 'bf16' || name === 'f16' || name === 'e4m3') {
      return expression(build.convert(type, call.as(index, build.f32)));
    }
    if (value.kind === 'literal') {
      if (name === 'f32') {
        // The nearest f32, also for an integer too large for any integer type.
        return expression(build.constant('f32', Math.fround(Number(value.value))));
      }
      if (typeof value.value === 'bigint' || Number.isInteger(value.value)) {
        const bits = BigInt.asUintN(64, BigInt(value.value));
        return expression(build.convert(type, build.constant('u64', bits)));
      }
    }
    const from = anyValue(call.ctx, { node, value });
    const source = build.valueName(from.type);
    const storage = source === 'bf16' || source === 'f16' || source === 'e4m3';
    if (source === undefined || source === 'v16' || (storage && name !== 'f32')) {
      const hint = storage ? `; write g.${name}(g.f32(${call.ctx.text(node)}))` : '';
      return call.fail('HK305', `${call.name} cannot convert ${build.showType(from.type)}${hint}`, node);
    }
    return expression(build.convert(type, from));
  };
}

function pure(name: PureFunction): Lowering {
  const { forms } = pureFunctions[name];
  const types = Object.keys(forms).filter(build.isComputeName);
  const [only, ...others] = types.map(build.valueType);
  const operands = ['a', 'b', 'c'].slice(0, forms[types[0]!]!.compute.length);
  return (call) => {
    call.expect(operands.join(', '));
    const args =
      only !== undefined && others.length === 0
        ? operands.map((_, i) => call.as(i, only))
        : unify(call.ctx, call.node, call.arg(0), call.arg(1));
    const { type } = args[0]!;
    if (!types.some((name) => name === build.valueName(type))) {
      call.fail('HK305', `${call.name} works on ${types.join(', ')}, not on ${build.showType(type)}`);
    }
    return expression(build.pure(name, type, args));
  };
}

const lanesOf = (name: MemoryName): number => 16 / byteSize[name];

const listed = (call: Call, items: readonly Value[], of: MemoryName, type: IrType): readonly Expr[] =>
  items.map((value) => valueAs(call.ctx, { ...call.arg(1), value }, type, `for a lane of ${of}`));

function packLanes(call: Call, of: MemoryName): readonly Expr[] {
  const { node, value } = call.arg(1);
  const count = lanesOf(of);
  const held = heldName(of);
  if (value.kind !== 'list' && value.kind !== 'registers')
    return call.fail('HK305', `the lanes must be an array of ${count} values, or a register array`, node);
  const given = value.kind === 'list' ? value.items.length : value.length;
  if (given !== count) call.fail('HK305', `a v16 has ${count} lanes of ${of}, but ${given} are given`, node);
  if (value.kind === 'list') return listed(call, value.items, of, build.valueType(held));
  const { of: from, variable: array } = value;
  if (from !== held && !(from === 'f32' && ['bf16', 'f16', 'e4m3'].includes(of)))
    call.fail('HK301', `lanes of ${of} cannot be filled from ${from} registers`, node);
  const type = build.valueType(from);
  return Array.from({ length: count }, (_, index) => ({ kind: 'register', type, array, index }));
}

const values: Readonly<Record<Exclude<Functions, typeof unroll>, Lowering>> = {
  ...(Object.fromEntries(conversions.map((name) => [name, convertTo(name)])) as Record<Conversion, Lowering>),
  convert(call) {
    call.expect('type, value');
    return convertTo(call.word(0, 'the type', conversions), 1)(call);
  },
  bits(call) {
    call.expect('type, value');
    const type = call.memoryName(0);
    if (type !== 'i32' && type !== 'u32' && type !== 'f32') {
      return call.fail('HK305', `g.bits makes i32, u32 or f32, not ${type}`, call.arg(0).node);
    }
    return expression(build.bits(type, call.oneOf(1, 'i32', 'u32', 'f32')));
  },

  select(call) {
    call.expect('test, then, otherwise');
    const test = condition(call.ctx, call.arg(0));
    return select(call.ctx, call.node, test, call.arg(1), call.arg(2));
  },

  lane(call) {
    call.expect('vector, type, index');
    const vector = call.as(0, build.v16);
    const of = call.memoryName(1);
    if (of === 'v16') return call.fail('HK305', 'a lane is smaller than the vector', call.arg(1).node);
    const index = call.constant(2, 'the lane', lanesOf(of) - 1);
    const lane: Expr = { kind: 'lane', type: build.valueType(of), vector, index };
    return expression(build.convert(build.valueType(heldName(of)), lane));
  },
  pack(call) {
    call.expect('type, lanes');
    const of = call.memoryName(0);
    if (of === 'v16') return call.fail('HK305', 'a lane is smaller than the vector', call.arg(0).node);
    return expression({ kind: 'pack', type: build.v16, of, lanes: packLanes(call, of) });
  },
  word(call) {
    call.expect('type, lanes');
    const of = call.word(0, 'the type of the lanes', ['bf16', 'f16', 'e4m3']);
    const { node, value } = call.arg(1);
    const count = 4 / byteSize[of];
    if (value.kind !== 'list' || value.items.length !== count)
      return call.fail(
        'HK305',
        `the lanes must be an array of ${count} f32, which make 32 bits of ${of}`,
        node,
      );
    return expression({
      ...{ kind: 'pack', type: build.u32, of },
      lanes: listed(call, value.items, of, build.f32),
    });
  },

  shared(call) {
    const { ctx } = call;
    const into = constOf(call, 'HK602');
    const { value: of } = call.arg(0);
    call.expect(of.kind === 'tile' ? 'tile, count?' : 'type, length');
    const type =
      of.kind === 'tile' ? build.tileType(of.tile) : build.pointerType(call.memoryName(0), 'shared');
    const count = of.kind === 'tile' && !call.has(1) ? 1 : positive(call, 1, mostElements);
    const length = of.kind === 'tile' ? count * of.tile.rows * of.tile.columns : count;
    const variable = ctx.variable(into.name, type);
    ctx.module.shared.push({ variable, length, span: ctx.span(into.node) });
    into.variable = variable;
    return expression(ctx.read(variable));
  },
  registers(call) {
    const { ctx } = call;
    const into = constOf(call, 'HK603');
    call.expect('type, length, fill?');
    const of = heldName(call.word(0, 'the type of registers', registerNames));
    const length = positive(call, 1, mostRegisters);
    const fill = call.has(2) ? call.as(2, build.valueType(of)) : build.zero(of);
    const variable = ctx.variable(into.name, { kind: 'registers', of, length }, true);
    ctx.emit({ kind: 'registers', span: ctx.span(into.node), variable, fill });
    into.variable = variable;
    return { kind: 'registers', variable, of, length };
  },
};

/** The const that memory must be. */
function constOf(call: Call, code: Code): Declared {
  const { into, name } = call;
  if (into !== undefined && into !== 'nowhere' && !into.mutable) return into;
  return call.fail(code, `declare it as const name = ${name}(type, length)`);
}

function positive(call: Call, index: number, max: number): number {
  const length = call.constant(index, 'the length', max);
  return length > 0
    ? length
    : call.fail('HK502', 'the length is 0; it must be at least 1', call.arg(index).node);
}

/** Every function of `g`, by its path: 'load', 'warp.ballot'. */
export const intrinsics: Readonly<Record<string, Lowering>> = {
  ...values,
  ...Object.fromEntries(pureNames.map((name) => [name, pure(name)])),
  ...Object.fromEntries(operationNames.map((name) => [name, lowerOperation(name)])),
};

/** Members of `g` that are groups of functions: `warp`, `bulk`, … */
export const groups: ReadonlySet<string> = new Set(
  [...Object.keys(builtins), ...Object.keys(intrinsics)]
    .filter((path) => path.includes('.'))
    .map((path) => path.slice(0, path.indexOf('.'))),
);

/** Calls of operations, lowered as their entries in operations/ say. */

type Kept = Record<string, Expr | readonly (string | Expr)[] | string | number>;

export function lowerOperation(op: OperationName): (call: Call) => Value {
  const { takes, options = {}, returns, named = '' } = operations[op];
  const names = Object.keys(takes);
  const [first] = Object.values(options);
  const optional = first !== undefined && 'otherwise' in first && first.otherwise !== undefined ? '?' : '';
  const shape = [
    ...names.map((name) => (takes[name]!.kind === 'words' ? `...${name}` : name)),
    ...(first === undefined ? [] : [`options${optional}`]),
  ].join(', ');
  return (call) => {
    call.expect(shape);
    const kept: Kept = {};
    for (const [i, [name, operand]] of Object.entries(takes).entries()) {
      kept[name] = argument(call, i, name, operand, kept);
    }
    const given = first === undefined ? undefined : call.args[names.length];
    const { entries, nodes } = optionsOf(call, given, names.length, Object.keys(options));
    for (const [name, operand] of Object.entries(options)) {
      const value = entries.get(name);
      const node = nodes?.get(name) ?? given?.node ?? call.node;
      kept[name] = option(call, name, operand, value && { node, value }, kept);
    }
    // The fields are those of the entry, which is where the effect's type comes from.
    const effect = { op, ...kept } as OperationEffect;
    const wrong = refusal(effect);
    if (wrong !== undefined) call.fail('HK305', `${call.name}: ${wrong}`);
    const result = returns === 'void' ? build.voidType : typeOf(returns, kept);
    return call.effect(effect, result, named);
  };
}

function optionsOf(
  call: Call,
  given: Argument | undefined,
  index: number,
  names: readonly string[],
): Pick<Value & { kind: 'record' }, 'entries' | 'nodes'> {
  if (given === undefined) return { entries: new Map() };
  const { node, value } = given;
  if (value.kind !== 'record') return call.wrong(index, `{ ${names.join(', ')} }`);
  for (const key of value.entries.keys())
    if (!names.includes(key))
      call.fail('HK402', `${call.name} has no option ${key}; it has ${names.join(', ')}`, node);
  return value;
}

function option(
  call: Call,
  name: string,
  operand: Operand,
  given: Argument | undefined,
  kept: Kept,
): Kept[string] {
  if (operand.kind === 'choice') {
    if (given !== undefined) return constantText(call.ctx, given, `the option ${name}`, operand.of);
    // A weak access synchronises with nobody, so it needs no scope; any other must say how far it reaches.
    const otherwise = name === 'scope' && kept.order === 'weak' ? 'cta' : operand.otherwise;
    return (
      otherwise ?? call.fail('HK609', `${call.name} must say its ${name}: one of ${operand.of.join(', ')}`)
    );
  }
  if (operand.kind !== 'value') throw new HeddleError('HEDDLE_LOWER', `a ${operand.kind} is no option`);
  const type = build.valueType(operand.types[0]);
  if (given !== undefined) return valueAs(call.ctx, given, type, `for the option ${name} of ${call.name}`);
  if (operand.otherwise === undefined) return call.fail('HK306', `${call.name} lacks the option ${name}`);
  return { kind: 'const', type, value: operand.otherwise };
}

const refusal = <Op extends OperationName>(effect: OperationEffect<Op>): string | undefined =>
  operations[effect.op].refuses?.(effect);

/** The type that the operation names, or that of an earlier operand. */
function typeOf(type: ValueName | ReturnType<typeof like>, kept: Kept): IrType {
  if (typeof type === 'string') return build.valueType(type);
  const operand = kept[type.operand];
  return isExpr(operand) ? heldType(operand.type) : build.voidType;
}

/** The first element of a box in a tensor: an index for each of its dimensions, the outermost first. */
function coordinates(call: Call, index: number, kept: Kept): readonly Expr[] {
  const { node, value } = call.arg(index);
  const { map } = kept;
  const rank = isExpr(map) && map.type.kind === 'tensorMap' ? map.type.rank : 0;
  if (value.kind !== 'list' || value.items.length !== rank)
    return call.wrong(index, `${rank} coordinates, [row, column]`);
  return value.items.map((item) => {
    const expr = anyValue(call.ctx, { node, value: item });
    const name = build.valueName(expr.type);
    if (name === 'u32' || name === 'i32') return expr;
    return call.fail('HK305', `a coordinate is ${build.showType(expr.type)}; it must be u32 or i32`, node);
  });
}

/** A text, or a value as a thread computes with it. */
function printedWord(call: Call, index: number): string | Expr {
  const { node, value } = call.arg(index);
  if (value.kind === 'string') return value.value;
  const expr = anyValue(call.ctx, { node, value });
  const name = build.valueName(expr.type) ?? '';
  if (name === 'bf16' || name === 'f16' || name === 'e4m3') return build.convert(build.f32, expr);
  if (printedTypes.includes(name)) return expr;
  const hint = expr.type.kind === 'pointer' ? '; print what g.load reads there' : '; print its lanes';
  const message = `argument ${index + 1} of ${call.name} is ${build.showType(expr.type)}, which is no single value${hint}`;
  return call.fail('HK305', message, node);
}

function argument(call: Call, index: number, name: string, operand: Operand, kept: Kept): Kept[string] {
  switch (operand.kind) {
    case 'tiles': {
      const { value } = call.arg(index);
      const type = value.kind === 'expr' ? value.expr.type : undefined;
      if (value.kind === 'expr' && type?.kind === 'pointer' && type.tile !== undefined) return value.expr;
      return call.wrong(index, `a tile, but it is ${shown(value)}`);
    }
    case 'map': {
      const { value } = call.arg(index);
      if (value.kind === 'handle' && value.variable.type.kind === 'tensorMap')
        return call.ctx.read(value.variable);
      return call.wrong(index, 'a tensorMap parameter');
    }
    case 'coordinates':
      return coordinates(call, index, kept);
    case 'words':
      return call.args.slice(index).map((_, i) => printedWord(call, index + i));
    case 'array': {
      const { value } = call.arg(index);
      if (value.kind === 'registers' && value.of === operand.of)
        return { kind: 'array', type: value.variable.type, array: value.variable };
      return call.wrong(index, `registers of ${operand.of}`);
    }
    case 'pointer': {
      const { expr, space } = call.pointer(index, ...operand.to);
      if (operand.space === undefined || operand.space === space) return expr;
      return call.wrong(index, `in ${operand.space} memory`);
    }
    case 'count':
      return call.constant(index, operand.what, operand.most);
    case 'choice':
      return call.word(index, `the ${name} of ${call.name}`, operand.of);
    case 'value': {
      const [type, ...others] = operand.types;
      if (type === 'bool') return condition(call.ctx, call.arg(index));
      return others.length > 0 ? call.oneOf(index, ...operand.types) : call.as(index, build.valueType(type));
    }
    case 'like':
      return call.as(index, typeOf(operand, kept));
  }
}
