/** How long a machine in which nothing moves waits for processes that it does not see. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';

/** So long nobody has used the processor. */
const quietMs = 5000;
/** A host that polls in a loop never is quiet. */
const mostMs = 60_000;

/** What the system says of a process or a thread, from the state on: the name before it may hold spaces. */
export function statOf(folder: string): readonly string[] {
  const stat = readFileSync(`${folder}/stat`, 'utf8');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** The threads of a program's processes, and the time that they have used, in ticks of the system. */
function usedBy(program: number): { readonly threads: number; readonly ticks: number } {
  let [threads, ticks] = [0, 0];
  for (const id of readdirSync('/proc')) {
    if (!/^\d+$/.test(id)) continue;
    try {
      const fields = statOf(`/proc/${id}`);
      if (Number(fields[3]) !== program) continue;
      threads += Number(fields[17]);
      ticks += Number(fields[11]) + Number(fields[12]);
    } catch {
      // It has ended meanwhile.
    }
  }
  return { threads, ticks };
}

/** `program`: the id of the process that leads the program's session. */
export class Patience {
  readonly #program: number;

  constructor(program: number) {
    this.#program = program;
  }

  /** Whether a thread is left that does not wait in one of so many calls. */
  mayAct(waiting: number): boolean {
    return usedBy(this.#program).threads > waiting;
  }

  /** True once no call will come. */
  async isOver(signal: AbortSignal): Promise<boolean> {
    const begun = performance.now();
    let { ticks } = usedBy(this.#program);
    for (let quiet = begun; ; await setTimeout(100, null, { signal })) {
      const now = performance.now();
      const used = usedBy(this.#program);
      if (used.ticks !== ticks) quiet = now;
      ({ ticks } = used);
      if (now - quiet > quietMs || now - begun > mostMs) return true;
    }
  }
}
