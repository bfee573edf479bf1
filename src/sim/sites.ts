import { writtenLine } from '../lang/index.js';
import type { Compiled } from './compiled.js';
import type { Site, SiteId } from './detector.js';

/** What threads of hosts do in mapped memory, and at the network: post writes, and hear of those that have come. */
export type HostOperation = 'load' | 'store' | 'read' | 'write' | 'post' | 'hear';

/** The program that is no thread beside it. */
export const hostProgram = 'the host';

/** A line of a host's program. */
export interface HostSite extends Site {
  readonly operation: HostOperation;
}

/** Numbers the statements of all kernels that a machine has loaded, and the lines of hosts that take part in it. */
export class SiteRegistry {
  private readonly first = new Map<Compiled, SiteId>();
  private readonly hosts = new Map<string, { readonly id: SiteId; readonly site: HostSite }>();
  private readonly sites: Site[] = [];

  /** The number of the kernel's first statement; the others follow. */
  register(compiled: Compiled): SiteId {
    let first = this.first.get(compiled);
    if (first === undefined) {
      first = this.sites.length;
      this.first.set(compiled, first);
      for (const site of compiled.sites) this.sites.push(site);
    }
    return first;
  }

  /** The number of the line that called a method of `called`. `program`: the thread's that did. */
  ofHost(called: Class, operation: HostOperation, program: string): SiteId {
    const { where, text } = hostLine(called);
    const key = `${program} ${where} ${operation}`;
    let known = this.hosts.get(key);
    if (known === undefined) {
      const span = { start: 0, end: 0, source: 0 };
      known = { id: this.sites.length, site: { kernel: program, span, where, text, operation } };
      this.hosts.set(key, known);
      this.sites.push(known.site);
    }
    return known.id;
  }

  /** Those of hosts' threads so far. */
  get ofThreads(): HostSite[] {
    return [...this.hosts.values()].map(({ site }) => site).filter(({ kernel }) => kernel !== hostProgram);
  }

  site(id: SiteId): Site {
    return this.sites[id]!;
  }
}

type Class = { readonly name: string };
type Line = ReturnType<typeof writtenLine>;

const lines = new Map<string, Line>();
const unknown: Line = { where: hostProgram, text: 'by the host' };

/** The line that called a method of a class: 'src/kernels/hybrid/proxy.ts:102:30'. */
export function hostLine(called: Class): Line {
  const { stack = '' } = new Error();
  const [, ...frames] = stack.split('\n');
  const own = frames.findIndex((frame) => frame.includes(`at ${called.name}.`));
  const frame = frames.slice(own).find((text) => !text.includes(`at ${called.name}.`)) ?? '';
  let line = lines.get(frame);
  if (line === undefined) {
    const [, script, row, column] = /((?:[a-z]+:\/\/|\/)[^()]+):(\d+):(\d+)\)?$/.exec(frame) ?? [];
    line =
      script === undefined ? unknown : writtenLine(script, { line: Number(row), column: Number(column) });
    lines.set(frame, line);
  }
  return line;
}
