/**
 * Checks the promises that ir.ts makes to the back ends: operands agree in type, variables are declared before
 * they are used, constants are in range, effects stand where they may. An oracle for what lowering makes.
 */
import { expect } from 'vitest';
import { heldType, inRange, isComparison, isInteger } from '../../src/lang/arithmetic.js';
import * as build from '../../src/lang/build.js';
import { printIr } from '../../src/lang/index.js';
import type { Effect, Expr, InlinedCall, IrModule, Stmt, Variable } from '../../src/lang/ir.js';
import { operations } from '../../src/lang/operations/index.js';
import { byteSize, type IrType } from '../../src/lang/types.js';
import { isExpr, operands, requireModule } from '../../src/lang/walk.js';

/** The mistakes, in words; empty for a sound module. */
export function validateIr(module: IrModule): string[] {
  requireModule('module', module);
  const validator = new Validator(module);
  validator.run();
  return validator.found;
}

/** The body of a sound module as text, without the header lines. */
export function bodyOf(module: IrModule): string {
  expect(validateIr(module)).toEqual([]);
  return printIr(module).split('\n\n').slice(1).join('\n\n').trim();
}

class Validator {
  readonly found: string[] = [];
  readonly #declared = new Map<number, Variable>();
  #visible: Variable[] = [];
  #loops = 0;
  /** Results of calls: they are assigned, though not mutable. */
  readonly #results = new Set<Variable>();
  /** The calls whose blocks are around. */
  readonly #calls: InlinedCall[] = [];
  readonly #module: IrModule;

  constructor(module: IrModule) {
    this.#module = module;
  }

  run(): void {
    for (const variable of this.#module.entry.params) this.#declare(variable);
    for (const { variable } of this.#module.shared) this.#declare(variable);
    this.#block(this.#module.entry.body);
  }

  #require(holds: boolean, message: string): void {
    if (!holds) this.found.push(`${this.#module.name}: ${message}`);
  }

  #declare(variable: Variable): void {
    this.#require(!this.#declared.has(variable.id), `${variable.name}#${variable.id} is declared twice`);
    this.#declared.set(variable.id, variable);
    this.#visible.push(variable);
  }

