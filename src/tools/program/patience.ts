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

/** The threads of a program's processes, those of its session and all that these start, and the time that they have used, in ticks of the system. */
function usedBy(program: number): { readonly threads: number; readonly ticks: number } {
  const all = readdirSync('/proc').flatMap((id) => {
    try {
      return /^\d+$/.test(id) ? [{ id: Number(id), fields: statOf(`/proc/${id}`).map(Number) }] : [];
    } catch {
      return []; // It has ended meanwhile.
    }
  });
  let its = all.filter(({ fields }) => fields[3] === program);
  for (let before = -1; before < its.length; ) {
    before = its.length;
    const ids = new Set(its.map(({ id }) => id));
    its = all.filter(({ id, fields }) => ids.has(id) || ids.has(fields[1]!));
  }
  const sum = (field: number): number => its.reduce((total, { fields }) => total + fields[field]!, 0);
  return { threads: sum(17), ticks: sum(11) + sum(12) };
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
