/** Lowers statements. Each function here returns true when control never comes out at the end: what follows is dead. */
import type {
  AssignmentExpression,
  BinaryOperator,
  CallExpression,
  Expression,
  ForOfStatement,
  ForStatement,
  MemberExpression,
  Node,
  Pattern,
  ReturnStatement,
  Statement,
  UpdateExpression,
  VariableDeclaration,
  VariableDeclarator,
} from 'acorn';
import * as build from '../build.js';
import { Problem } from '../diagnostics.js';
import type { Expr, Stmt, Variable } from '../ir.js';
import { Call } from './call.js';
import { anyValue, condition, constantInteger, constantText, valueAs } from './coerce.js';
import { type Context, type Declared, isStable, Poisoned } from './context.js';
import { binary, evaluate, named, propertyName, registerIndex, unsupported, wording } from './expressions.js';
import { describe, expression, type Value } from './values.js';

const mostUnrolled = 16384;
const mostRegisters = 256;
const registerTypes = ['u32', 'i32', 'u64', 'f32', 'bool', 'v16', 'u8', 'u16'] as const;

export function lowerStatements(ctx: Context, statements: readonly Statement[]): boolean {
  for (const statement of statements) {
    let ends = false;
    recover(ctx, () => {
      ends = lowerStatement(ctx, statement);
    });
    if (ends) return true;
  }
  return false;
}

/** One error does not hide the next: the statement is given up, the others are still looked at. */
function recover(ctx: Context, run: () => void): boolean {
  try {
    run();
    return true;
  } catch (error) {
    if (error instanceof Problem) ctx.module.report(error);
    else if (!(error instanceof Poisoned)) throw error;
    return false;
  }
}

function lowerStatement(ctx: Context, node: Statement): boolean {
  switch (node.type) {
    case 'VariableDeclaration':
      declaration(ctx, node);
      return false;
    case 'ExpressionStatement':
      if (node.directive === undefined) expressionStatement(ctx, node.expression, node);
      return false;
    case 'BlockStatement':
      return branch(ctx, node);
    case 'IfStatement': {
      const test = condition(ctx, node.test, evaluate(ctx, node.test));
      if (test.kind === 'const') {
        const taken = test.value ? node.consequent : node.alternate;
        return taken ? branch(ctx, taken) : false;
      }
      const [then, thenEnds] = collected(ctx, node.consequent);
      const [otherwise, otherwiseEnds] = node.alternate ? collected(ctx, node.alternate) : [[], false];
      if (then.length > 0 || otherwise.length > 0) {
        ctx.emit({ kind: 'if', span: ctx.span(node), test, then, else: otherwise });
      }
      return thenEnds && otherwiseEnds;
    }
    case 'WhileStatement':
      return loop(ctx, node, [], node.test, undefined, node.body);
    case 'ForStatement':
      return forLoop(ctx, node);
    case 'ForOfStatement':
      return unroll(ctx, node);
    case 'BreakStatement':
    case 'ContinueStatement': {
      if (node.label) return unsupported(ctx, node, 'a label');
      const kind = node.type === 'BreakStatement' ? 'break' : 'continue';
      const innermost = ctx.loops.at(-1);
      if (innermost?.kind === 'unrolled') {
        return ctx.fail(
          node,
          'HK605',
          `an unrolled loop is no loop any more, so it has no ${kind}; use an if`,
        );
      }
      if (kind === 'break' && innermost) innermost.broken = true;
      ctx.emit({ kind, span: ctx.span(node) });
      return true;
    }
    case 'ReturnStatement':
      returnStatement(ctx, node);
      return true;
    case 'EmptyStatement':
      return false;
    case 'FunctionDeclaration':
      return unsupported(ctx, node, 'a nested function', 'make it a device() and pass it through `using`');
    case 'DoWhileStatement':
      return unsupported(ctx, node, 'do … while', 'write while (true) with a break');
    case 'SwitchStatement':
      return unsupported(ctx, node, 'switch', 'write if … else if');
    case 'ForInStatement':
      return unsupported(ctx, node, 'for … in', 'write for (const i of g.unroll(n))');
    default:
      return unsupported(ctx, node, wording(node.type));
  }
}

function collected(ctx: Context, node: Statement): [Stmt[], boolean] {
  let ends = false;
  const statements = ctx.collect(() => {
    ends = lowerStatements(ctx, node.type === 'BlockStatement' ? node.body : [node]);
  });
  return [statements, ends];
}

