/**
 * Every cycle of two and three threads with two accesses each (message passing, store and load buffering, S, R, 2+2W, ISA2, W+RWC, Z6 …), in
 * the forms in which one thread orders less than the others. By PTX's memory model the outcome is forbidden where all edges of the
 * cycle but one order: a read of a store, between threads that release and acquire at least; any other, between seq_cst fences.
 */
import { describe, expect, it } from 'vitest';
import { type Finding, runOnce, seedOf } from '../../../../src/verify/check/index.js';
import { litmusConfiguration } from './program.js';

const edges = ['rf', 'fr', 'co'] as const;
type Edge = (typeof edges)[number];
/** Relaxed accesses; a release and an acquire; a seq_cst fence between the two. */
type Strength = 0 | 1 | 2;

/** What leads from the second access of each thread to the first of the next, where they meet in a place. Rotations are one cycle. */
const cycles = [2, 3].flatMap((count) =>
  Array.from({ length: 3 ** count }, (_, n) =>
    Array.from({ length: count }, (_, i) => edges[Math.trunc(n / 3 ** i) % 3]!),
  ).filter((cycle) => cycle.every((_, i) => `${[...cycle.slice(i), ...cycle.slice(0, i)]}` >= `${cycle}`)),
);

/** All alike, and one weaker than the others. */
const formsOf = (count: number): Strength[][] =>
  ([0, 1, 2] as const).flatMap((all) => [
    Array.from({ length: count }, () => all),
    ...(all === 0
      ? []
      : Array.from({ length: count }, (_, weak) =>
          Array.from({ length: count }, (_, i) => (i === weak ? all - 1 : all) as Strength),
        )),
  ]);

function isForbidden(cycle: readonly Edge[], form: readonly Strength[]): boolean {
  const weak = cycle.filter((edge, i) => {
    const needed = edge === 'rf' ? 1 : 2;
    return form[i]! < needed || form[(i + 1) % form.length]! < needed;
  });
  return weak.length <= 1;
}

function programOf(cycle: readonly Edge[], form: readonly Strength[]) {
  const never: string[] = [];
  const threads = form.map((strength, i) => {
    const before = (i + form.length - 1) % form.length;
    const order = (strong: string) => (strength === 1 ? strong : 'relaxed');
    const read = (edge: number, value: number) => {
      never.push(`${'abc'[edge]}=${value}`);
      return `${'abc'[edge]} = ${'xyz'[edge]} ${order('acquire')}`;
    };
    const write = (edge: number, value: number) => `${'xyz'[edge]} = ${value} ${order('release')}`;
    if (cycle[before] === 'co') never.push(`${'xyz'[before]}=2`);
    return [
      cycle[before] === 'rf' ? read(before, 1) : write(before, cycle[before] === 'co' ? 2 : 1),
      ...(strength === 2 ? ['fence seq_cst'] : []),
      cycle[i] === 'fr' ? read(i, 0) : write(i, 1),
    ];
  });
  return { threads, never: never.join(' ') };
}

const silent = 60;
const enough = 500;

describe.each(cycles.map((cycle) => ({ name: cycle.join(' '), cycle })))('$name', ({ cycle }) => {
  const forms = formsOf(cycle.length).map((form) => {
    const { threads, never } = programOf(cycle, form);
    const text = threads.map((thread) => thread.join('; ')).join(' | ');
    return { text, threads, never, forbidden: isForbidden(cycle, form) };
  });
  it.each(forms)('$text: $never is forbidden: $forbidden', async ({ text, threads, never, forbidden }) => {
    const configuration = litmusConfiguration(text, { threads }, never);
    let found: readonly Finding[] = [];
    for (let n = 0; found.length === 0 && n < (forbidden ? silent : enough); n++) {
      const seed = seedOf(n);
      const schedule = seed.startsWith('priority') ? 'priority' : 'random';
      found = (await runOnce(configuration, { seed, schedule })).findings;
    }
    expect(found.map(({ kind }) => kind)).toEqual(forbidden ? [] : ['wrong-result']);
  });
});
