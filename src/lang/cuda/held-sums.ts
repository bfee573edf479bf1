/**
 * Which sums a `g.wgmma.fence` or `wait` hands over between the threads and the tensor cores. Each must be held there, so that the
 * compiler moves no use of them to the other side; and no other may be, for a use of sums that are under way makes the compiler
 * put all products in a row.
 *
 * It is read off the text: a fence is for the products up to the next commit; a wait finishes the groups that stand before it.
 */
import type { Stmt } from '../ir.js';
import { changedBy, isProduct, walkStatements } from '../walk.js';

/** Ids of register arrays. */
type Sums = ReadonlySet<number>;

export function heldSums(statements: readonly Stmt[]): ReadonlyMap<object, Sums> {
  const held = new Map<object, Sums>();
  const all = new Set<number>();
  let fences: object[] = [];
  let open = new Set<number>();
  let groups: Sums[] = [];
  const underWay = (): Sums => new Set([...groups, open].flatMap((sums) => [...sums]));
  const others = (): Sums => new Set([...all].filter((id) => !underWay().has(id)));
  walkStatements(statements, (stmt) => {
    if (stmt.kind !== 'effect') return;
    const { effect } = stmt;
    if (isProduct(effect)) for (const { id } of changedBy(effect)) all.add(id);
  });
  walkStatements(statements, (stmt) => {
    if (stmt.kind !== 'effect') return;
    const { effect } = stmt;
    if (effect.op === 'wgmma.fence') {
      fences.push(effect);
      // Where no product follows in the text.
      held.set(effect, others());
    } else if (isProduct(effect)) {
      for (const { id } of changedBy(effect)) open.add(id);
    } else if (effect.op === 'wgmma.commit') {
      for (const fence of fences) if (open.size > 0) held.set(fence, open);
      fences = [];
      groups.push(open);
      open = new Set();
    } else if (effect.op === 'wgmma.wait') {
      const kept = Math.min(groups.length, effect.pending);
      const done = groups.slice(0, groups.length - kept);
      groups = groups.slice(groups.length - kept);
      const again = underWay();
      const finished = done.flatMap((sums) => [...sums]).filter((id) => !again.has(id));
      // Groups that a loop started behind the wait do not stand before it.
      held.set(effect, done.length > 0 ? new Set(finished) : others());
    }
  });
  return held;
}
