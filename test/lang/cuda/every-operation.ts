/** Programs that meet every pure operation of a type: for the host's compiler here, for a GPU where there is one. */
import type { Expr, IrModule } from '../../../src/lang/ir.js';
import { pureFunctions, pureNames } from '../../../src/lang/operations/pure.js';
import { edges, word } from './edges.js';
import * as ir from './ir-builder.js';

export const computed = ['i32', 'u32', 'u64', 'f32'] as const;
export type Computed = (typeof computed)[number];

/** A program of two values that writes, as u64 each, what every operation makes of them. */
export function everyOperation(type: Computed): {
  type: Computed;
  module: IrModule;
  names: readonly string[];
} {
  const params = [
    ir.param('a', ir.value(type)),
    ir.param('b', ir.value(type)),
    ir.param('output', ir.pointer('u64')),
  ];
  const [a, b, output] = params.map(ir.read) as [Expr, Expr, Expr];
  const made: Record<string, Expr> = {};
  const isFloat = type === 'f32';
  for (const op of ['+', '-', '*', '/', '<', '<=', '>', '>=', '==', '!='] as const)
    made[op] = ir.binary(op, a, b);
  for (const name of pureNames) {
    const operands = pureFunctions[name].forms[type]?.compute.length;
    if (operands === 1) made[name] = ir.pure(name, a);
    if (operands === 2) made[name] = ir.pure(name, a, b);
    if (operands === 3)
      for (const c of edges[type]) made[`${name} ${c}`] = ir.pure(name, a, b, ir.constant(type, c));
  }
  for (const to of [...computed, 'bool'] as const) made[`to ${to}`] = ir.convert(to, a);
  made.negative = ir.unary('-', a);
  if (isFloat) {
    for (const storage of ['bf16', 'f16', 'e4m3'] as const) {
      made[storage] = ir.convert('f32', ir.convert(storage, a));
      // Packed two at a time, where the target has an instruction for that.
      const lanes = Array.from({ length: storage === 'e4m3' ? 16 : 8 }, (_, i) => (i % 2 === 0 ? a : b));
      made[`${storage} word`] = ir.packWord(storage, lanes.slice(0, storage === 'e4m3' ? 4 : 2));
      made[`${storage} lane`] = ir.convert('f32', ir.lane(storage, ir.pack(storage, lanes), 5));
    }
  } else {
    for (const op of ['%', '&', '|', '^'] as const) made[op] = ir.binary(op, a, b);
    for (const op of ['<<', '>>'] as const) made[op] = ir.binary(op, a, ir.convert('u32', b));
    for (const value of edges[type]) {
      for (const op of ['/', '%', '<<', '>>'] as const) {
        const shifts = op === '<<' || op === '>>';
        const by = shifts ? ir.u32(Number(BigInt.asUintN(32, BigInt(value)))) : ir.constant(type, value);
        made[`${op} ${value}`] = ir.binary(op, a, by);
      }
    }
    made.complement = ir.unary('~', a);
  }
  const names = Object.keys(made);
  const body = Object.values(made).map((expr, i) =>
    ir.effect(ir.store(ir.offset(output, ir.u32(i)), word(expr))),
  );
  return { type, names, module: ir.module(`every_${type}`, params, body) };
}
