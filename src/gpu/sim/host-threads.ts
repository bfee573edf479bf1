/** Threads of hosts inside the machine, beside the host programs: they take a turn whenever the schedule says so. */
import { Task } from './schedule.js';

/** The work of a thread of a host, beside the host program. */
export interface HostProgram {
  /** For findings. */
  readonly name: string;
  /** Whether something outside the machine, such as a network, may give it work at any time. */
  readonly hearsOutside: boolean;
  /** One turn; true when it did anything. An error that it throws ends the thread. */
  step(): boolean;
  onError(error: unknown): void;
}

export class HostThread extends Task {
  readonly isThread = false;
  ended = false;
  /** How much had moved before its last turn. */
  saw = 0;

  constructor(
    readonly rank: number,
    readonly id: number,
    readonly program: HostProgram,
  ) {
    super();
  }
}
