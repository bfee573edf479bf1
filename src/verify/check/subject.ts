/** The subject of a check: kernels, and the ways to run them. */
import {
  ArgumentError,
  HeddleError,
  oneOfListed,
  requireFunction,
  requireInteger,
  requireObject,
  requireText,
} from '../../base/errors.js';
import { maxSimulatedRanks } from '../../gpu/index.js';
import type { SimMachine } from '../../gpu/sim/index.js';

/** One way to run a subject's kernels. */
export interface CheckConfiguration {
  readonly name: string;
  readonly ranks: number;
  /** Blocks that a GPU holds at once; fewer than a launch has shows whether its blocks depend on each other. */
  readonly residentBlocks?: number;
  /** Its hosts also wait for what is outside of the machine, such as a process, and see to it that this ends. */
  readonly waitsOutside?: boolean;
  /** Gets the lines that kernels print, where nobody else listens. */
  print?(line: string): void;
  /**
   * Runs the host programs of all ranks, several rounds back to back, and verifies the results: throws
   * `WrongResult`, or anything else for a failure. It must not depend on anything but the machine.
   */
  run(machine: SimMachine): Promise<void>;
}

export interface CheckSubject {
  readonly name: string;
  /** The family's name, by which `heddle check` takes all of its subjects. */
  readonly family?: string;
  /** Names of the kernels that its configurations run. */
  readonly kernels: readonly string[];
  readonly configurations: readonly CheckConfiguration[];
  /** Paths of the files whose last parts findings name, where those are not paths themselves. */
  readonly sources?: readonly string[];
}

/** The error of a configuration when the kernels ran and computed something else than they should. */
export class WrongResult extends HeddleError {
  constructor(message: string) {
    super('HEDDLE_WRONG_RESULT', message);
  }
}

/** Requires one way to run a subject's kernels. The machine checks all other fields. */
export function requireConfiguration(argument: string, configuration: CheckConfiguration): void {
  requireObject(argument, configuration, 'a configuration');
  const { name, ranks, run } = configuration;
  requireText(`${argument}.name`, name);
  requireInteger(`${argument}.ranks`, ranks, 1, maxSimulatedRanks);
  requireFunction(`${argument}.run`, run);
}

/**
 * The subjects of these names; all where nothing is named. A subject is named by its name, its family's and its kernels'. Of one that is
 * not, the configurations that are named remain.
 */
export function subjectsNamed(subjects: readonly CheckSubject[], names: readonly string[]): CheckSubject[] {
  const namesOf = ({ name, family = name, kernels }: CheckSubject): string[] => [family, name, ...kernels];
  const all = subjects.flatMap(namesOf);
  const known = [
    ...new Set([...all, ...subjects.flatMap((one) => one.configurations.map(({ name }) => name))]),
  ];
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown[0] !== undefined)
    throw new ArgumentError('kernel', unknown.join(', '), oneOfListed(unknown[0], known));
  const isNamed = (name: string): boolean => names.includes(name);
  const wanted = subjects.flatMap((subject) => {
    if (names.length === 0 || namesOf(subject).some(isNamed)) return [subject];
    const configurations = subject.configurations.filter(({ name }) => isNamed(name));
    return configurations.length === 0 ? [] : [{ ...subject, configurations }];
  });
  if (wanted.some(({ configurations }) => configurations.length > 0)) return wanted;
  throw new HeddleError('HEDDLE_CHECK', `nothing to check; there are: ${[...new Set(all)].join(', ')}`);
}

/** Plain data, so that it can be sent to another thread; `mutate` applies it, `mutateHosts` where it is a host's. */
export interface Mutant {
  /** Stable while the source is: 'one_sided_combine dispatch.ts:41:7 release → relaxed'. */
  readonly id: string;
  /** Or the program of a host. */
  readonly kernel: string;
  /** 'dispatch.ts:41:7' */
  readonly where: string;
  /** The statement as written, one line. */
  readonly text: string;
  /** 'release → relaxed' */
  readonly description: string;
}
