/** The statements of a kernel that run one after the other, for accesses that may come later than they stand. */
import {
  bodies,
  type Effect,
  type Expr,
  expressionsOf,
  isLeftEarly,
  type Stmt,
  walkExpression,
} from '../../../lang/index.js';
import type { Step } from '../late.js';

interface Run {
  readonly items: Stmt[];
  readonly steps: Step[];
}

export function runsOf(body: readonly Stmt[]): Run[] {
  const runs: Run[] = [];
  let items: Stmt[] = [];
  let steps: Step[] = [];
  let last: readonly Stmt[] | null = null;
  const end = (): void => {
    if (items.length > 1) runs.push({ items, steps });
    [items, steps, last] = [[], [], null];
  };
  const walk = (list: readonly Stmt[]): void => {
    for (const stmt of list) {
      if (stmt.kind === 'block' && !isLeftEarly(stmt)) walk(stmt.body);
      else if (bodies(stmt).length === 0) {
        items.push(stmt);
        steps.push(stepOf(stmt, last === list));
        last = list;
      } else {
        end();
        for (const inner of bodies(stmt)) {
          walk(inner);
          end();
        }
      }
    }
  };
  walk(body);
  end();
  return runs;
}

function stepOf(stmt: Stmt, behindSibling: boolean): Step {
  const uses = new Set(expressionsOf(stmt).flatMap(namesIn));
  const set = setBy(stmt);
  const sets = new Set(set === null ? [] : [set]);
  const moves = behindSibling && (stmt.kind === 'assign' || stmt.kind === 'assignRegister');
  return { kind: kindOf(stmt), uses, sets, moves };
}

function kindOf(stmt: Stmt): Step['kind'] {
  if (stmt.kind === 'effect') return kindOfEffect(stmt.effect);
  return ['let', 'registers', 'assign', 'assignRegister'].includes(stmt.kind) ? 'other' : 'stop';
}

function kindOfEffect(effect: Effect): Step['kind'] {
  switch (effect.op) {
    case 'load':
      return effect.order === 'relaxed' ? 'load' : effect.order === 'weak' ? 'other' : 'stop';
    case 'store':
      return effect.order === 'release' ? 'stop' : 'store';
    case 'atomicAdd':
    case 'atomicMax':
    case 'atomicMin':
    case 'atomicExchange':
    case 'atomicCas':
      return effect.order === 'relaxed' ? 'update' : 'stop';
    case 'fence':
      return effect.scope === 'cta' ? 'other' : 'stop';
    default:
      return 'stop';
  }
}

function setBy(stmt: Stmt): string | null {
  if (stmt.kind === 'effect') return stmt.result === null ? null : `${stmt.result.id}`;
  if (stmt.kind === 'assignRegister') return `${stmt.array.id}[${stmt.index}]`;
  return stmt.kind === 'let' || stmt.kind === 'assign' ? `${stmt.variable.id}` : null;
}

function namesIn(expr: Expr): string[] {
  const found: string[] = [];
  walkExpression(expr, (one) => {
    if (one.kind === 'variable') found.push(`${one.variable.id}`);
    else if (one.kind === 'register') found.push(`${one.array.id}[${one.index}]`);
  });
  return found;
}
