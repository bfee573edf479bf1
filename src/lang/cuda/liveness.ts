/**
 * Removes what a program does not need, and a C++ compiler would warn about: variables that nothing reads, with the weak
 * loads that fill them (folding and unrolling leave them behind), and statements that control never reaches.
 */
import * as build from '../build.js';
import type { Expr, Stmt, Variable } from '../ir.js';
import { type OperationEffect, type OperationName, operations } from '../operations/index.js';
import {
  assignedBy,
  bodies,
  children,
  expressionsOf,
  isLeftEarly,
  operands,
  replaceEach,
  walkStatements,
  withLists,
} from '../walk.js';

export interface Pruned {
  readonly body: readonly Stmt[];
  /** The variables that it needs, by id. */
  readonly live: ReadonlySet<number>;
}

/** The statements without those that are unreachable, and without those whose values nobody reads. */
export function prune(body: readonly Stmt[]): Pruned {
  // In this order: what only an unreachable statement reads is not read. And again while something goes: an `if`
  // that has become empty no longer reads its condition.
  for (let pruned = reachable(body); ; ) {
    const live = liveVariables(pruned);
    const next = needed(pruned, live);
    if (next === pruned) return { body: pruned, live };
    pruned = next;
  }
}

/** The variables on which something depends that others can see: an effect, a branch, a result. By id. */
function liveVariables(body: readonly Stmt[]): Set<number> {
  const live = new Set<number>();
  /** The values that a variable would need if it were live. */
  const sources = new Map<number, Expr[]>();
  const pending: Expr[] = [];

  const read = (variable: Variable): void => {
    if (live.has(variable.id)) return;
    live.add(variable.id);
    pending.push(...(sources.get(variable.id) ?? []));
    sources.delete(variable.id);
  };
  const write = (variable: Variable, value: Expr): void => {
    if (live.has(variable.id)) pending.push(value);
    else sources.set(variable.id, [...(sources.get(variable.id) ?? []), value]);
  };
  walkStatements(body, (statement) => {
    const set = assignedBy(statement);
    if (set !== undefined) {
      if (set.value !== null) write(set.variable, set.value);
    } else if (statement.kind !== 'effect' || !isSilent(statement.effect)) {
      pending.push(...expressionsOf(statement));
    } else if (statement.result !== null) {
      for (const operand of operands(statement.effect)) write(statement.result, operand);
    }
  });
  for (let expr = pending.pop(); expr !== undefined; expr = pending.pop()) {
    if (expr.kind === 'variable') read(expr.variable);
    if (expr.kind === 'register' || expr.kind === 'array') read(expr.array);
    if (expr.kind === 'field') read(expr.window);
    if (build.settled(expr) === undefined) pending.push(...children(expr));
  }
  return live;
}

/** Effects that nobody notices unless their result is read. */
function isSilent<Op extends OperationName>(effect: OperationEffect<Op>): boolean {
  return operations[effect.op].unnoticed?.(effect) ?? false;
}

function needed(statements: readonly Stmt[], live: ReadonlySet<number>): readonly Stmt[] {
  return replaceEach(statements, (statement) =>
    neededOf(
      withLists(statement, (list) => needed(list, live)),
      live,
    ),
  );
}

function neededOf(statement: Stmt, live: ReadonlySet<number>): readonly Stmt[] {
  const set = assignedBy(statement);
  if (set !== undefined) return live.has(set.variable.id) ? [statement] : [];
  switch (statement.kind) {
    case 'effect':
      if (isRead(statement.result, live)) return [statement];
      return isSilent(statement.effect) ? [] : [withoutResult(statement)];
    case 'foreign':
      return [isRead(statement.result, live) ? statement : withoutResult(statement)];
    case 'if':
      if (statement.then.length > 0) return [statement];
      return statement.else.length > 0 ? [negated(statement, statement.else)] : [];
    case 'block':
      return statement.body.length > 0 ? [statement] : [];
    default:
      return [statement];
  }
}

const isRead = (result: Variable | null, live: ReadonlySet<number>): boolean =>
  result !== null && live.has(result.id);

const withoutResult = <S extends Stmt & { readonly result: Variable | null }>(statement: S): S =>
  statement.result === null ? statement : { ...statement, result: null };

/** `if (!test) then`: what is left of an `if` whose first branch is empty. */
function negated(statement: Extract<Stmt, { kind: 'if' }>, then: readonly Stmt[]): Stmt {
  return { ...statement, test: build.not(statement.test), then, else: [] };
}

/**
 * Drops the statements behind one that never goes on (a return, a loop without end), here and inside of statements.
 */
function reachable(statements: readonly Stmt[]): readonly Stmt[] {
  const inside = replaceEach(statements, (statement) => [withLists(statement, reachable)]);
  const last = inside.findIndex(neverEnds);
  return last < 0 || last === inside.length - 1 ? inside : inside.slice(0, last + 1);
}

const lastNeverEnds = (statements: readonly Stmt[]): boolean => {
  const last = statements.at(-1);
  return last !== undefined && neverEnds(last);
};

/** Whether control never comes out behind a statement whose lists are `reachable` throughout. */
function neverEnds(statement: Stmt): boolean {
  switch (statement.kind) {
    case 'break':
    case 'continue':
    case 'return':
    case 'leave':
      return true;
    case 'block':
      return lastNeverEnds(statement.body) && !isLeftEarly(statement);
    case 'if':
      return lastNeverEnds(statement.then) && lastNeverEnds(statement.else);
    case 'while':
    case 'for':
      return statement.test.kind === 'const' && statement.test.value === true && !breaks(statement.body);
    default:
      return false;
  }
}

const breaks = (statements: readonly Stmt[]): boolean =>
  statements.some(
    (stmt) =>
      stmt.kind === 'break' || ((stmt.kind === 'if' || stmt.kind === 'block') && bodies(stmt).some(breaks)),
  );