/** Statements that surely run: a block only where names need one. */
function branch(ctx: Context, node: Statement): boolean {
  const [body, ends] = collected(ctx, node);
  emitBlock(ctx, node, body);
  return ends;
}

function emitBlock(ctx: Context, node: Node, body: readonly Stmt[]): void {
  if (body.some(declares)) ctx.emit({ kind: 'block', span: ctx.span(node), body });
  else for (const stmt of body) ctx.emit(stmt);
}

const declares = (stmt: Stmt): boolean =>
  stmt.kind === 'let' || stmt.kind === 'registers' || (stmt.kind === 'effect' && stmt.result !== null);

// Declarations

function declaration(ctx: Context, node: VariableDeclaration): void {
  if (node.kind !== 'const' && node.kind !== 'let') {
    unsupported(ctx, node, node.kind, 'declare with const or let');
  }
  for (const declarator of node.declarations) {
    const whole = node.declarations.length === 1 ? node : declarator;
    if (!recover(ctx, () => declare(ctx, declarator, node.kind === 'let', whole))) {
      for (const name of names(declarator.id)) ctx.declare(name, { kind: 'poison' });
    }
  }
}

function names(pattern: Pattern): string[] {
  switch (pattern.type) {
    case 'Identifier':
      return [pattern.name];
    case 'ObjectPattern':
      return pattern.properties.flatMap((one) => names(one.type === 'Property' ? one.value : one));
    case 'ArrayPattern':
      return pattern.elements.flatMap((one) => (one === null ? [] : names(one)));
    case 'AssignmentPattern':
      return names(pattern.left);
    case 'RestElement':
      return names(pattern.argument);
    default:
      return [];
  }
}

function declare(ctx: Context, node: VariableDeclarator, mutable: boolean, whole: Node): void {
  if (!node.init) {
    unsupported(ctx, node, 'a variable without a first value', 'its type comes from its value');
  }
  if (node.init.type === 'CallExpression' && node.init.callee.type !== 'Super') {
    const callee = evaluate(ctx, node.init.callee);
    if (callee.kind === 'intrinsic' && (callee.name === 'shared' || callee.name === 'registers')) {
      declareMemory(ctx, node, node.init, callee.name, mutable, whole);
      return;
    }
  }
  if (node.id.type !== 'Identifier') {
    if (mutable) unsupported(ctx, node, 'let with a pattern', 'destructure with const');
    bind(ctx, node.id, evaluate(ctx, node.init), whole);
    return;
  }
  const { name } = node.id;
  const into: Declared = { name, mutable };
  const value = evaluate(ctx, node.init, into);
  if (value.kind === 'void') {
    ctx.fail(node.init, 'HK404', `\`${ctx.text(node.init)}\` returns nothing`);
  }
  // An effect that is the whole initialiser has declared the author's variable itself.
  const declared = into.variable !== undefined;
  ctx.declare(name, declared ? value : initial(ctx, node.init, whole, name, value, mutable));
}

function initial(ctx: Context, node: Node, whole: Node, name: string, value: Value, mutable: boolean): Value {
  if (!mutable) return keep(ctx, whole, name, value);
  return expression(letVariable(ctx, whole, name, anyValue(ctx, node, value), true));
}

function letVariable(ctx: Context, node: Node, name: string, init: Expr, mutable: boolean): Expr {
  const variable = ctx.variable(name, init.type, mutable);
  ctx.emit({ kind: 'let', span: ctx.span(node), variable, init });
  return ctx.read(variable);
}

/** What a const is bound to: constants stay constants, run-time values become variables. */
function keep(ctx: Context, node: Node, name: string, value: Value): Value {
  switch (value.kind) {
    case 'expr':
      return value.expr.kind === 'const'
        ? value
        : expression(letVariable(ctx, node, name, value.expr, false));
    case 'window':
      return { ...value, rank: ctx.keep(node, `${name}Rank`, value.rank) };
    case 'list':
      return { ...value, items: value.items.map((item, i) => freeze(ctx, node, `${name}${i}`, item)) };
    case 'record': {
      const entries = [...value.entries].map(([key, entry]) => [key, freeze(ctx, node, key, entry)] as const);
      return { ...value, entries: new Map(entries) };
    }
    default:
      return value;
  }
}

