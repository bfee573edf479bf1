/**
 * Sums of a product (wgmma) are nobody's until a wait. A mistake that straight-line code shows is an error of the kernel; the rest the
 * simulated machine finds.
 */
import type { Expr, Span, Stmt, Variable } from '../ir.js';
import { bodies, changedBy, expressionsOf, isLeftEarly, someStatement, walkExpression } from '../walk.js';

/** Calls `found` with each statement that reads or writes sums of a product which nothing has awaited since. */
export function findEarlyUses(
  statements: readonly Stmt[],
  found: (span: Span, sums: Variable) => void,
): void {
  walk(statements, new Set(), found);
}

/** `busy`: sums of products that are under way before, and in the end behind these statements. */
function walk(
  statements: readonly Stmt[],
  busy: Set<Variable>,
  found: (span: Span, sums: Variable) => void,
): void {
  for (const stmt of statements) {
    if (busy.size > 0) for (const sums of usedBy(stmt)) if (busy.has(sums)) found(stmt.span, sums);
    if (stmt.kind === 'effect') {
      if (stmt.effect.op === 'wgmma.multiply') for (const sums of changedBy(stmt.effect)) busy.add(sums);
      // A wait that leaves groups pending may be for these or for others.
      if (stmt.effect.op === 'wgmma.wait') busy.clear();
    } else if (stmt.kind === 'block' && !isLeftEarly(stmt)) walk(stmt.body, busy, found);
    else {
      for (const list of bodies(stmt)) walk(list, new Set(busy), found);
      if (awaits(stmt)) busy.clear();
    }
  }
}

/** Whether a wait stands in one of the lists of a statement, which may be run or not. */
const awaits = (stmt: Stmt): boolean =>
  bodies(stmt).some((list) =>
    someStatement(list, (inside) => inside.kind === 'effect' && inside.effect.op === 'wgmma.wait'),
  );

/** The register arrays that a statement itself reads or writes; a product may go on with sums of an earlier one. */
function usedBy(stmt: Stmt): Variable[] {
  const used: Variable[] = stmt.kind === 'assignRegister' ? [stmt.array] : [];
  const look = (expr: Expr): void => {
    if (expr.kind === 'register') used.push(expr.array);
  };
  for (const expr of expressionsOf(stmt)) walkExpression(expr, look);
  if (stmt.kind === 'effect' && stmt.effect.op !== 'wgmma.multiply') used.push(...changedBy(stmt.effect));
  return used;
}
