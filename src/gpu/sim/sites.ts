import { getOrMake } from '../../base/maps.js';
import { writtenLine } from '../../lang/index.js';
import type { Compiled } from './compiled.js';
import type { Site, SiteId } from './detector/detector.js';

/** The accesses of hosts' threads to mapped memory, and to the network: post writes, hear of those that have come, and flush them. */
export type HostOperation = 'load' | 'store' | 'read' | 'write' | 'post' | 'hear' | 'flush';

/** The program that is no thread beside it. */
export const hostProgram = 'the host';

/** A line of a host's program. */
export interface HostSite extends Site {
  readonly operation: HostOperation;
}

/** Numbers the statements of all kernels that a machine has loaded, and the lines of hosts that take part in it. */
export class SiteRegistry {
  readonly #first = new Map<Compiled, SiteId>();
  readonly #hosts = new Map<string, { readonly id: SiteId; readonly site: HostSite }>();
  readonly #sites: Site[] = [];
  readonly #hostLines: boolean;

  /** Without `hostLines`, all that a program does in one way is one site: V8 takes long to tell the lines. */
  constructor(hostLines: boolean) {
    this.#hostLines = hostLines;
  }

  /** The number of the kernel's first statement; the others follow. */
  register(compiled: Compiled): SiteId {
    return getOrMake(this.#first, compiled, () => {
      const first = this.#sites.length;
      for (const site of compiled.sites) this.#sites.push(site);
      return first;
    });
  }

  /** The number of the line that called a method. `program`: the thread's that did. */
  ofHost(called: Method, operation: HostOperation, program: string): SiteId {
    const { where, text } = this.#hostLines ? hostLine(called) : unknown;
    const key = `${program} ${where} ${operation}`;
    return getOrMake(this.#hosts, key, () => {
      const site = { kernel: program, span: { start: 0, end: 0, source: 0 }, where, text, operation };
      return { id: this.#sites.push(site) - 1, site };
    }).id;
  }

  /** Sites of threads of hosts so far. */
  get ofThreads(): HostSite[] {
    return [...this.#hosts.values()].map(({ site }) => site).filter(({ kernel }) => kernel !== hostProgram);
  }

  site(id: SiteId): Site {
    return this.#sites[id]!;
  }
}

type Method = (...args: never[]) => unknown;
type Line = ReturnType<typeof writtenLine>;

/** By where V8 says that their code is: to find out what a line is called takes much longer. */
const lines = new Map<string, Line>();
const unknown: Line = { where: hostProgram, text: 'by the host' };

const placeOf = (_: Error, [caller]: NodeJS.CallSite[]): string =>
  `${caller?.getScriptNameOrSourceURL()} ${caller?.getPosition()}`;

/** The line that called a method, which is running: 'src/moe/families/hybrid/proxy.ts:102:30'. Only V8 tells it. */
export function hostLine(called: Method): Line {
  if (Error.captureStackTrace === undefined) return unknown;
  const { prepareStackTrace, stackTraceLimit } = Error;
  const raw: { stack?: unknown } = {};
  const readable: { stack?: unknown } = {};
  try {
    // Each frame takes time: of those beyond the method one is enough.
    Error.stackTraceLimit = 1;
    Error.prepareStackTrace = placeOf;
    Error.captureStackTrace(raw, called);
    const place = String(raw.stack);
    Error.prepareStackTrace = prepareStackTrace;
    return getOrMake(lines, place, () => {
      Error.captureStackTrace(readable, called);
      return lineOf(String(readable.stack).split('\n')[1] ?? '');
    });
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function lineOf(frame: string): Line {
  const [, script, row, column] = /((?:[a-z]+:\/\/|\/)[^()]+):(\d+):(\d+)\)?$/.exec(frame) ?? [];
  if (script === undefined) return unknown;
  return writtenLine(script, { line: Number(row), column: Number(column) });
}
