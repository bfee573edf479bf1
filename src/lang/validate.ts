/**
 * Checks the promises that ir.ts makes to the back ends: operands agree in type, variables are declared before
 * they are used, constants are in range, effects stand where they may. For tests, and for whatever rewrites IR.
 */
import { inRange, isInteger } from './arithmetic.js';
import * as build from './build.js';
import type { Effect, Expr, IrFunction, IrModule, Stmt, Variable } from './ir.js';
import { requireModule } from './require.js';
import { byteSize, type IrType } from './types.js';
import { operands } from './walk.js';

/** What is wrong, in words; empty for a sound module. */
export function validateIr(module: IrModule): string[] {
  requireModule('module', module);
  const found: string[] = [];
  const all = [...module.functions, module.entry];
  for (const [index, of] of all.entries()) {
    const shared = of === module.entry ? module.shared.map(({ variable }) => variable) : [];
    new FunctionValidator(module, of, index, found).run(shared);
  }
  return found;
}

class FunctionValidator {
  private readonly declared = new Map<number, Variable>();
  private visible: Variable[] = [];
  private loops = 0;

  constructor(
    private readonly module: IrModule,
    private readonly of: IrFunction,
    /** Calls may go only to functions before this one. */
    private readonly index: number,
    private readonly found: string[],
  ) {}

  run(shared: readonly Variable[]): void {
    for (const { variable } of this.of.params) this.declare(variable);
    for (const variable of shared) this.declare(variable);
    this.block(this.of.body);
  }

  private require(holds: boolean, message: string): void {
    if (!holds) this.found.push(`${this.of.name}: ${message}`);
  }

  private declare(variable: Variable): void {
    this.require(!this.declared.has(variable.id), `${variable.name}#${variable.id} is declared twice`);
    this.declared.set(variable.id, variable);
    this.visible.push(variable);
  }

  private use(variable: Variable): void {
    this.require(
      this.visible.includes(variable),
      `${variable.name}#${variable.id} is used where it is not declared`,
    );
  }

  private block(statements: readonly Stmt[]): void {
    const outer = this.visible;
    this.visible = [...outer];
    for (const stmt of statements) this.statement(stmt);
    this.visible = outer;
  }

  private statement(stmt: Stmt): void {
    const { start, end, source } = stmt.span;
    const text = this.module.sources[source]?.text;
    this.require(
      text !== undefined && start >= 0 && start <= end && end <= text.length,
      `${stmt.kind} has no span`,
    );
    switch (stmt.kind) {
      case 'let':
        this.same(this.expr(stmt.init), stmt.variable.type, `let ${stmt.variable.name}`);
        this.declare(stmt.variable);
        break;
      case 'registers': {
        const { type, name } = stmt.variable;
        if (type.kind === 'registers')
          this.same(this.expr(stmt.fill), build.valueType(type.of), `registers ${name}`);
        else this.require(false, `registers ${name} is no register array`);
        this.declare(stmt.variable);
        break;
      }
      case 'assign':
        this.use(stmt.variable);
        this.require(stmt.variable.mutable, `${stmt.variable.name} is assigned, but not mutable`);
        this.same(this.expr(stmt.value), stmt.variable.type, `assignment to ${stmt.variable.name}`);
        break;
      case 'assignRegister':
        this.same(
          this.expr(stmt.value),
          this.element(stmt.array, stmt.index),
          `assignment to ${stmt.array.name}`,
        );
        break;
      case 'effect': {
        const result = this.effect(stmt.effect);
        if (stmt.result === null) break;
        this.same(stmt.result.type, result, `result of ${stmt.effect.op}`);
        this.declare(stmt.result);
        break;
      }
      case 'if':
        this.same(this.expr(stmt.test), build.bool, 'if');
        this.block(stmt.then);
        this.block(stmt.else);
        break;
      case 'while':
        this.same(this.expr(stmt.test), build.bool, 'while');
        this.body(stmt.body);
        break;
      case 'for': {
        const outer = this.visible;
        this.visible = [...outer];
        const simple = [...stmt.init, ...stmt.update];
        this.require(
          simple.every(({ kind }) => kind !== 'effect'),
          'a for loop has an effect in its head',
        );
        for (const one of stmt.init) this.statement(one);
        this.same(this.expr(stmt.test), build.bool, 'for');
        this.body(stmt.body);
        for (const one of stmt.update) this.statement(one);
        this.visible = outer;
        break;
      }
      case 'block':
        this.block(stmt.body);
        break;
      case 'break':
      case 'continue':
        this.require(this.loops > 0, `${stmt.kind} outside a loop`);
        break;
      case 'return':
        this.same(stmt.value === null ? build.voidType : this.expr(stmt.value), this.of.returns, 'return');
    }
  }

  private body(statements: readonly Stmt[]): void {
    this.loops++;
    this.block(statements);
    this.loops--;
  }

  private same(is: IrType, mustBe: IrType, where: string): void {
    this.require(
      build.sameType(is, mustBe),
      `${where} is ${build.showType(is)}, not ${build.showType(mustBe)}`,
    );
  }

  private element(array: Variable, index: number): IrType {
    this.use(array);
    const { type } = array;
    if (type.kind !== 'registers') {
      this.require(false, `${array.name} is no register array`);
      return build.voidType;
    }
    this.require(
      Number.isInteger(index) && index >= 0 && index < type.length,
      `${array.name}[${index}] is outside`,
    );
    return build.valueType(type.of);
  }

