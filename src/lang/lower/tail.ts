/** Returning from an inlined function without jumping, wherever `else` can say it. */
import * as build from '../build.js';
import type { InlinedCall, Stmt } from '../ir.js';

/** A body whose end is the end of `call`'s block, with the jumps gone that lead there anyway. */
export function withoutJumps(body: readonly Stmt[], call: InlinedCall): readonly Stmt[] {
  const leaves = (list: readonly Stmt[]): boolean => {
    const last = list.at(-1);
    return last?.kind === 'leave' && last.call === call;
  };
  // What follows an `if` that leaves on one side belongs to its other side.
  const at = body.findIndex((stmt) => stmt.kind === 'if' && (leaves(stmt.then) || leaves(stmt.else)));
  const fork = body[at];
  if (fork?.kind === 'if') {
    const rest = body.slice(at + 1);
    const side = (list: readonly Stmt[]): readonly Stmt[] =>
      withoutJumps(leaves(list) ? list : [...list, ...rest], call);
    return [...body.slice(0, at), ...branch(fork, side(fork.then), side(fork.else))];
  }
  const before = body.slice(0, -1);
  if (leaves(body)) return before;
  const last = body.at(-1);
  if (last?.kind === 'if') {
    const then = withoutJumps(last.then, call);
    return [...before, { ...last, then, else: withoutJumps(last.else, call) }];
  }
  if (last?.kind === 'block') return [...before, { ...last, body: withoutJumps(last.body, call) }];
  return body;
}

/** The `if` with other sides; one with an empty first side is turned round. */
function branch(of: Stmt & { kind: 'if' }, then: readonly Stmt[], otherwise: readonly Stmt[]): Stmt[] {
  if (then.length > 0) return [{ ...of, then, else: otherwise }];
  return otherwise.length === 0 ? [] : branch({ ...of, test: build.not(of.test) }, otherwise, []);
}
