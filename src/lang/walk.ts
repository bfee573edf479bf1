/** Visiting and rewriting the IR. Rewriting shares everything it leaves as it is. */

import { requireObject, requireThat } from '../base/errors.js';
import type { Effect, Expr, ForeignSource, IrModule, Span, Stmt, Variable } from './ir.js';
import { operations } from './operations/index.js';
import { type Hardware, hardware } from './operations/operation.js';

type EffectStmt = Stmt & { readonly kind: 'effect' };

/** Every statement, outer ones before those inside them, in source order. */
export function walkStatements(statements: readonly Stmt[], visit: (stmt: Stmt) => void): void {
  for (const stmt of statements) {
    visit(stmt);
    for (const list of bodies(stmt)) walkStatements(list, visit);
  }
}

export const someStatement = (statements: readonly Stmt[], test: (stmt: Stmt) => boolean): boolean =>
  statements.some((stmt) => test(stmt) || bodies(stmt).some((list) => someStatement(list, test)));

/** An effect with its place, and its number in the module, counted from 0. */
export interface EffectPlace {
  readonly effect: Effect;
  readonly span: Span;
  readonly index: number;
}

/** Every effect of a module; `index` is the one `rewriteEffects` gives. */
export function effectsOf(module: IrModule): EffectPlace[] {
  requireModule('module', module);
  const found: EffectPlace[] = [];
  walkStatements(module.entry.body, (stmt) => {
    if (stmt.kind === 'effect') found.push({ effect: stmt.effect, span: stmt.span, index: found.length });
  });
  return found;
}

/** Something that a module needs and only some GPUs have; null where all have it. `because`: what needs it. */
export function hardwareOf(module: IrModule): { readonly only: Hardware; readonly because: string } | null {
  const found = new Map<Hardware | undefined, string>();
  const needs = (only: Hardware | undefined, because: string) => found.has(only) || found.set(only, because);
  if (module.cluster !== 1) needs('hopper and later', 'clusters of blocks');
  walkStatements(module.entry.body, (stmt) => {
    if (stmt.kind === 'effect') needs(operations[stmt.effect.op].only, `g.${stmt.effect.op}`);
    for (const expr of expressionsOf(stmt))
      if (someExpression(expr, convertsE4m3)) needs('ada and later', 'conversions of e4m3');
  });
  const only = hardware.find((some) => found.has(some));
  return only === undefined ? null : { only, because: found.get(only)! };
}

const isE4m3 = ({ type }: Expr): boolean => type.kind === 'value' && type.name === 'e4m3';
const convertsE4m3 = (expr: Expr): boolean =>
  expr.kind === 'convert' ? isE4m3(expr) || isE4m3(expr.arg) : expr.kind === 'pack' && expr.of === 'e4m3';

/** Sources that must be linked to a module: the sources of the foreign functions that it calls. */
export function foreignSources(module: IrModule): ReadonlySet<ForeignSource> {
  const found = new Set<ForeignSource>();
  walkStatements(module.entry.body, (stmt) => {
    if (stmt.kind === 'foreign' && stmt.callee.source !== undefined) found.add(stmt.callee.source);
  });
  return found;
}

/**
 * A module with effects replaced: `change` gets each effect statement with its number and returns what stands in
 * its place (the same, another, several or none).
 */
export function rewriteEffects(
  module: IrModule,
  change: (stmt: EffectStmt, index: number) => readonly Stmt[],
): IrModule {
  let index = 0;
  const { entry } = module;
  const body = rewriteStatements(entry.body, (stmt) =>
    stmt.kind === 'effect' ? change(stmt, index++) : [stmt],
  );
  return { ...module, entry: body === entry.body ? entry : { ...entry, body } };
}

/** Replaces statements, each before those inside what replaces it. The same list where nothing changed. */
export function rewriteStatements(
  statements: readonly Stmt[],
  change: (stmt: Stmt) => readonly Stmt[],
): readonly Stmt[] {
  const inside = (list: readonly Stmt[]): readonly Stmt[] => rewriteStatements(list, change);
  return replaceEach(statements, (stmt) => change(stmt).map((one) => withLists(one, inside)));
}

/** Statements as CUDA has them: it calls the functions that twins stand for. */
export const withoutTwins = (statements: readonly Stmt[]): readonly Stmt[] =>
  rewriteStatements(statements, (stmt) => [stmt.kind === 'foreign' ? { ...stmt, twin: [] } : stmt]);

/** Replaces the statements of one list, not those inside them. The same list where nothing changed. */
export function replaceEach(
  statements: readonly Stmt[],
  change: (stmt: Stmt) => readonly Stmt[],
): readonly Stmt[] {
  const result = statements.flatMap(change);
  const same = result.length === statements.length && result.every((stmt, i) => stmt === statements[i]);
  return same ? statements : result;
}

/** The lists of statements inside a statement, in source order, by their names. */
const lists: { readonly [K in Stmt['kind']]?: readonly string[] } = {
  if: ['then', 'else'],
  for: ['init', 'body', 'update'],
  while: ['body'],
  block: ['body'],
  foreign: ['twin'],
};
const none: readonly string[] = [];