  #use(variable: Variable): void {
    this.#require(
      this.#visible.includes(variable),
      `${variable.name}#${variable.id} is used where it is not declared`,
    );
  }

  #block(statements: readonly Stmt[]): void {
    const outer = this.#visible;
    this.#visible = [...outer];
    for (const stmt of statements) this.#statement(stmt);
    this.#visible = outer;
  }

  #statement(stmt: Stmt): void {
    const { start, end, source } = stmt.span;
    const text = this.#module.sources[source]?.text;
    this.#require(
      text !== undefined && start >= 0 && start <= end && end <= text.length,
      `${stmt.kind} has no span`,
    );
    switch (stmt.kind) {
      case 'let':
        if (stmt.init === null) this.#results.add(stmt.variable);
        else this.#is(stmt.init, stmt.variable.type, `let ${stmt.variable.name}`);
        this.#declare(stmt.variable);
        break;
      case 'registers': {
        const { type, name } = stmt.variable;
        if (type.kind === 'registers') this.#is(stmt.fill, build.valueType(type.of), `registers ${name}`);
        else this.#require(false, `registers ${name} is no register array`);
        this.#declare(stmt.variable);
        break;
      }
      case 'assign':
        this.#use(stmt.variable);
        this.#require(
          stmt.variable.mutable || this.#results.has(stmt.variable),
          `${stmt.variable.name} is assigned, but not mutable`,
        );
        this.#is(stmt.value, stmt.variable.type, `assignment to ${stmt.variable.name}`);
        break;
      case 'assignRegister':
        this.#is(stmt.value, this.#element(stmt.array, stmt.index), `assignment to ${stmt.array.name}`);
        break;
      case 'effect': {
        const result = this.#effect(stmt.effect);
        if (stmt.result === null) break;
        this.#same(stmt.result.type, result, `result of ${stmt.effect.op}`);
        this.#declare(stmt.result);
        break;
      }
      case 'if':
        this.#is(stmt.test, build.bool, 'if');
        this.#block(stmt.then);
        this.#block(stmt.else);
        break;
      case 'while':
        this.#is(stmt.test, build.bool, 'while');
        this.#body(stmt.body);
        break;
      case 'for': {
        const outer = this.#visible;
        this.#visible = [...outer];
        const simple = [...stmt.init, ...stmt.update];
        this.#require(
          simple.every(({ kind }) => kind !== 'effect'),
          'a for loop has an effect in its head',
        );
        for (const one of stmt.init) this.#statement(one);
        this.#is(stmt.test, build.bool, 'for');
        this.#body(stmt.body);
        for (const one of stmt.update) this.#statement(one);
        this.#visible = outer;
        break;
      }
      case 'block':
        if (stmt.call !== null) this.#calls.push(stmt.call);
        this.#block(stmt.body);
        if (stmt.call !== null) this.#calls.pop();
        break;
      case 'foreign':
        for (const arg of stmt.args) this.#expr(arg);
        if (stmt.result !== null) {
          this.#same(stmt.result.type, stmt.callee.returns, `result of ${stmt.callee.name}`);
          this.#results.add(stmt.result);
          this.#declare(stmt.result);
        }
        this.#block(stmt.twin);
        break;
      case 'leave':
        this.#require(this.#calls.includes(stmt.call), `leave ${stmt.call.name} outside its block`);
        break;
      case 'break':
      case 'continue':
        this.#require(this.#loops > 0, `${stmt.kind} outside a loop`);
        break;
      case 'return':
        break;
    }
  }

  #body(statements: readonly Stmt[]): void {
    this.#loops++;
    this.#block(statements);
    this.#loops--;
  }

  #same(is: IrType, mustBe: IrType, where: string): void {
    this.#require(
      build.sameType(is, mustBe),
      `${where} is ${build.showType(is)}, not ${build.showType(mustBe)}`,
    );
  }

  /** Checks an expression, and that it has a type. */
  #is(expr: Expr, mustBe: IrType, where: string): void {
    this.#same(this.#expr(expr), mustBe, where);
  }

  #element(array: Variable, index: number): IrType {
    this.#use(array);
    const { type } = array;
    if (type.kind !== 'registers') {
      this.#require(false, `${array.name} is no register array`);
      return build.voidType;
    }
    this.#require(
      Number.isInteger(index) && index >= 0 && index < type.length,
      `${array.name}[${index}] is outside`,
    );
    return build.valueType(type.of);
  }

  /** Checks an expression; returns its type. */
  #expr(expr: Expr): IrType {
    switch (expr.kind) {
      case 'const':
        this.#require(constantFits(expr), `the constant ${expr.value} is no ${build.showType(expr.type)}`);
        break;
      case 'variable':
        this.#use(expr.variable);
        this.#same(expr.type, expr.variable.type, expr.variable.name);
        break;
      case 'builtin':
        this.#same(expr.type, build.u32, expr.name);
        break;
      case 'unary':
        this.#is(expr.arg, expr.type, expr.op);
        break;
      case 'bits':
        this.#expr(expr.arg);
        break;
      case 'convert':
        this.#require(
          this.#expr(expr.arg).kind === 'value' && expr.type.kind === 'value',
          'only values convert',
        );
        break;
      case 'binary': {
        const left = this.#expr(expr.left);
        const shift = expr.op === '<<' || expr.op === '>>';
        this.#is(expr.right, shift ? build.u32 : left, expr.op);
        this.#same(expr.type, isComparison(expr.op) ? build.bool : left, expr.op);
        break;
      }
      case 'select':
        this.#is(expr.test, build.bool, 'select');
        this.#is(expr.then, expr.type, 'select');
        this.#is(expr.else, expr.type, 'select');
        break;
      case 'pure':
        for (const arg of expr.args) this.#is(arg, expr.type, expr.name);
        break;
      case 'register':
        this.#same(expr.type, this.#element(expr.array, expr.index), expr.array.name);
        break;
      case 'array':
        this.#use(expr.array);
        this.#same(expr.type, expr.array.type, expr.array.name);
        break;
      case 'lane': {
        this.#is(expr.vector, build.v16, 'lane');
        const lanes = laneCount(expr.type);
        this.#require(expr.index >= 0 && expr.index < lanes, `lane ${expr.index} of ${lanes}`);
        break;
      }
      case 'pack':
        this.#require(['v16', 'u32'].includes(build.valueName(expr.type) ?? ''), 'pack makes a v16 or a u32');
        this.#require(
          expr.lanes.length ===
            laneCount(build.valueType(expr.of)) / (build.valueName(expr.type) === 'u32' ? 4 : 1),
          `pack has ${expr.lanes.length} lanes`,
        );
        for (const lane of expr.lanes) this.#expr(lane);
        break;
      case 'offset': {
        this.#is(expr.pointer, expr.type, 'offset');
        const index = build.valueName(this.#expr(expr.index));
        this.#require(index === 'u32' || index === 'i32', `an offset is ${index}`);
        break;
      }
      case 'index':
        this.#is(expr.value, expr.type, 'index');
        this.#require(expr.indices.length === expr.extents.length, 'an index has more extents than parts');
        for (const index of expr.indices) this.#expr(index);
        break;
      case 'view':
        this.#require(
          this.#expr(expr.pointer).kind === 'pointer' && expr.type.kind === 'pointer',
          'view of no pointer',
        );
        break;
      case 'field': {
        this.#use(expr.window);
        this.#is(expr.rank, build.u32, 'the rank of a window');
        const { type } = expr.window;
        const known = type.kind === 'peers' && type.layout.fields.includes(expr.field);
        this.#require(known, `${expr.window.name} has no field ${expr.field.name}`);
        this.#same(expr.type, build.pointerType(expr.field.type, 'global'), expr.field.name);
      }
    }
    return expr.type;
  }

  /** Checks that an effect's operands are what its entry takes; returns the type of its result. */
  #effect(effect: Effect): IrType {
    for (const operand of operands(effect)) this.#expr(operand);
    const { takes, options, returns } = operations[effect.op];
    const kept = new Map<string, unknown>(Object.entries(effect));
    const typeOf = (name: string): IrType => {
      const operand = kept.get(name);
      return isExpr(operand) ? heldType(operand.type) : build.voidType;
    };
    for (const [name, operand] of Object.entries({ ...takes, ...options })) {
      const where = `${name} of ${effect.op}`;
      const is = kept.get(name);
      if (operand.kind === 'choice')
        this.#require(
          operand.of.some((word) => word === is),
          `${where} is ${is}`,
        );
      else if (operand.kind === 'coordinates') {
        const map = kept.get('map');
        const rank = isExpr(map) && map.type.kind === 'tensorMap' ? map.type.rank : 0;
        this.#require(Array.isArray(is) && is.length === rank, `${where} are not ${rank}`);
      } else if (operand.kind === 'words') this.#require(Array.isArray(is), `${where} are no list`);
      else if (operand.kind === 'tiles')
        this.#require(
          isExpr(is) && is.type.kind === 'pointer' && is.type.tile !== undefined,
          `${where} is no tile`,
        );
      else if (operand.kind === 'map')
        this.#require(isExpr(is) && is.type.kind === 'tensorMap', `${where} is no tensor`);
      else if (operand.kind === 'array')
        this.#require(isExpr(is) && is.kind === 'array', `${where} are no registers`);
      else if (operand.kind === 'count') this.#require(typeof is === 'number', `${where} is no number`);
      else if (!isExpr(is)) this.#require(false, `${where} is missing`);
      else if (operand.kind === 'like') this.#same(is.type, typeOf(operand.operand), where);
      else if (operand.kind === 'pointer')
        this.#require(is.type.kind === 'pointer', `${where} is no pointer`);
      else {
        const type = build.valueName(is.type);
        this.#require(
          type !== undefined && operand.types.includes(type),
          `${where} is ${build.showType(is.type)}`,
        );
      }
    }
    if (returns === 'void') return build.voidType;
    return typeof returns === 'string' ? build.valueType(returns) : typeOf(returns.operand);
  }
}

function laneCount(type: IrType): number {
  const name = build.valueName(type);
  return name === undefined || name === 'bool' ? 0 : 16 / byteSize[name];
}

function constantFits({ type, value }: Expr & { readonly kind: 'const' }): boolean {
  const name = build.valueName(type) ?? '';
  if (name === 'bool') return typeof value === 'boolean';
  if (name === 'f32') return typeof value === 'number' && Object.is(Math.fround(value), value);
  if (!isInteger(name) || typeof value !== (name === 'u64' ? 'bigint' : 'number')) return false;
  return (typeof value === 'bigint' || Number.isInteger(value)) && inRange(name, BigInt(value));
}
