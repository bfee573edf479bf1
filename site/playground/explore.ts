/** What Check does: makes the program of a text, runs schedules until one shows a mistake, and tells the causes of what that one shows. */

import {
  type Finding,
  isPtx,
  type KernelModule,
  type SimMachine,
  type Step,
  stepsOf,
  Trace,
} from '../../src/gpu/sim/index.js';
import { type IrModule, KernelError, PtxError, printCuda } from '../../src/lang/index.js';
import { type Cause, causesOf, formatCause } from '../../src/verify/check/causes.js';
import { type Program, programOf, runOn, runProgram } from '../../test/gpu/sim/gallery/program.js';
import { eraseTypes } from './erase.js';

/** A cause, with all that it explains. */
export interface FoundMistake {
  readonly kind: Finding['kind'];
  /** Whether GPUs order it today. */
  readonly byTheLetter: boolean;
  /** As `heddle check` prints it. */
  readonly text: string;
  /** The lines that it points to, from 1. */
  readonly lines: readonly number[];
  /** Steps of the schedule that race. */
  readonly steps: readonly number[];
}

export interface Outcome {
  /** Why there is nothing else: the text is no program, or a kernel does not compile. */
  readonly error: { readonly message: string; readonly line: number } | null;
  readonly schedules: number;
  readonly milliseconds: number;
  readonly findings: readonly FoundMistake[];
  /** The schedule that shows them; the last one where there is nothing to show. */
  readonly schedule: string;
  readonly steps: readonly Step[];
  readonly kernels: readonly { readonly name: string; readonly cuda: string }[];
}

/** So many schedules are tried, and none begins after so many milliseconds. */
const mostSchedules = 200;
const longest = 1500;
/** So many try what mends a mistake. */
const trials = 8;
/** A page shows no more of one schedule. */
const mostSteps = 5000;

export async function explore(name: string, text: string): Promise<Outcome> {
  const nothing = { schedules: 0, milliseconds: 0, findings: [], schedule: '', steps: [], kernels: [] };
  try {
    const program = programOf(name, text, eraseTypes(text));
    const kernels = await kernelsOf(program);
    const begun = performance.now();
    let seed: Seed;
    let schedules = 0;
    let isClean: boolean;
    do {
      seed = seedOf(schedules++);
      isClean = (await runProgram(program, seed)).findings.length === 0;
    } while (isClean && schedules < mostSchedules && performance.now() - begun < longest);
    const milliseconds = performance.now() - begun;
    return { error: null, schedules, milliseconds, kernels, ...(await traced(program, seed)) };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { ...nothing, error: { message, line: lineOf(error) } };
  }
}

interface Seed {
  readonly seed: string;
  readonly schedule: 'random' | 'priority';
}

function seedOf(n: number): Seed {
  const schedule = n % 2 === 0 ? 'random' : 'priority';
  return { seed: `${schedule}-${n}`, schedule };
}

/** The schedule of a seed once more, step by step. */
async function traced(program: Program, seed: Seed) {
  const trace = new Trace();
  const { findings } = await runProgram(program, { ...seed, watch: trace.watch });
  const steps = trace.steps.slice(0, mostSteps);
  const order = findings.toSorted((a, b) => telling(b) - telling(a));
  const mistakes = (await causesIn(program, order)).map((cause) => ({
    kind: cause.findings[0]!.kind,
    byTheLetter: cause.rules.length > 0,
    text: formatCause(cause),
    lines: [...new Set(cause.findings.flatMap(linesOf))],
    steps: stepsOf(cause.findings[0]!, steps),
  }));
  return { findings: mistakes, schedule: seed.seed, steps };
}

function causesIn(program: Program, findings: readonly Finding[]): Promise<readonly Cause[]> {
  const name = findings[0]?.configuration ?? '';
  const configuration = { name, ranks: program.ranks, run: (machine: SimMachine) => runOn(program, machine) };
  const seeds = Array.from({ length: trials }, (_, n) => seedOf(n).seed);
  return causesOf(findings, [configuration], seeds, []);
}

/** A race says more than what follows from it; of data, more than of the flag that should have guarded it. */
function telling(finding: Finding): number {
  if (finding.kind !== 'race') return 0;
  return finding.first.order === 'weak' && finding.second.order === 'weak' ? 2 : 1;
}

/** The CUDA of what the program launches, each kernel once; those in PTX have none. */
async function kernelsOf(program: Program): Promise<Outcome['kernels']> {
  const kernels = new Map<string, IrModule>();
  const substitute = (module: KernelModule) => {
    if (!isPtx(module)) kernels.set(module.name, module);
    return module;
  };
  await runProgram(program, { ...seedOf(0), substitute });
  return [...kernels].map(([name, module]) => ({ name, cuda: printCuda(module, { lineDirectives: false }) }));
}

function linesOf(finding: Finding): number[] {
  const line = (where: string): number => Number(/:(\d+)(?::\d+)?$/.exec(where)?.[1] ?? 0);
  switch (finding.kind) {
    case 'race':
      return [line(finding.first.where), line(finding.second.where)];
    case 'stuck-wait':
      return [...new Set(finding.waiting.map(({ where }) => line(where)))];
    case 'divergence':
      return [line(finding.where)];
    case 'wrong-result':
    case 'failure':
      return [];
    default:
      return [line(finding.access.where)];
  }
}

/** Where an error is in the text, from 1; 0 where it does not say. */
function lineOf(error: unknown): number {
  if (error instanceof KernelError) return error.diagnostics[0]?.line ?? 0;
  if (error instanceof PtxError) return Number(/:(\d+)$/.exec(error.where)?.[1] ?? 0);
  // acorn's, of a text that cannot be parsed
  if (error instanceof SyntaxError && 'loc' in error) return (error.loc as { line: number }).line;
  return 0;
}
