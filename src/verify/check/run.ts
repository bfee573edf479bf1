/** One run of one configuration, under one schedule. */
import { HeddleError, onlyGiven } from '../../base/errors.js';
import { type Finding, type MachineOptions, SimMachine } from '../../gpu/sim/index.js';
import { type CheckConfiguration, WrongResult } from './subject.js';

/** The name of the n-th schedule; random and priority schedules take turns. */
export function seedOf(n: number): string {
  return `${n % 2 === 0 ? 'random' : 'priority'}-${n}`;
}

export function scheduleOf(seed: string): 'random' | 'priority' {
  return seed.startsWith('priority') ? 'priority' : 'random';
}

type RunOptions = Pick<
  MachineOptions,
  'seed' | 'schedule' | 'assume' | 'substitute' | 'substituteHost' | 'stepLimit' | 'hostLines' | keyof Hearing
>;

/** The functions that hear what one schedule does. */
export type Hearing = Pick<MachineOptions, 'print' | 'watch'>;

/** Runs a configuration once. An error that it throws becomes a finding if the machine has none; a wrong result also beside races, which may be so by the letter alone. */
export async function runOnce(configuration: CheckConfiguration, options: RunOptions) {
  const machine = SimMachine.create({
    ...options,
    print: options.print ?? ((line) => configuration.print?.(line)),
    ranks: configuration.ranks,
    mode: 'checked',
    configuration: configuration.name,
    ...onlyGiven(configuration, 'residentBlocks'),
  });
  let thrown: Finding | null = null;
  try {
    const programs = configuration.run(machine);
    await (configuration.waitsOutside ? programs : whileMoving(machine, programs));
  } catch (error) {
    thrown = {
      seed: machine.seed,
      configuration: configuration.name,
      kind: error instanceof WrongResult ? 'wrong-result' : 'failure',
      message: error instanceof Error ? error.message : String(error),
      stale: machine.staleReads,
    };
  }
  const { findings } = machine;
  const tells =
    thrown?.kind === 'wrong-result' ? findings.every(({ kind }) => kind === 'race') : findings.length === 0;
  return { findings: thrown !== null && tells ? [...findings, thrown] : findings, machine };
}

/** Turns of the event loop in which the machine may stand still, of one run. Each lasts a millisecond at least. */
const mostStill = 20_000;

/**
 * The result of host programs; an error where the machine stands still too often, as one that waits for something outside of it
 * would never end. Turns are counted, and no time: a busy computer makes turns longer, not more.
 */
async function whileMoving<T>(machine: SimMachine, programs: Promise<T>): Promise<T> {
  let [steps, still] = [-1, 0];
  let turns: ReturnType<typeof setInterval> | undefined;
  const stuck = new Promise<never>((_, reject) => {
    turns = setInterval(() => {
      const before = steps;
      ({ steps } = machine.statistics);
      if (steps === before && ++still === mostStill) reject(new HeddleError('HEDDLE_CHECK', notEnding));
    }, 1);
  });
  try {
    return await Promise.race([programs, stuck]);
  } finally {
    clearInterval(turns);
  }
}

const notEnding =
  'the host programs do not end: one waits for something that the simulated machine does not do';
