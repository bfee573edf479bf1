/** Threads of hosts inside the machine, beside the host programs: agents that take a turn whenever the schedule says so. */
import { Agent, type Schedule } from './schedule.js';

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

interface Machine {
  readonly schedule: Schedule;
  act(host: HostThread, turn: () => boolean): boolean;
  work(): void;
  hostIdles(host: HostThread): void;
  endHost(host: HostThread): void;
}

export class HostThread extends Agent {
  readonly key: string;
  ended = false;
  /** How much had moved before its last turn. */
  saw = 0;
  readonly #machine: Machine;

  constructor(
    readonly rank: number,
    readonly id: number,
    readonly program: HostProgram,
    machine: Machine,
  ) {
    super();
    this.#machine = machine;
    this.key = `rank ${rank} ${program.name} ${id}`;
  }

  run(): void {
    if (this.ended) return;
    try {
      if (this.#machine.act(this, () => this.program.step())) {
        this.#machine.work();
        this.#machine.schedule.add(this);
      } else {
        this.#machine.hostIdles(this);
      }
    } catch (error) {
      this.#machine.endHost(this);
      this.program.onError(error);
    }
  }
}
