/**
 * Sums of a product (wgmma) are nobody's until a wait. A mistake that straight-line code shows is an error of the kernel; the rest the
 * simulated machine finds.
 */
import type { Expr, InlinedCall, Span, Stmt, Variable } from '../ir.js';
import { bodies, changedBy, expressionsOf, someStatement, walkExpression, walkStatements } from '../walk.js';

/** Calls `found` with each statement that reads or writes sums of a product which nothing has awaited since. */
export function findEarlyUses(
  statements: readonly Stmt[],
  found: (span: Span, sums: Variable) => void,
): void {
  /** Calls whose block something leaves early. */
  const left = new Set<InlinedCall | null>();
  walkStatements(statements, (stmt) => {
    if (stmt.kind === 'leave') left.add(stmt.call);
  });
  walk(statements, new Set(), left, found);
}

/** `busy`: sums of products that are under way before, and in the end behind these statements. */
function walk(
  statements: readonly Stmt[],
  busy: Set<Variable>,
  left: ReadonlySet<InlinedCall | null>,
  found: (span: Span, sums: Variable) => void,
): void {
  for (const stmt of statements) {
    if (busy.size > 0) for (const sums of usedBy(stmt)) if (busy.has(sums)) found(stmt.span, sums);
    if (stmt.kind === 'effect') {
      if (stmt.effect.op === 'wgmma.multiply') for (const sums of changedBy(stmt.effect)) busy.add(sums);
      // A wait that leaves groups pending may be for these or for others.
      if (stmt.effect.op === 'wgmma.wait') busy.clear();
    } else if (stmt.kind === 'block' && !left.has(stmt.call)) walk(stmt.body, busy, left, found);
    else {
      for (const list of bodies(stmt)) walk(list, new Set(busy), left, found);
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
