/** Changes that hints propose, made in the kernel: a fence or barrier beside an access, or a wider scope. */
import { inWordsOf, isPtx, type KernelModule, type Mend } from '../../gpu/sim/index.js';
import { bodies, type Effect, type IrModule, rewriteStatements, type Stmt } from '../../lang/index.js';
import { type PtxInstruction, type PtxKernel, type PtxOperand, writtenAs } from '../../lang/ptx/index.js';
import { placesOf } from './mutants.js';

/** `up`: a barrier stands before so many branches around the access, where all threads come. */
export interface Trial {
  readonly mend: Mend;
  readonly up: number;
}

/** A barrier in front of a store that one thread makes must stand before the test for that thread. */
const mostUp = 3;

export const trialsOf = (mend: Mend): Trial[] =>
  Array.from({ length: mend.kind === 'barrier' ? 1 + mostUp : 1 }, (_, up) => ({ mend, up }));

interface Mended {
  readonly module: KernelModule;
  /** Where the change stands; null where the kernel lacks the access. */
  readonly where: string | null;
}

export function mended(module: KernelModule, { mend, up }: Trial): Mended {
  return isPtx(module) ? mendPtx(module, mend, up) : mendIr(module, mend, up);
}

/** The words for a mend, in the language of the kernel. */
export function sayMend({ kind, scope, side }: Mend, where: string): string {
  if (kind === 'scope') return `${scope} scope at ${where}`;
  if (kind === 'quiet') return `${waits[scope]} before ${where}`;
  const proxy = `g.proxyFence('${spaceOf(scope)}')`;
  const what = { fence: `g.fence('${scope}')`, barrier: 'g.barrier()', proxy }[kind];
  return `${inWordsOf(where, what)} ${side} ${where}`;
}

/** Waits for those who are in the way, and means of a kernel for them. */
const waits: Readonly<Record<Mend['scope'], string>> = {
  cta: 'a wait for the others of the block (a named barrier, an mbarrier)',
  gpu: 'a wait for all blocks (this_grid().sync(), a counter)',
  sys: 'a wait for the other ranks (a flag that each raises when it is done)',
};

/** The memory of a proxy fence, which its scope stands for. */
const spaceOf = (scope: Mend['scope']): 'shared' | 'global' => (scope === 'cta' ? 'shared' : 'global');

const accesses: Readonly<Record<Mend['access'], readonly string[]>> = {
  read: ['ld', 'ldu', 'ldmatrix', 'cp', 'wgmma'],
  write: ['st', 'stmatrix', 'cp'],
  update: ['atom', 'red'],
};
const scopes: readonly string[] = ['cta', 'cluster', 'gpu', 'sys'];
const zero: PtxOperand = { kind: 'integer', value: 0n };

function mendPtx(kernel: PtxKernel, { kind, side, where, access, scope }: Mend, up: number): Mended {
  const { module, entry } = kernel;
  const { instructions, labels } = entry;
  const there = instructions.flatMap((one, i) => (writtenAs(module, one).where === where ? [i] : []));
  const fitting = there.filter((i) => accesses[access].includes(instructions[i]!.parts[0]!));
  // Several loads of one statement want one wait.
  const firsts = fitting.filter((i, n) => n === 0 || !isOfOne(fitting[n - 1]!, i));
  const places = new Set((firsts.length > 0 ? firsts : there.slice(0, 1)).map(branchAbove));
  if (places.size === 0 || places.has(-1)) return { module: kernel, where: null };
  function isOfOne(from: number, to: number): boolean {
    return (
      kind === 'quiet' && instructions.slice(from, to).every((one) => writtenAs(module, one).where === where)
    );
  }
  function branchAbove(from: number): number {
    let at = from;
    for (let left = up; left > 0 && at >= 0; left--) {
      at--;
      while (at >= 0 && !(instructions[at]!.parts[0] === 'bra' && instructions[at]!.guard !== null)) at--;
    }
    return at;
  }
  const parts = {
    fence: ['fence', 'acq_rel', scope],
    barrier: ['bar', 'sync'],
    proxy: ['fence', 'proxy', 'async'],
    quiet: ['griddepcontrol', 'until quiet', scope],
  };
  const made: PtxInstruction[] = [];
  const moved: number[] = [];
  for (const [i, one] of instructions.entries()) {
    moved.push(made.length);
    if (!places.has(i)) made.push(one);
    else if (kind === 'scope') made.push({ ...one, parts: widened(one.parts, scope) });
    else {
      const operands = kind === 'barrier' ? [zero] : [];
      const added = { ...one, parts: parts[kind], operands, guard: null };
      made.push(...(side === 'before' ? [added, one] : [one, added]));
    }
  }
  moved.push(made.length);
  const moves = new Map([...labels].map(([label, at]) => [label, moved[at]!] as const));
  const [first] = places;
  return {
    module: { ...kernel, entry: { ...entry, instructions: made, labels: moves } },
    where: writtenAs(module, instructions[first!]!).where,
  };
}

function widened(parts: readonly string[], scope: string): readonly string[] {
  if (parts.some((part) => scopes.includes(part)))
    return parts.map((part) => (scopes.includes(part) ? scope : part));
  return [parts[0]!, scope, ...parts.slice(1)];
}

function mendIr(module: IrModule, { kind, side, where, scope }: Mend, up: number): Mended {
  const places = placesOf(module);
  /** How many branches of the statement are around the access; −1 where it is not in it. */
  const depthIn = (stmt: Stmt): number => {
    if (stmt.kind === 'effect') return places(stmt.span) === where ? 0 : -1;
    const inside = Math.max(-1, ...bodies(stmt).flat().map(depthIn));
    return inside < 0 || stmt.kind !== 'if' ? inside : inside + 1;
  };
  const effects: Readonly<Record<typeof kind, object>> = {
    fence: { op: 'fence', order: 'acq_rel', scope },
    barrier: { op: 'barrier' },
    proxy: { op: 'proxyFence', space: spaceOf(scope) },
    scope: {},
    quiet: {},
  };
  let at: string | null = null;
  const body = rewriteStatements(module.entry.body, (stmt) => {
    if (kind === 'quiet' || stmt.kind !== (up === 0 ? 'effect' : 'if') || depthIn(stmt) !== up) return [stmt];
    at ??= places(stmt.span);
    if (kind === 'scope' && stmt.kind === 'effect')
      return [{ ...stmt, effect: { ...stmt.effect, scope } as Effect }];
    const added: Stmt = { kind: 'effect', span: stmt.span, effect: effects[kind] as Effect, result: null };
    return side === 'before' ? [added, stmt] : [stmt, added];
  });
  return { module: { ...module, entry: { ...module.entry, body } }, where: at };
}
