/** The IR as text: stable, one statement a line, for people and for tests. */
import { showType } from './build.js';
import type { Effect, Expr, IrFunction, IrModule, Stmt, Variable } from './ir.js';
import { isExpr, requireModule } from './walk.js';

export function printIr(module: IrModule): string {
  requireModule('module', module);
  const lines = [
    `kernel ${module.name} (at most ${module.maxThreads} threads a block${module.cluster === 1 ? '' : `, clusters of ${module.cluster}`})`,
  ];
  if (module.specialization !== '') lines.push(`using ${module.specialization}`);
  for (const layout of module.layouts) {
    lines.push(`layout ${layout.name}: ${layout.bytes} bytes`);
    for (const { name, type, length, offset } of layout.fields)
      lines.push(`  ${offset}: ${name} ${type}[${length}]`);
  }
  const printer = new Printer();
  for (const { variable, length } of module.shared) {
    lines.push(`${printer.name(variable)}: ${showType(variable.type)}[${length}]`);
  }
  lines.push('', ...printer.function(module.entry));
  return `${lines.join('\n')}\n`;
}

class Printer {
  /** The id keeps variables of one name apart. */
  name = (variable: Variable): string => `${variable.name}#${variable.id}`;

  function(of: IrFunction): string[] {
    const params = of.params.map(({ variable }) => `${this.name(variable)}: ${showType(variable.type)}`);
    return [`function ${of.name}(${params.join(', ')})`, ...this.#body(of.body)];
  }

  #body(statements: readonly Stmt[]): string[] {
    return statements.flatMap((stmt) => this.#statement(stmt)).map((line) => `  ${line}`);
  }

  #statement(stmt: Stmt): string[] {
    switch (stmt.kind) {
      case 'let':
        return [`${this.#declared(stmt.variable)}${stmt.init === null ? '' : ` = ${this.expr(stmt.init)}`}`];
      case 'registers':
        return [
          `registers ${this.name(stmt.variable)}: ${showType(stmt.variable.type)} = ${this.expr(stmt.fill)}`,
        ];
      case 'assign':
        return [`${this.name(stmt.variable)} = ${this.expr(stmt.value)}`];
      case 'assignRegister':
        return [`${this.name(stmt.array)}[${stmt.index}] = ${this.expr(stmt.value)}`];
      case 'effect': {
        const text = this.#effect(stmt.effect);
        return [stmt.result === null ? text : `${this.#declared(stmt.result)} = ${text}`];
      }
      case 'if': {
        const lines = [`if ${this.expr(stmt.test)}`, ...this.#body(stmt.then)];
        if (stmt.else.length > 0) lines.push('else', ...this.#body(stmt.else));
        return lines;
      }
      case 'for': {
        const inner = (part: readonly Stmt[]): string =>
          part.flatMap((one) => this.#statement(one)).join(', ');
        return [
          `for ${inner(stmt.init)}; ${this.expr(stmt.test)}; ${inner(stmt.update)}`,
          ...this.#body(stmt.body),
        ];
      }
      case 'while':
        return [`while ${this.expr(stmt.test)}`, ...this.#body(stmt.body)];
      case 'break':
      case 'continue':
      case 'return':
        return [stmt.kind];
      case 'block':
        return [stmt.call === null ? 'block' : `block ${stmt.call.name}`, ...this.#body(stmt.body)];
      case 'leave':
        return [`leave ${stmt.call.name}`];
      case 'foreign': {
        const text = `${stmt.callee.name}(${stmt.args.map(this.expr).join(', ')})`;
        const call = stmt.result === null ? text : `${this.#declared(stmt.result)} = ${text}`;
        return [call, 'twin', ...this.#body(stmt.twin)];
      }
    }
  }

  #declared(variable: Variable): string {
    return `${variable.mutable ? 'let' : 'const'} ${this.name(variable)}: ${showType(variable.type)}`;
  }

  #effect(effect: Effect): string {
    const parts = Object.entries(effect).flatMap(([key, part]): string[] => {
      if (key === 'op') return [];
      // Operands are the expressions among the properties; the rest are words and numbers.
      if (Array.isArray(part)) {
        const items = part.map((one: unknown) => (isExpr(one) ? this.expr(one) : JSON.stringify(one)));
        return [`[${items.join(', ')}]`];
      }
      return [isExpr(part) ? this.expr(part) : String(part)];
    });
    return parts.length === 0 ? effect.op : `${effect.op} ${parts.join(', ')}`;
  }

  expr = (expr: Expr): string => {
    const list = (of: readonly Expr[]): string => of.map(this.expr).join(', ');
    switch (expr.kind) {
      case 'const':
        return constantText(expr);
      case 'variable':
        return this.name(expr.variable);
      case 'builtin':
        return expr.name;
      case 'unary':
        return `${expr.op}${this.expr(expr.arg)}`;
      case 'binary':
        return `(${this.expr(expr.left)} ${expr.op} ${this.expr(expr.right)})`;
      case 'select':
        return `(${this.expr(expr.test)} ? ${this.expr(expr.then)} : ${this.expr(expr.else)})`;
      case 'pure':
        return `${expr.name}(${list(expr.args)})`;
      case 'convert':
        return `${showType(expr.type)}(${this.expr(expr.arg)})`;
      case 'bits':
        return `bits<${showType(expr.type)}>(${this.expr(expr.arg)})`;
      case 'register':
        return `${this.name(expr.array)}[${expr.index}]`;
      case 'array':
        return this.name(expr.array);
      case 'lane':
        return `lane<${showType(expr.type)}>(${this.expr(expr.vector)}, ${expr.index})`;
      case 'pack':
        return `pack<${expr.of}>(${list(expr.lanes)})`;
      case 'offset':
        return `${this.expr(expr.pointer)}[${this.expr(expr.index)}]`;
      case 'index':
        return this.expr(expr.value);
      case 'view':
        return `${showType(expr.type)}(${this.expr(expr.pointer)})`;
      case 'field':
        return `${this.name(expr.window)}.at(${this.expr(expr.rank)}).${expr.field.name}`;
    }
  };
}

function constantText(expr: Expr & { kind: 'const' }): string {
  const type = showType(expr.type);
  const text = Object.is(expr.value, -0) ? '-0' : String(expr.value);
  return type === 'bool' ? text : `${text}:${type}`;
}