/** Part of a value that is looked at later: it must not change with a variable in between. */
function freeze(ctx: Context, node: Node, name: string, value: Value): Value {
  return value.kind === 'expr' && isStable(value.expr) ? value : keep(ctx, node, name, value);
}

/** Binds the names of a pattern to (parts of) a value. */
export function bind(ctx: Context, pattern: Pattern, value: Value, whole: Node): void {
  switch (pattern.type) {
    case 'Identifier':
      ctx.declare(pattern.name, freeze(ctx, whole, pattern.name, value));
      return;
    case 'ObjectPattern':
      for (const property of pattern.properties) {
        if (property.type !== 'Property') unsupported(ctx, property, 'a rest pattern');
        if (property.computed) unsupported(ctx, property, 'a computed property');
        bind(ctx, property.value, named(ctx, property, value, propertyName(ctx, property.key)), whole);
      }
      return;
    case 'ArrayPattern':
      if (value.kind !== 'list') ctx.fail(pattern, 'HK404', `${describe(value)} is not a list`);
      pattern.elements.forEach((element, i) => {
        if (element === null) return;
        const item = value.items[i];
        if (item === undefined)
          ctx.fail(element, 'HK502', `${value.what} has only ${value.items.length} items`);
        else bind(ctx, element, item, whole);
      });
      return;
    case 'AssignmentPattern':
      unsupported(ctx, pattern, 'a default value');
      break;
    default:
      unsupported(ctx, pattern, wording(pattern.type));
  }
}

function declareMemory(
  ctx: Context,
  node: VariableDeclarator,
  init: CallExpression,
  kind: 'shared' | 'registers',
  mutable: boolean,
  whole: Node,
): void {
  const code = kind === 'shared' ? 'HK602' : 'HK603';
  if (node.id.type !== 'Identifier' || mutable) {
    ctx.fail(node, code, `declare it as const name = g.${kind}(type, length)`);
  }
  const { name } = node.id;
  const args = init.arguments.map((argument) => ({ node: argument, value: evaluate(ctx, argument) }));
  const call = new Call(ctx, init, `g.${kind}`, args, undefined);
  if (kind === 'shared') {
    if (ctx.role === 'device') {
      ctx.fail(
        init,
        code,
        'a device function has no shared memory of its own; take a pointer as a parameter',
      );
    }
    if (ctx.depth > 0) ctx.fail(init, code, 'shared memory is declared at the top level of the body');
    call.expect('type, length');
    const variable = ctx.variable(name, build.pointerType(call.memoryName(0), 'shared'));
    ctx.module.addShared(variable, positive(call, 1, 2 ** 20), ctx.span(whole));
    ctx.declare(name, expression(ctx.read(variable)));
    return;
  }
  call.expect('type, length, fill?');
  const { node: typeNode, value: type } = call.arg(0);
  const element = constantText(ctx, typeNode, type, 'the type of registers', registerTypes);
  const of = element === 'u8' || element === 'u16' ? 'u32' : element;
  const length = positive(call, 1, mostRegisters);
  const fill = call.has(2) ? call.as(2, build.valueType(of)) : build.zero(of);
  const variable = ctx.variable(name, { kind: 'registers', of, length }, true);
  ctx.emit({ kind: 'registers', span: ctx.span(whole), variable, fill });
  ctx.declare(name, { kind: 'registers', variable, of, length });
}

function positive(call: Call, index: number, max: number): number {
  const length = call.constant(index, 'the length', max);
  return length > 0
    ? length
    : call.fail('HK502', 'the length is 0; it must be at least 1', call.arg(index).node);
}

// Expression statements

function expressionStatement(ctx: Context, node: Expression, whole: Node): void {
  switch (node.type) {
    case 'AssignmentExpression':
      assignment(ctx, node, whole);
      return;
    case 'UpdateExpression':
      update(ctx, node, whole);
      return;
    case 'SequenceExpression':
      for (const part of node.expressions) expressionStatement(ctx, part, part);
      return;
    case 'CallExpression':
      if (evaluate(ctx, node, 'nowhere').kind === 'void') return;
      break;
    case 'LogicalExpression':
    case 'ConditionalExpression':
      unsupported(ctx, node, 'an operator as a statement', 'write an if');
      break;
    default:
      evaluate(ctx, node);
  }
  ctx.fail(node, 'HK606', `\`${ctx.text(node)}\` does nothing; use its value or remove it`);
}

