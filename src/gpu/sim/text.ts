/** JavaScript of kernels, as both generators write it. */
import { pause, type StatementAccess, type StatementWait } from './compiled.js';
import type { Site } from './detector/detector.js';
import type { LaneMeeting } from './lanes.js';

/** A word without its sign, for comparisons and the like. */
export const unsigned = (text: string): string => (/^\d+$/.test(text) ? text : `(${text} >>> 0)`);

/** A number, in parentheses where it has a sign. */
export function literal(value: number): string {
  if (Object.is(value, -0)) return '(-0)';
  return value < 0 ? `(${value})` : String(value);
}

/** The kind of value in a JavaScript local, so that V8 sees one representation in each: integer, float, bigint, boolean, object. */
export type LocalKind = 'i' | 'f' | 'n' | 'b' | 'q';

const initial: Readonly<Record<LocalKind, string>> = { i: '0', f: '0.5', n: '0n', b: 'false', q: 'null' };

/** The locals of a function, taken and given back. */
export class LocalPool {
  readonly #all: string[] = [];
  readonly #free: Record<LocalKind, string[]> = { i: [], f: [], n: [], b: [], q: [] };
  readonly #counts: Record<LocalKind, number> = { i: 0, f: 0, n: 0, b: 0, q: 0 };

  constructor(readonly prefix = '') {}

  take(kind: LocalKind): string {
    const free = this.#free[kind].pop();
    if (free !== undefined) return free;
    const name = `${this.prefix}${kind}${this.#counts[kind]++}`;
    this.#all.push(`${name} = ${initial[kind]}`);
    return name;
  }

  give(names: readonly string[]): void {
    for (const name of names) this.#free[name[this.prefix.length] as LocalKind].push(name);
  }

  declaration(): string {
    return this.#all.length === 0 ? '' : `let ${this.#all.join(', ')};`;
  }
}

/** Builtins and parts of the thread, by the names that the code of every kernel uses for them. */
const prologue: Readonly<Record<string, string>> = {
  threadIdx: 't.index',
  blockIdx: 't.block.index',
  blockDim: 't.block.launch.block',
  gridDim: 't.block.launch.grid',
  args: 't.block.launch.args',
  words: 't.block.words',
  accesses: 't.block.launch.compiled.accesses',
  waits: 't.block.launch.compiled.waits',
  meetings: 't.block.launch.compiled.meetings',
};

/** Declares those that a text uses, and those of its own. */
export function constants(body: string, own: Readonly<Record<string, string>>): string {
  const used = Object.entries({ ...prologue, ...own })
    .filter(([name]) => new RegExp(`(?<![.\\w])${name}\\b`).test(body))
    .map(([name, value]) => `${name} = ${value}`);
  return used.length === 0 ? '' : `const ${used.join(', ')};`;
}

/** The objects that the code of a kernel names by numbers. */
export class Named {
  readonly sites: Site[] = [];
  readonly accesses: StatementAccess[] = [];
  readonly waits: StatementWait[] = [];
  readonly meetings: LaneMeeting[] = [];

  access(access: StatementAccess): string {
    return `accesses[${this.accesses.push(access) - 1}]`;
  }

  wait(wait: StatementWait): string {
    return `waits[${this.waits.push(wait) - 1}]`;
  }

  /** The lanes that a mask names wait for each other. */
  meet(meeting: LaneMeeting, mask: string, site: number): string {
    const number = this.meetings.push(meeting) - 1;
    return `t.meetLanes(meetings[${number}], ${mask}, ${site}); yield ${pause.lanes};`;
  }
}