const listOf = (stmt: Stmt, name: string): readonly Stmt[] => stmt[name as keyof Stmt] as never;

/** A statement with the lists inside it replaced; itself where they stay the same. */
export function withLists(stmt: Stmt, change: (list: readonly Stmt[]) => readonly Stmt[]): Stmt {
  let changed = stmt;
  for (const name of lists[stmt.kind] ?? none) {
    const list = change(listOf(stmt, name));
    if (list !== listOf(stmt, name)) changed = { ...changed, [name]: list };
  }
  return changed;
}

/** The lists of statements inside a statement, in source order. */
export const bodies = (stmt: Stmt): readonly (readonly Stmt[])[] =>
  (lists[stmt.kind] ?? none).map((name) => listOf(stmt, name));

/** Whether something in the block of a call leaves it early. */
export const isLeftEarly = ({ body, call }: Stmt & { readonly kind: 'block' }): boolean =>
  someStatement(body, (stmt) => stmt.kind === 'leave' && stmt.call === call);

/** The expressions that a statement itself evaluates (not those of statements inside it). */
export function expressionsOf(stmt: Stmt): readonly Expr[] {
  switch (stmt.kind) {
    case 'let':
      return stmt.init === null ? [] : [stmt.init];
    case 'registers':
      return [stmt.fill];
    case 'assign':
    case 'assignRegister':
      return [stmt.value];
    case 'effect':
      return operands(stmt.effect);
    case 'foreign':
      return stmt.args;
    case 'if':
    case 'for':
    case 'while':
      return [stmt.test];
    default:
      return [];
  }
}

export function operands(effect: object): readonly Expr[] {
  const kept: readonly unknown[] = Object.values(effect);
  return kept.flat().filter(isExpr);
}

/** The variable or register array that a statement declares or assigns, and its value; null where that comes later. */
export function assignedBy(
  stmt: Stmt,
): { readonly variable: Variable; readonly value: Expr | null } | undefined {
  switch (stmt.kind) {
    case 'let':
      return { variable: stmt.variable, value: stmt.init };
    case 'registers':
      return { variable: stmt.variable, value: stmt.fill };
    case 'assign':
      return stmt;
    case 'assignRegister':
      return { variable: stmt.array, value: stmt.value };
    default:
      return undefined;
  }
}

/** Does a statement itself declare a variable? */
export const declares = (stmt: Stmt): boolean =>
  stmt.kind === 'let' || stmt.kind === 'registers' || ('result' in stmt && stmt.result !== null);

/** The variables and register arrays that a statement itself assigns or changes. */
export function writtenBy(stmt: Stmt): readonly Variable[] {
  if (stmt.kind === 'assign') return [stmt.variable];
  if (stmt.kind === 'assignRegister') return [stmt.array];
  return stmt.kind === 'effect' ? changedBy(stmt.effect) : [];
}

/** Whether a warp group starts a product (wgmma), whose registers are nobody's until a wait. */
export const isProduct = ({ op }: Effect): boolean => op === 'wgmma.multiply' || op === 'wgmma.multiplyHeld';

export const changedBy = (effect: Effect): readonly Variable[] =>
  operands(effect).flatMap((operand) => (operand.kind === 'array' ? [operand.array] : []));

export const isExpr = (part: unknown): part is Expr =>
  typeof part === 'object' && part !== null && 'kind' in part;

/** The expressions inside an expression, in source order, by their names. */
const parts: { readonly [K in Expr['kind']]?: readonly string[] } = {
  ...{ unary: ['arg'], convert: ['arg'], bits: ['arg'], pure: ['args'] },
  ...{ binary: ['left', 'right'], select: ['test', 'then', 'else'] },
  ...{ lane: ['vector'], pack: ['lanes'], index: ['value'] },
  ...{ offset: ['pointer', 'index'], view: ['pointer'], field: ['rank'] },
};

export const children = (expr: Expr): readonly Expr[] =>
  (parts[expr.kind] ?? none).flatMap((name): readonly Expr[] => expr[name as keyof Expr] as never);

export function walkExpression(expr: Expr, visit: (expr: Expr) => void): void {
  visit(expr);
  for (const child of children(expr)) walkExpression(child, visit);
}

export const someExpression = (expr: Expr, test: (expr: Expr) => boolean): boolean =>
  test(expr) || children(expr).some((child) => someExpression(child, test));

/** Requires a module as `kernel(…).ir()` gives it. Only its parts are looked for; the compiler promises that they agree. */
export function requireModule(argument: string, module: IrModule): void {
  requireObject(argument, module, "a kernel's ir()");
  const { name, entry, layouts, shared } = module;
  const lists = [layouts, shared, entry?.params, entry?.body];
  const isOne = typeof name === 'string' && lists.every(Array.isArray);
  requireThat(isOne, argument, module, "a kernel's ir()");
}
