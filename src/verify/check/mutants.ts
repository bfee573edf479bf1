/**
 * Mutants: a kernel with one synchronising operation weakened or removed. A checker must be seen to fail: whoever
 * trusts it wants every mutant caught. One that survives is either superfluous in the kernel or a hole in the checker.
 *
 * An operation is a place in the source: where it was unrolled or called from several places, all copies change
 * together.
 */
import { getOrMake } from '../../base/maps.js';
import { isPtx, type KernelModule } from '../../gpu/sim/index.js';
import {
  type Effect,
  type Expr,
  effectsOf,
  type IrModule,
  operations,
  rewriteEffects,
  type Span,
  type Stmt,
  type Variable,
} from '../../lang/index.js';
import { mutatePtx, ptxMutantsOf } from './ptx-mutants.js';
import type { Mutant } from './subject.js';

/** A change to one effect; null removes it. */
interface Change {
  readonly description: string;
  readonly effect: Effect | null;
}

/** Every single mutant of a kernel, in source order. */
export function mutantsOf(module: KernelModule): Mutant[] {
  if (isPtx(module)) return ptxMutantsOf(module);
  const places = placesOf(module);
  const mutants = new Map<string, Mutant>();
  for (const { effect, span } of effectsOf(module)) {
    const where = places(span);
    for (const { description } of changesOf(effect)) {
      const id = `${module.name} ${where} ${description}`;
      if (mutants.has(id)) continue;
      const text = module.sources[span.source]?.piece(span.start, span.end) ?? '';
      mutants.set(id, { id, kernel: module.name, where, text, description });
    }
  }
  return [...mutants.values()];
}

/** The kernel with this mutation; the same module where it lacks the operation. */
export function mutate(module: IrModule, mutant: Mutant): IrModule;
export function mutate(module: KernelModule, mutant: Mutant): KernelModule;
export function mutate(module: KernelModule, mutant: Mutant): KernelModule {
  if (isPtx(module)) return module.name === mutant.kernel ? mutatePtx(module, mutant) : module;
  const { kernel, where, description } = mutant;
  if (module.name !== kernel) return module;
  const places = placesOf(module);
  let changed = false;
  const mutated = rewriteEffects(module, (stmt) => {
    const change = changesOf(stmt.effect).find((c) => c.description === description);
    if (change === undefined || places(stmt.span) !== where) return [stmt];
    changed = true;
    if (change.effect !== null) return [{ ...stmt, effect: change.effect }];
    return stmt.result === null ? [] : [satisfied(stmt.span, stmt.result)];
  });
  return changed ? mutated : module;
}

/** The rest of a wait that is not there: it says that what it waits for has come. */
function satisfied(span: Span, variable: Variable): Stmt {
  return { kind: 'let', span, variable, init: { kind: 'const', type: variable.type, value: true } };
}

/** Resolves spans to places, each once. */
export function placesOf(module: IrModule): (span: Span) => string {
  const known = new Map<string, string>();
  return (span) => {
    const key = `${span.source}:${span.start}`;
    return getOrMake(known, key, () => {
      const source = module.sources[span.source]!;
      const { line, column } = source.position(span.start);
      // Where nobody knows the file (a bundle in a browser), the place in the text tells operations apart.
      return source.file === '' ? key : `${source.file}:${line}:${column}`;
    });
  };
}

/** For each order and scope those that promise one step less: a mutant takes them instead. */
const weaker: Readonly<Record<string, readonly string[]>> = {
  seq_cst: ['acq_rel'],
  acq_rel: ['acquire', 'release'],
  acquire: ['relaxed'],
  release: ['relaxed'],
  relaxed: ['weak'],
  sys: ['gpu'],
  gpu: ['cta'],
};

/** The ways to weaken an effect that synchronises, as its operation allows them; none for the rest. */
function changesOf(effect: Effect): Change[] {
  if ('order' in effect && effect.order === 'weak') return [];
  const { takes, options, removable, weaker: other, misgiven = [] } = operations[effect.op];
  const changes: Change[] = removable ? [{ description: `${effect.op} removed`, effect: null }] : [];
  if (other !== undefined)
    changes.push({ description: other.description, effect: changed(effect, { op: other.op }) });
  for (const wrong of misgiven) {
    const { operand, description } = wrong;
    // The table says which operands are numbers.
    const was: unknown = Object.entries(effect).find(([key]) => key === operand)?.[1];
    const is = 'count' in wrong ? wrong.count(was as number) : wrong.value(was as Expr);
    changes.push({ description, effect: changed(effect, { [operand]: is }) });
  }
  for (const [name, operand] of Object.entries({ ...takes, ...options })) {
    if (operand.kind !== 'choice') continue;
    const is = String(Object.entries(effect).find(([key]) => key === name)?.[1]);
    for (const less of weaker[is] ?? []) {
      if (operand.of.includes(less)) {
        changes.push({ description: `${is} → ${less}`, effect: changed(effect, { [name]: less }) });
      }
    }
  }
  return changes;
}

/** The table says what may stand in place of what. */
const changed = (effect: Effect, by: Readonly<Record<string, string | number | Expr>>): Effect =>
  ({ ...effect, ...by }) as Effect;