function assignment(ctx: Context, node: AssignmentExpression, whole: Node): void {
  const { operator, left, right } = node;
  if (operator === '**=' || operator === '&&=' || operator === '||=' || operator === '??=') {
    unsupported(ctx, node, `the operator ${operator}`);
  }
  const target = assignable(ctx, left);
  const value = { node: right, value: evaluate(ctx, right) };
  if (operator === '=') {
    assign(ctx, whole, target, value.node, value.value);
    return;
  }
  const current = { node: left, value: expression(readTarget(ctx, target)) };
  assign(
    ctx,
    whole,
    target,
    node,
    binary(ctx, node, operator.slice(0, -1) as BinaryOperator, current, value),
  );
}

function update(ctx: Context, node: UpdateExpression, whole: Node): void {
  const target = assignable(ctx, node.argument);
  const current = { node: node.argument, value: expression(readTarget(ctx, target)) };
  const one = { node, value: { kind: 'literal', value: 1 } as const };
  assign(ctx, whole, target, node, binary(ctx, node, node.operator === '++' ? '+' : '-', current, one));
}

type Target =
  | { readonly kind: 'variable'; readonly variable: Variable }
  | {
      readonly kind: 'register';
      readonly array: Variable;
      readonly type: Expr['type'];
      readonly index: number;
    };

function assignable(ctx: Context, node: Node): Target {
  const pattern = node as Pattern | Expression;
  if (pattern.type === 'MemberExpression') return register(ctx, pattern);
  if (pattern.type !== 'Identifier') return unsupported(ctx, node, 'destructuring in an assignment');
  const value = evaluate(ctx, pattern);
  if (value.kind === 'expr' && value.expr.kind === 'variable' && value.expr.variable.mutable) {
    return { kind: 'variable', variable: value.expr.variable };
  }
  return ctx.fail(node, 'HK403', `${pattern.name} cannot be assigned: only a variable declared with let can`);
}

function register(ctx: Context, node: MemberExpression): Target {
  const of = evaluate(ctx, node.object);
  if (of.kind !== 'registers' || !node.computed) {
    const advice =
      of.kind === 'expr' && of.expr.type.kind === 'pointer'
        ? '; write g.store(pointer.at(index), value)'
        : '';
    return ctx.fail(node, 'HK403', `\`${ctx.text(node)}\` cannot be assigned${advice}`);
  }
  const index = registerIndex(ctx, node.property, of, evaluate(ctx, node.property));
  return { kind: 'register', array: of.variable, type: build.valueType(of.of), index };
}

function readTarget(ctx: Context, target: Target): Expr {
  return target.kind === 'variable' ? ctx.read(target.variable) : { ...target, kind: 'register' };
}

function assign(ctx: Context, whole: Node, target: Target, node: Node, value: Value): void {
  const span = ctx.span(whole);
  if (target.kind === 'variable') {
    const { variable } = target;
    ctx.emit({
      kind: 'assign',
      span,
      variable,
      value: valueAs(ctx, node, value, variable.type, `for ${variable.name}`),
    });
  } else {
    const { array, index, type } = target;
    ctx.emit({
      kind: 'assignRegister',
      span,
      array,
      index,
      value: valueAs(ctx, node, value, type, `for ${array.name}`),
    });
  }
}

// Loops

function forLoop(ctx: Context, node: ForStatement): boolean {
  let ends = false;
  ctx.inScope(() => {
    const init = ctx.capture(() => {
      if (node.init?.type === 'VariableDeclaration') declaration(ctx, node.init);
      else if (node.init) expressionStatement(ctx, node.init, node.init);
    });
    if (init.every((stmt) => stmt.kind === 'let' || stmt.kind === 'assign')) {
      ends = loop(ctx, node, init, node.test ?? undefined, node.update ?? undefined, node.body);
      return;
    }
    const body = ctx.capture(() => {
      for (const stmt of init) ctx.emit(stmt);
      ends = loop(ctx, node, [], node.test ?? undefined, node.update ?? undefined, node.body);
    });
    ctx.emit({ kind: 'block', span: ctx.span(node), body });
  });
  return ends;
}

