/** Calls of operations, lowered as their entries in operations/ say. */
import { HeddleError } from '../../base/errors.js';
import * as build from '../build.js';
import type { Expr } from '../ir.js';
import { printedTypes } from '../operations/debug.js';
import { type OperationEffect, type OperationName, operations } from '../operations/index.js';
import { type like, type Operand, valueTypeOf } from '../operations/operation.js';
import type { IrType, ValueName } from '../types.js';
import { isExpr } from '../walk.js';
import type { Argument, Call } from './call.js';
import { anyValue, condition, constantText, valueAs } from './coerce.js';
import { shown, type Value } from './values.js';

/** The operands of an effect so far, by name. */
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

/** The options object, checked against the names it may have. */
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
    if (given !== undefined)
      return constantText(call.ctx, given.node, given.value, `the option ${name}`, operand.of);
    // A weak access synchronises with nobody, so it needs no scope; any other must say how far it reaches.
    const otherwise = name === 'scope' && kept.order === 'weak' ? 'cta' : operand.otherwise;
    return (
      otherwise ?? call.fail('HK609', `${call.name} must say its ${name}: one of ${operand.of.join(', ')}`)
    );
  }
  if (operand.kind !== 'value') throw new HeddleError('HEDDLE_LOWER', `a ${operand.kind} is no option`);
  const type = build.valueType(operand.types[0]);
  if (given !== undefined)
    return valueAs(call.ctx, given.node, given.value, type, `for the option ${name} of ${call.name}`);
  if (operand.otherwise === undefined) return call.fail('HK306', `${call.name} lacks the option ${name}`);
  return { kind: 'const', type, value: operand.otherwise };
}

const refusal = <Op extends OperationName>(effect: OperationEffect<Op>): string | undefined =>
  operations[effect.op].refuses?.(effect);

/** The type that the operation names, or that of an earlier operand. */
function typeOf(type: ValueName | ReturnType<typeof like>, kept: Kept): IrType {
  if (typeof type === 'string') return build.valueType(type);
  const operand = kept[type.operand];
  return isExpr(operand) ? valueTypeOf(operand) : build.voidType;
}

/** Where a box begins in a tensor: as many indices as that has dimensions, the outermost first. */
function coordinates(call: Call, index: number, kept: Kept): readonly Expr[] {
  const { node, value } = call.arg(index);
  const { map } = kept;
  const rank = isExpr(map) && map.type.kind === 'tensorMap' ? map.type.rank : 0;
  if (value.kind !== 'list' || value.items.length !== rank)
    return call.wrong(index, `${rank} coordinates, [row, column]`);
  return value.items.map((item) => {
    const expr = anyValue(call.ctx, node, item);
    const name = build.valueName(expr.type);
    if (name === 'u32' || name === 'i32') return expr;
    return call.fail('HK305', `a coordinate is ${build.showType(expr.type)}; it must be u32 or i32`, node);
  });
}

/** A text, or a value as a thread computes with it. */
function word(call: Call, index: number): string | Expr {
  const { node, value } = call.arg(index);
  if (value.kind === 'string') return value.value;
  const expr = anyValue(call.ctx, node, value);
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
      if (value.kind === 'expr' && value.expr.type.kind === 'tensorMap') return value.expr;
      return call.wrong(index, 'a tensorMap parameter');
    }
    case 'coordinates':
      return coordinates(call, index, kept);
    case 'words':
      return call.args.slice(index).map((_, i) => word(call, index + i));
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
      if (type === 'bool') return condition(call.ctx, call.arg(index).node, call.arg(index).value);
      return others.length > 0 ? call.oneOf(index, ...operand.types) : call.as(index, build.valueType(type));
    }
    case 'like':
      return call.as(index, typeOf(operand, kept));
  }
}
