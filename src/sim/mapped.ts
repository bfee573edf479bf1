/** Simulated mapped memory: the host's accesses are the machine's business, as kernels wait for what hosts store. */
import { type HostView, requireWithin, wordAt } from '../device/index.js';
import type { Order } from '../lang/index.js';
import type { AccessKind } from './detector.js';
import type { Engine } from './engine.js';
import type { SimBuffer } from './memory.js';
import type { SiteRegistry } from './sites.js';

interface HostAccess {
  readonly kind: AccessKind;
  readonly order: Order;
  readonly offset: number;
  readonly bytes: number;
  readonly older?: number;
}

export class SimHostView implements HostView {
  constructor(
    private readonly engine: Engine,
    private readonly sites: SiteRegistry,
    private readonly buffer: SimBuffer,
  ) {}

  load(offset: number): number {
    const at = wordAt(offset, this.buffer.bytes);
    const { engine, buffer } = this;
    const older = engine.detector?.olderValues(engine.hostThread(buffer.rank), buffer, offset, 4) ?? [];
    const choice = older.length === 0 ? 0 : engine.pickHostStore(1 + older.length);
    const value = choice === 0 ? buffer.i32[at]! : older[choice - 1]!.words[0]!;
    this.accessed(this.load, { kind: 'read', order: 'acquire', offset, bytes: 4, older: choice });
    return value >>> 0;
  }

  store(offset: number, value: number): void {
    const at = wordAt(offset, this.buffer.bytes);
    this.accessed(this.store, { kind: 'write', order: 'release', offset, bytes: 4 });
    this.buffer.i32[at] = value;
    this.wrote(offset, 4);
  }

  read(offset: number, into: Uint8Array): void {
    requireWithin(offset, into.length, this.buffer.bytes);
    this.accessed(this.read, { kind: 'read', order: 'weak', offset, bytes: into.length });
    into.set(this.buffer.u8.subarray(offset, offset + into.length));
  }

  write(offset: number, from: Uint8Array): void {
    requireWithin(offset, from.length, this.buffer.bytes);
    this.accessed(this.write, { kind: 'write', order: 'weak', offset, bytes: from.length });
    this.buffer.u8.set(from, offset);
    this.wrote(offset, from.length);
  }

  private accessed(
    by: (...args: never[]) => unknown,
    { kind, order, offset, bytes, older = 0 }: HostAccess,
  ): void {
    const { detector } = this.engine;
    if (detector === null || bytes === 0) return;
    const thread = this.engine.hostThread(this.buffer.rank);
    const site = this.sites.ofHost(hostSite(by));
    detector.access(thread, kind, order, 'sys', this.buffer, offset, bytes, site, older);
  }

  private wrote(offset: number, bytes: number): void {
    if (this.buffer.waiters !== 0) this.engine.wake(this.buffer, offset, bytes);
    this.engine.work();
  }
}

/** Lines of host programs, by what V8 knows them by: what a line is called takes long to find out. */
const lines = new Map<string, string>();

/** The line that called a method: 'src/world/proxy.ts:41:7'. Only V8 tells it. */
export function hostSite(method: (...args: never[]) => unknown): string {
  if (Error.captureStackTrace === undefined) return 'the host';
  const { stackTraceLimit, prepareStackTrace } = Error;
  const raw: { stack?: unknown } = {};
  try {
    Error.stackTraceLimit = 1;
    Error.prepareStackTrace = (_, [site]) => `${site?.getScriptNameOrSourceURL()} ${site?.getPosition()}`;
    Error.captureStackTrace(raw, method);
    const key = String(raw.stack);
    Error.prepareStackTrace = prepareStackTrace;
    const known = lines.get(key);
    if (known !== undefined) return known;
    const named: { stack?: string } = {};
    Error.captureStackTrace(named, method);
    const line = lineOf(named.stack ?? '');
    lines.set(key, line);
    return line;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
    Error.prepareStackTrace = prepareStackTrace;
  }
}

/** Of the only frame that the trace has. */
function lineOf(stack: string): string {
  const [, path, place] = /(\/[^:()]+)(:\d+:\d+)\)?$/.exec(stack) ?? [];
  // A browser has no folder in which the program runs.
  const here = `${globalThis.process?.cwd() ?? ''}/`;
  return path === undefined ? 'the host' : `${path.replace(here, '')}${place}`;
}
