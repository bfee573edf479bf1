/** One run of one configuration, under one schedule. */
import { HeddleError, onlyGiven } from '../../base/errors.js';
import { within } from '../../base/within.js';
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
  'seed' | 'schedule' | 'substitute' | 'substituteHost' | 'stepLimit' | 'hostLines' | keyof Hearing
>;

/** The functions that hear what one schedule does. */
export type Hearing = Pick<MachineOptions, 'print' | 'watch'>;

/** Runs a configuration once. An error that it throws becomes a finding if the machine has none. */
export async function runOnce(configuration: CheckConfiguration, options: RunOptions) {
  const machine = SimMachine.create({
    ...options,
    print: options.print ?? (() => {}),
    ranks: configuration.ranks,
    mode: 'checked',
    configuration: configuration.name,
    ...onlyGiven(configuration, 'residentBlocks'),
  });
  let thrown: Finding | null = null;
  try {
    await within(patienceMs, configuration.run(machine), tooLate);
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
  return { findings: thrown !== null && findings.length === 0 ? [thrown] : findings, machine };
}

/** The longest that a schedule may take: a host program may wait for something outside the simulated machine, and the check must end all the same. */
const patienceMs = 120_000;

const tooLate = (): HeddleError =>
  new HeddleError(
    'HEDDLE_CHECK',
    'the host programs did not end within two minutes: one waits for something that the simulated machine does not do',
  );