  /** Checks an expression; returns its type. */
  private expr(expr: Expr): IrType {
    const is = (of: Expr, mustBe: IrType, where: string): void => this.same(this.expr(of), mustBe, where);
    switch (expr.kind) {
      case 'const':
        this.require(constantFits(expr), `the constant ${expr.value} is no ${build.showType(expr.type)}`);
        break;
      case 'variable':
        this.use(expr.variable);
        this.same(expr.type, expr.variable.type, expr.variable.name);
        break;
      case 'builtin':
        this.same(expr.type, build.u32, expr.name);
        break;
      case 'unary':
      case 'bits':
        if (expr.kind === 'unary') is(expr.arg, expr.type, expr.op);
        else this.expr(expr.arg);
        break;
      case 'convert':
        this.require(
          this.expr(expr.arg).kind === 'value' && expr.type.kind === 'value',
          'only values convert',
        );
        break;
      case 'binary': {
        const left = this.expr(expr.left);
        const shift = expr.op === '<<' || expr.op === '>>';
        is(expr.right, shift ? build.u32 : left, expr.op);
        this.same(expr.type, build.isComparison(expr.op) ? build.bool : left, expr.op);
        break;
      }
      case 'select':
        is(expr.test, build.bool, 'select');
        is(expr.then, expr.type, 'select');
        is(expr.else, expr.type, 'select');
        break;
      case 'pure':
        for (const arg of expr.args) is(arg, expr.type, expr.name);
        break;
      case 'register':
        this.same(expr.type, this.element(expr.array, expr.index), expr.array.name);
        break;
      case 'lane': {
        is(expr.vector, build.v16, 'lane');
        const lanes = laneCount(expr.type);
        this.require(expr.index >= 0 && expr.index < lanes, `lane ${expr.index} of ${lanes}`);
        break;
      }
      case 'pack':
        this.same(expr.type, build.v16, 'pack');
        this.require(
          expr.lanes.length === laneCount(build.valueType(expr.of)),
          `pack has ${expr.lanes.length} lanes`,
        );
        for (const lane of expr.lanes) this.expr(lane);
        break;
      case 'offset': {
        is(expr.pointer, expr.type, 'offset');
        const index = build.valueName(this.expr(expr.index));
        this.require(index === 'u32' || index === 'i32', `an offset is ${index}`);
        break;
      }
      case 'view':
        this.require(
          this.expr(expr.pointer).kind === 'pointer' && expr.type.kind === 'pointer',
          'view of no pointer',
        );
        break;
      case 'field': {
        this.use(expr.window);
        is(expr.rank, build.u32, 'the rank of a window');
        const { type } = expr.window;
        const known = type.kind === 'peers' && type.layout.fields.includes(expr.field);
        this.require(known, `${expr.window.name} has no field ${expr.field.name}`);
        this.same(expr.type, build.pointerType(expr.field.type, 'global'), expr.field.name);
      }
    }
    return expr.type;
  }

  /** Checks an effect; returns the type of its result. */
  private effect(effect: Effect): IrType {
    for (const operand of operands(effect)) this.expr(operand);
    const element = (pointer: Expr): IrType => {
      if (pointer.type.kind === 'pointer') return build.loadedType(pointer.type.to);
      this.require(false, `${effect.op} needs a pointer`);
      return build.voidType;
    };
    switch (effect.op) {
      case 'load':
        return element(effect.pointer);
      case 'store':
        this.same(effect.value.type, element(effect.pointer), 'store');
        return build.voidType;
      case 'atomic':
      case 'compareExchange':
        this.same(effect.value.type, element(effect.pointer), effect.op);
        return effect.value.type;
      case 'awaitEpoch':
        this.same(element(effect.pointer), build.u32, effect.op);
        this.same(effect.epoch.type, build.u32, effect.op);
        this.same(effect.limit.type, build.u32, effect.op);
        return build.bool;
      case 'awaitFilled':
        this.same(element(effect.pointer), build.v16, effect.op);
        this.same(effect.empty.type, build.u32, effect.op);
        this.same(effect.limit.type, build.u32, effect.op);
        return build.v16;
      case 'shuffle':
      case 'shuffleXor':
      case 'shuffleUp':
      case 'shuffleDown':
        this.same(effect.lane.type, build.u32, effect.op);
        return effect.value.type;
      case 'any':
      case 'all':
      case 'ballot':
        this.same(effect.value.type, build.bool, effect.op);
        return effect.op === 'ballot' ? build.u32 : build.bool;
      case 'match':
        return build.u32;
      case 'elect':
        return build.bool;
      case 'clock':
        return build.u64;
      case 'call':
        return this.call(effect.callee, effect.args);
      default:
        return build.voidType;
    }
  }

  private call(index: number, args: readonly Expr[]): IrType {
    const callee = this.module.functions[index];
    if (callee === undefined || index >= this.index) {
      this.require(false, `call of function ${index}, which is not before this one`);
      return build.voidType;
    }
    this.require(
      args.length === callee.params.length,
      `call of ${callee.name} with ${args.length} arguments`,
    );
    for (const [i, { variable }] of callee.params.entries()) {
      if (args[i]) this.same(args[i].type, variable.type, `${variable.name} of ${callee.name}`);
    }
    return callee.returns;
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
