/**
 * Mutants: a kernel with one synchronising operation weakened or removed. A checker must be seen to fail: whoever
 * trusts it wants every mutant caught. One that survives is either superfluous in the kernel or a hole in the checker.
 *
 * An operation is a place in the source: where it was unrolled or called from several places, all copies change
 * together.
 */
import {
  type Effect,
  effectsOf,
  type IrModule,
  rewriteEffects,
  type Scope,
  type Span,
} from '../lang/index.js';

/** Plain data, so that it can be sent to another thread; `mutate` applies it. */
export interface Mutant {
  /** Stable while the source is: 'one_sided_combine dispatch.ts:41:7 release → relaxed'. */
  readonly id: string;
  readonly kernel: string;
  /** 'dispatch.ts:41:7' */
  readonly where: string;
  /** The statement as written, one line. */
  readonly text: string;
  /** 'release → relaxed' */
  readonly description: string;
}

/** A change to one effect; null removes it. */
interface Change {
  readonly description: string;
  readonly effect: Effect | null;
}

/** Every single mutant of a kernel, in source order. */
export function mutantsOf(module: IrModule): Mutant[] {
  const places = placesOf(module);
  const mutants = new Map<string, Mutant>();
  for (const { effect, span } of effectsOf(module)) {
    const where = places(span);
    for (const { description } of changesOf(effect)) {
      const id = `${module.name} ${where} ${description}`;
      if (mutants.has(id)) continue;
      const text = (module.sources[span.source]?.text.slice(span.start, span.end) ?? '').replace(/\s+/g, ' ');
      mutants.set(id, { id, kernel: module.name, where, text, description });
    }
  }
  return [...mutants.values()];
}

/** The kernel with this mutation; the same module where it lacks the operation. */
export function mutate(module: IrModule, { kernel, where, description }: Mutant): IrModule {
  if (module.name !== kernel) return module;
  const places = placesOf(module);
  let changed = false;
  const mutated = rewriteEffects(module, (stmt) => {
    const change = changesOf(stmt.effect).find((c) => c.description === description);
    if (change === undefined || places(stmt.span) !== where) return [stmt];
    changed = true;
    return change.effect === null ? [] : [{ ...stmt, effect: change.effect }];
  });
  return changed ? mutated : module;
}

/** Resolves spans to places, each once. */
function placesOf(module: IrModule): (span: Span) => string {
  const known = new Map<string, string>();
  return (span) => {
    const key = `${span.source}:${span.start}`;
    let where = known.get(key);
    if (where === undefined) {
      const source = module.sources[span.source]!;
      const { line, column } = source.position(span.start);
      where = `${source.file}:${line}:${column}`;
      known.set(key, where);
    }
    return where;
  };
}

const narrower: Readonly<Partial<Record<Scope, Scope>>> = { sys: 'gpu', gpu: 'cta' };

/** The ways to weaken an effect that synchronises; none for the rest. */
function changesOf(effect: Effect): Change[] {
  switch (effect.op) {
    case 'load':
      if (effect.order === 'weak') return [];
      return effect.order === 'acquire'
        ? [{ description: 'acquire → relaxed', effect: { ...effect, order: 'relaxed' } }, ...narrowed(effect)]
        : [{ description: 'relaxed → weak', effect: { ...effect, order: 'weak' } }, ...narrowed(effect)];
    case 'store':
      if (effect.order === 'weak') return [];
      return effect.order === 'release'
        ? [{ description: 'release → relaxed', effect: { ...effect, order: 'relaxed' } }, ...narrowed(effect)]
        : [{ description: 'relaxed → weak', effect: { ...effect, order: 'weak' } }, ...narrowed(effect)];
    case 'atomic':
    case 'compareExchange':
      switch (effect.order) {
        case 'relaxed':
          return narrowed(effect);
        case 'acq_rel':
          return [
            { description: 'acq_rel → acquire', effect: { ...effect, order: 'acquire' } },
            { description: 'acq_rel → release', effect: { ...effect, order: 'release' } },
            ...narrowed(effect),
          ];
        default:
          return [
            { description: `${effect.order} → relaxed`, effect: { ...effect, order: 'relaxed' } },
            ...narrowed(effect),
          ];
      }
    case 'awaitEpoch':
      return effect.order === 'acquire'
        ? [{ description: 'acquire → relaxed', effect: { ...effect, order: 'relaxed' } }, ...narrowed(effect)]
        : narrowed(effect);
    case 'awaitFilled':
      return narrowed(effect);
    case 'fence':
      return [removed(effect), ...narrowed(effect)];
    case 'barrier':
    case 'warpBarrier':
    case 'awaitPrevious':
    case 'mbarrierAwait':
    case 'bulkCommit':
      return [removed(effect)];
    case 'bulkWait':
      return effect.reads
        ? [removed(effect)]
        : [removed(effect), { description: 'waits for reads only', effect: { ...effect, reads: true } }];
    default:
      return [];
  }
}

function removed(effect: Effect): Change {
  return { description: `${effect.op} removed`, effect: null };
}

function narrowed<E extends Extract<Effect, { scope: Scope }>>(effect: E): Change[] {
  const scope = narrower[effect.scope];
  if (scope === undefined) return [];
  return [{ description: `${effect.scope} → ${scope}`, effect: { ...effect, scope } }];
}
