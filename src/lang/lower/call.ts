/** A call being lowered: its evaluated arguments, and how an intrinsic takes them. */
import type { Node } from 'acorn';
import * as build from '../build.js';
import type { Code } from '../diagnostics.js';
import { isMemoryName } from '../header.js';
import type { Effect, Expr } from '../ir.js';
import { byteSize, type IrType, type MemoryName } from '../types.js';
import { anyValue, constantInteger, constantText, valueAs } from './coerce.js';
import type { Context, Into } from './context.js';
import { type Argument, shown, type Value } from './values.js';

const memoryNames: readonly MemoryName[] = Object.keys(byteSize).filter(isMemoryName);

export class Call {
  constructor(
    readonly ctx: Context,
    readonly node: Node,
    /** The function as the author writes it: 'g.load'. */
    readonly name: string,
    readonly args: readonly Argument[],
    readonly into: Into,
  ) {}

  fail(code: Code, message: string, at: Node = this.node): never {
    return this.ctx.fail(at, code, message);
  }

  /** `shape` shows the expected arguments: 'pointer, value, options?'. */
  expect(shape: string): void {
    const names = shape === '' ? [] : shape.split(', ');
    const least = names.filter((name) => !name.endsWith('?')).length;
    if (names.at(-1)?.startsWith('...')) return;
    if (this.args.length >= least && this.args.length <= names.length) return;
    this.fail('HK306', `${this.name}(${shape}) is called with ${this.args.length} arguments`);
  }

  wrong(index: number, mustBe: string): never {
    const { node } = this.arg(index);
    return this.fail('HK305', `argument ${index + 1} of ${this.name} must be ${mustBe}`, node);
  }

  has(index: number): boolean {
    return index < this.args.length;
  }

  arg(index: number): Argument {
    const found = this.args[index];
    return found ?? this.fail('HK306', `${this.name} lacks its argument ${index + 1}`);
  }

  /** A value of one of these types; a plain constant takes the first that fits it by its own type, else the first. */
  oneOf(index: number, ...names: readonly string[]): Expr {
    const expr = anyValue(this.ctx, this.arg(index));
    const name = build.valueName(expr.type);
    if (name !== undefined && names.includes(name)) return expr;
    const message = `argument ${index + 1} of ${this.name} is ${build.showType(expr.type)}; it must be ${names.join(' or ')}`;
    return this.fail('HK305', message, this.arg(index).node);
  }

  as(index: number, type: IrType): Expr {
    return valueAs(this.ctx, this.arg(index), type, `as argument ${index + 1} of ${this.name}`);
  }

  pointer(index: number, ...allowed: readonly MemoryName[]) {
    const { node, value } = this.arg(index);
    const type = value.kind === 'expr' ? value.expr.type : undefined;
    if (value.kind !== 'expr' || type?.kind !== 'pointer')
      return this.wrong(index, `a pointer, but it is ${shown(value)}`);
    if (type.tile !== undefined) {
      const advice = "write .element(row, column), or .as('v16') for its bytes";
      return this.wrong(index, `a pointer, but \`${this.ctx.text(node)}\` is a tile; ${advice}`);
    }
    if (allowed.length > 0 && !allowed.includes(type.to)) {
      const message = `${this.name} works on ${allowed.join(', ')} in memory, but \`${this.ctx.text(node)}\` points to ${type.to}`;
      return this.fail('HK305', message, node);
    }
    return { expr: value.expr, to: type.to, space: type.space };
  }

  constant(index: number, what: string, max: number): number {
    return constantInteger(this.ctx, this.arg(index), what, max);
  }

  word<T extends string>(index: number, what: string, allowed: readonly T[]): T {
    return constantText(this.ctx, this.arg(index), what, allowed);
  }

  memoryName(index: number): MemoryName {
    return this.word(index, 'the element type', memoryNames);
  }

  effect(effect: Effect, result: IrType, name: string): Value {
    return this.ctx.effect(this.node, effect, result, name, this.into);
  }
}
