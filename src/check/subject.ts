/** What is checked: kernels, and the ways to run them. */
import { HeddleError } from '../errors/index.js';
import type { SimMachine } from '../sim/index.js';

/** One way to run a subject's kernels. */
export interface CheckConfiguration {
  readonly name: string;
  readonly ranks: number;
  /** Blocks that a GPU holds at once; fewer than a launch has shows whether its blocks depend on each other. */
  readonly residentBlocks?: number;
  /** Small enough for every schedule to be tried. */
  readonly tiny?: boolean;
  /**
   * Runs the host programs of all ranks, several rounds back to back, and verifies the results: throws
   * `WrongResult`, or anything else for a failure. It must not depend on anything but the machine.
   */
  run(machine: SimMachine): Promise<void>;
}

export interface CheckSubject {
  readonly name: string;
  /** Names of the kernels that its configurations run. */
  readonly kernels: readonly string[];
  readonly configurations: readonly CheckConfiguration[];
}

/** What a configuration throws when the kernels ran and computed something else than they should. */
export class WrongResult extends HeddleError {
  constructor(message: string) {
    super('HEDDLE_WRONG_RESULT', message);
  }
}