/** `updateNode` makes it a for loop. An effect in the test moves to the head of the body, before a break. */
function loop(
  ctx: Context,
  node: Statement,
  init: readonly Stmt[],
  testNode: Expression | undefined,
  updateNode: Expression | undefined,
  bodyNode: Statement,
): boolean {
  const span = ctx.span(node);
  let test: Expr = build.boolean(true);
  const effects = ctx.capture(() => {
    if (testNode) test = condition(ctx, testNode, evaluate(ctx, testNode));
  });
  if (test.kind === 'const' && test.value === false && effects.length === 0) return false;
  const head: Stmt[] = [];
  if (testNode && effects.length > 0) {
    const at = ctx.span(testNode);
    const then: Stmt[] = [{ kind: 'break', span: at }];
    head.push(...effects, { kind: 'if', span: at, test: build.unary('!', test), then, else: [] });
    test = build.boolean(true);
  }
  const update = ctx.capture(() => {
    if (updateNode) expressionStatement(ctx, updateNode, updateNode);
  });
  if (updateNode && update.some((stmt) => stmt.kind === 'effect')) {
    return ctx.fail(updateNode, 'HK604', 'an update only computes; move the effect to the end of the body');
  }
  let rest: Stmt[] = [];
  const { broken } = ctx.inLoop('loop', () => {
    [rest] = collected(ctx, bodyNode);
  });
  const body = [...head, ...rest];
  if (node.type === 'ForStatement') ctx.emit({ kind: 'for', span, init, test, update, body });
  else ctx.emit({ kind: 'while', span, test, body });
  return test.kind === 'const' && !broken && head.length === 0;
}

function unroll(ctx: Context, node: ForOfStatement): boolean {
  const count = unrollCount(ctx, node);
  const declared = node.left.type === 'VariableDeclaration' ? node.left : undefined;
  const pattern = declared?.declarations[0]?.id;
  if (declared?.kind !== 'const' || pattern?.type !== 'Identifier') {
    return unsupported(ctx, node.left, 'this loop variable', 'write for (const i of g.unroll(n))');
  }
  let ends = false;
  ctx.inLoop('unrolled', () => {
    for (let i = 0; i < count && !ends; i++) {
      if (++ctx.unrolled > mostUnrolled) {
        ctx.fail(
          node,
          'HK503',
          `unrolled loops repeat more than ${mostUnrolled} times in all; use a plain for loop`,
        );
      }
      const body = ctx.collect(() => {
        ctx.declare(pattern.name, { kind: 'literal', value: i });
        ends = lowerStatements(ctx, node.body.type === 'BlockStatement' ? node.body.body : [node.body]);
      });
      emitBlock(ctx, node.body, body);
    }
  });
  return ends;
}

function unrollCount(ctx: Context, node: ForOfStatement): number {
  const { right } = node;
  const callee =
    right.type === 'CallExpression' && right.callee.type !== 'Super' && evaluate(ctx, right.callee);
  if (right.type !== 'CallExpression' || !callee || callee.kind !== 'intrinsic' || callee.name !== 'unroll') {
    return unsupported(ctx, right, 'for … of over this', 'write for (const i of g.unroll(n))');
  }
  const args = right.arguments.map((argument) => ({ node: argument, value: evaluate(ctx, argument) }));
  const call = new Call(ctx, right, 'g.unroll', args, undefined);
  call.expect('count');
  const { node: at, value } = call.arg(0);
  return constantInteger(ctx, at, value, 'the number of iterations', mostUnrolled);
}

// Returning

function returnStatement(ctx: Context, node: ReturnStatement): void {
  if (!node.argument) {
    if (ctx.returns.kind !== 'void') {
      ctx.fail(node, 'HK607', `the header says that ${build.showType(ctx.returns)} is returned`);
    }
    ctx.emit({ kind: 'return', span: ctx.span(node), value: null });
    return;
  }
  returnValue(ctx, node.argument, node);
}

/** `return value`, or the expression of `(g) => value`. */
export function returnValue(ctx: Context, node: Expression, whole: Node): void {
  if (ctx.returns.kind === 'void') {
    if (ctx.role === 'kernel') ctx.fail(whole, 'HK607', 'a kernel returns nothing');
    ctx.fail(whole, 'HK607', "the header has no `returns`; write returns: 'u32' (or another type) there");
  }
  const value = valueAs(ctx, node, evaluate(ctx, node), ctx.returns, 'as the result');
  ctx.emit({ kind: 'return', span: ctx.span(whole), value });
}

export function lowerExpressionBody(ctx: Context, node: Expression): boolean {
  return (
    !recover(ctx, () => {
      if (ctx.returns.kind === 'void') expressionStatement(ctx, node, node);
      else returnValue(ctx, node, node);
    }) || ctx.returns.kind !== 'void'
  );
}
