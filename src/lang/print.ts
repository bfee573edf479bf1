/** The IR as text: stable, one statement a line, for people and for tests. */
import { showType } from './build.js';
import type { Effect, Expr, IrModule, Stmt, Variable } from './ir.js';
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
  for (const { variable, length } of module.shared) {
    lines.push(`${nameOf(variable)}: ${showType(variable.type)}[${length}]`);
  }
  const { entry } = module;
  const params = entry.params.map((variable) => `${nameOf(variable)}: ${showType(variable.type)}`);
  lines.push('', `function ${entry.name}(${params.join(', ')})`, ...bodyLines(entry.body));
  return `${lines.join('\n')}\n`;
}

/** The id keeps variables of one name apart. */
const nameOf = (variable: Variable): string => `${variable.name}#${variable.id}`;

function bodyLines(statements: readonly Stmt[]): string[] {
  return statements.flatMap((stmt) => linesOf(stmt)).map((line) => `  ${line}`);
}

function linesOf(stmt: Stmt): string[] {
  switch (stmt.kind) {
    case 'let':
      return [`${declared(stmt.variable)}${stmt.init === null ? '' : ` = ${textOf(stmt.init)}`}`];
    case 'registers':
      return [`registers ${nameOf(stmt.variable)}: ${showType(stmt.variable.type)} = ${textOf(stmt.fill)}`];
    case 'assign':
      return [`${nameOf(stmt.variable)} = ${textOf(stmt.value)}`];
    case 'assignRegister':
      return [`${nameOf(stmt.array)}[${stmt.index}] = ${textOf(stmt.value)}`];
    case 'effect': {
      const text = effectText(stmt.effect);
      return [stmt.result === null ? text : `${declared(stmt.result)} = ${text}`];
    }
    case 'if': {
      const lines = [`if ${textOf(stmt.test)}`, ...bodyLines(stmt.then)];
      if (stmt.else.length > 0) lines.push('else', ...bodyLines(stmt.else));
      return lines;
    }
    case 'for': {
      const inner = (part: readonly Stmt[]): string => part.flatMap((one) => linesOf(one)).join(', ');
      return [
        `for ${inner(stmt.init)}; ${textOf(stmt.test)}; ${inner(stmt.update)}`,
        ...bodyLines(stmt.body),
      ];
    }
    case 'while':
      return [`while ${textOf(stmt.test)}`, ...bodyLines(stmt.body)];
    case 'break':
    case 'continue':
    case 'return':
      return [stmt.kind];
    case 'block':
      return [stmt.call === null ? 'block' : `block ${stmt.call.name}`, ...bodyLines(stmt.body)];
    case 'leave':
      return [`leave ${stmt.call.name}`];
    case 'foreign': {
      const text = `${stmt.callee.name}(${stmt.args.map(textOf).join(', ')})`;
      const call = stmt.result === null ? text : `${declared(stmt.result)} = ${text}`;
      return [call, 'twin', ...bodyLines(stmt.twin)];
    }
  }
}

function declared(variable: Variable): string {
  return `${variable.mutable ? 'let' : 'const'} ${nameOf(variable)}: ${showType(variable.type)}`;
}

function effectText(effect: Effect): string {
  const parts = Object.entries(effect).flatMap(([key, part]): string[] => {
    if (key === 'op') return [];
    // Operands are the expressions among the properties; the rest are words and numbers.
    if (Array.isArray(part)) {
      const items = part.map((one: unknown) => (isExpr(one) ? textOf(one) : JSON.stringify(one)));
      return [`[${items.join(', ')}]`];
    }
    return [isExpr(part) ? textOf(part) : String(part)];
  });
  return parts.length === 0 ? effect.op : `${effect.op} ${parts.join(', ')}`;
}

function textOf(expr: Expr): string {
  const list = (of: readonly Expr[]): string => of.map(textOf).join(', ');
  switch (expr.kind) {
    case 'const':
      return constantText(expr);
    case 'variable':
      return nameOf(expr.variable);
    case 'builtin':
      return expr.name;
    case 'unary':
      return `${expr.op}${textOf(expr.arg)}`;
    case 'binary':
      return `(${textOf(expr.left)} ${expr.op} ${textOf(expr.right)})`;
    case 'select':
      return `(${textOf(expr.test)} ? ${textOf(expr.then)} : ${textOf(expr.else)})`;
    case 'pure':
      return `${expr.name}(${list(expr.args)})`;
    case 'convert':
      return `${showType(expr.type)}(${textOf(expr.arg)})`;
    case 'bits':
      return `bits<${showType(expr.type)}>(${textOf(expr.arg)})`;
    case 'register':
      return `${nameOf(expr.array)}[${expr.index}]`;
    case 'array':
      return nameOf(expr.array);
    case 'lane':
      return `lane<${showType(expr.type)}>(${textOf(expr.vector)}, ${expr.index})`;
    case 'pack':
      return `pack<${expr.of}>(${list(expr.lanes)})`;
    case 'offset':
      return `${textOf(expr.pointer)}[${textOf(expr.index)}]`;
    case 'index':
      return textOf(expr.value);
    case 'view':
      return `${showType(expr.type)}(${textOf(expr.pointer)})`;
    case 'field':
      return `${nameOf(expr.window)}.at(${textOf(expr.rank)}).${expr.field.name}`;
  }
}

function constantText(expr: Expr & { kind: 'const' }): string {
  const type = showType(expr.type);
  const text = Object.is(expr.value, -0) ? '-0' : String(expr.value);
  return type === 'bool' ? text : `${text}:${type}`;
}
