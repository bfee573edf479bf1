/** Simulated mapped memory: the host's accesses are the machine's business, as kernels wait for what hosts store. */
import { type HostView, requireWithin, wordAt } from '../device/index.js';
import type { Order } from '../lang/index.js';
import type { AccessKind } from './detector.js';
import type { Engine } from './engine.js';
import type { SimBuffer } from './memory.js';
import type { SiteRegistry } from './sites.js';

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
    this.accessed('read', 'acquire', offset, 4, choice);
    return value >>> 0;
  }

  store(offset: number, value: number): void {
    const at = wordAt(offset, this.buffer.bytes);
    this.accessed('write', 'release', offset, 4);
    this.buffer.i32[at] = value;
    this.wrote(offset, 4);
  }

  read(offset: number, into: Uint8Array): void {
    requireWithin(offset, into.length, this.buffer.bytes);
    this.accessed('read', 'weak', offset, into.length);
    into.set(this.buffer.u8.subarray(offset, offset + into.length));
  }

  write(offset: number, from: Uint8Array): void {
    requireWithin(offset, from.length, this.buffer.bytes);
    this.accessed('write', 'weak', offset, from.length);
    this.buffer.u8.set(from, offset);
    this.wrote(offset, from.length);
  }

  private accessed(kind: AccessKind, order: Order, offset: number, bytes: number, older = 0): void {
    const { detector } = this.engine;
    if (detector === null || bytes === 0) return;
    const thread = this.engine.hostThread(this.buffer.rank);
    const site = this.sites.ofHost(hostSite(SimHostView));
    detector.access(thread, kind, order, 'sys', this.buffer, offset, bytes, site, older);
  }

  private wrote(offset: number, bytes: number): void {
    if (this.buffer.waiters !== 0) this.engine.wake(this.buffer, offset, bytes);
    this.engine.work();
  }
}

/** The line that called a method of a class: 'src/world/proxy.ts:41:7'. */
export function hostSite(called: { readonly name: string }): string {
  const { stack = '' } = new Error();
  const lines = stack.split('\n').slice(1);
  const line = lines.find((text) => !text.includes(`at ${called.name}.`) && !text.includes('hostSite')) ?? '';
  const [, path, place] = /(\/[^:()]+)(:\d+:\d+)\)?$/.exec(line) ?? [];
  // A browser has no folder in which the program runs.
  const here = `${globalThis.process?.cwd() ?? ''}/`;
  return path === undefined ? 'the host' : `${path.replace(here, '')}${place}`;
}
