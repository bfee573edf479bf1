/** The copies of one thread, bulk or asynchronous: what it posts, in groups, and what it awaits. */
import type { StatementAccess } from './compiled.js';
import type { AccessReport, CopyEngine, Detector, SiteId } from './detector/detector.js';
import type { FindingLog } from './findings.js';
import { type MBarrier, mbarrierBytes } from './mbarriers.js';
import type { SimBuffer } from './memory.js';
import { type Posted, PostedCopies } from './posted.js';
import type { Random } from './random.js';

/** The thread that posts. */
export interface Issuer {
  readonly id: number;
  readonly rank: number;
  readonly block: { readonly launch: { readonly firstSite: SiteId; readonly traffic: Float64Array } };
  mbarrier(buffer: SimBuffer, offset: number): MBarrier;
  /** Bytes of a buffer are about to change, by other operations than those of mbarriers. */
  overwrites(access: StatementAccess, buffer: SimBuffer, offset: number, bytes: number): void;
  refuse(access: StatementAccess, buffer: SimBuffer, offset: number): void;
  report(access: StatementAccess): AccessReport;
  /** Bytes of a buffer have changed. */
  wrote(buffer: SimBuffer, offset: number, bytes: number): void;
}

interface Parts {
  readonly engine: CopyEngine;
  readonly issuer: Issuer;
  readonly hub: { readonly detector: Detector | null; readonly log: FindingLog; readonly random: Random };
}

export class Copies {
  readonly #engine: CopyEngine;
  readonly #issuer: Issuer;
  readonly #detector: Detector | null;
  readonly #log: FindingLog;
  readonly #posted: PostedCopies;
  #group = 0;
  #committed: number[] = [];
  /** Checked mode: those that use shared memory as long as they are not awaited. */
  #unawaited: { readonly copy: Posted; readonly group: number; readonly site: number }[] = [];

  constructor({ engine, issuer, hub }: Parts) {
    this.#engine = engine;
    this.#issuer = issuer;
    this.#detector = hub.detector;
    this.#log = hub.log;
    this.#posted = new PostedCopies(hub.detector === null ? null : hub.random);
  }

  /** A copy that its group's end awaits. */
  post(to: SimBuffer, toAt: number, from: SimBuffer, fromAt: number, bytes: number, site: number): void {
    const copy = { to, toAt, from, fromAt, bytes };
    if (!this.#mayPost(copy, site)) return;
    this.#issued(copy, this.#group, site);
    if (this.#detector !== null) this.#unawaited.push({ copy, group: this.#group, site });
    this.#posted.post(copy, this.#group, { move: (piece) => this.#move(piece), landed: () => {} });
  }

  commit(): void {
    this.#committed.push(this.#group++);
  }

  wait(pending: number, readsOnly: boolean): void {
    const done = this.#committed.at(-1 - pending);
    if (done === undefined) return;
    this.#posted.finish(done);
    this.#unawaited = this.#unawaited.filter(({ group }) => group > done);
    this.#detector?.copiesAwaited(this.#issuer.id, this.#engine, done, readsOnly);
  }

  /** A bulk load that arrives at an mbarrier. */
  load(
    to: SimBuffer,
    toAt: number,
    from: SimBuffer,
    fromAt: number,
    bytes: number,
    barrier: SimBuffer,
    barrierAt: number,
    site: number,
  ): void {
    const issuer = this.#issuer;
    const mbarrier = issuer.mbarrier(barrier, barrierAt);
    const copy = { to, toAt, from, fromAt, bytes };
    const group = this.#group++;
    const place = { buffer: barrier, offset: barrierAt };
    const { id } = issuer;
    const global = issuer.block.launch.firstSite + site;
    this.#detector?.mbarrierNamed(id, place, global);
    const access = { kind: 'write', order: 'weak', scope: 'cta', bytes, site } as const;
    const arrived = mbarrier.expectLoad(
      bytes,
      this.#detector === null ? null : { to, toAt, access: issuer.report(access) },
    );
    const landed = () => {
      this.#detector?.bulkArrived(id, group, place, global);
      arrived();
    };
    if (!this.#mayPost(copy, site)) {
      landed();
      return;
    }
    this.#issued(copy, group, site);
    mbarrier.loads.post(copy, group, { move: (piece) => this.#move(piece), landed });
    // If it was put off, it comes when a thread waits for it: those that do already look again.
    issuer.wrote(barrier, barrierAt, mbarrierBytes);
  }

  /** The thread has run to its end, and its copies with it. `failed`: not as it was meant to. */
  end(failed: boolean): void {
    if (!failed) for (const one of this.#unawaited) this.#reportUnawaited(one);
    this.#unawaited = [];
    this.#posted.finish(this.#group);
    this.#group = 0;
    this.#committed = [];
  }

  #reportUnawaited({
    copy: { to, toAt, from, fromAt, bytes },
    group,
    site,
  }: {
    readonly copy: Posted;
    readonly group: number;
    readonly site: number;
  }): void {
    const reads = from.space === 'shared';
    const [buffer, offset] = reads ? [from, fromAt] : [to, toAt];
    const engine = `g.${this.#engine}`;
    const what =
      group === this.#group
        ? `is of no group that can be awaited: ${engine}.commit comes first, then a wait`
        : `has not been awaited: do so before the end of the kernel (${engine}.${reads ? 'waitReads' : 'wait'})`;
    const kind = reads ? 'read' : 'write';
    this.#log.add({
      kind: 'misuse',
      message: `its thread ends while this copy may still ${kind} shared memory, which is then the next block's; the copy ${what}`,
      buffer: buffer.purpose,
      location: buffer.describe(offset),
      access: this.#issuer.report({ kind, order: 'weak', scope: 'cta', bytes, site }),
    });
  }

  #issued({ to, toAt, from, fromAt, bytes }: Posted, group: number, site: number): void {
    const { id, block } = this.#issuer;
    const [source, target] = [
      { buffer: from, offset: fromAt },
      { buffer: to, offset: toAt },
    ];
    if (this.#detector === null) return;
    this.#detector.copyIssued(id, this.#engine, group, source, target, bytes, block.launch.firstSite + site);
    const access = { kind: 'write', order: 'weak', scope: 'cta', bytes, site } as const;
    this.#issuer.overwrites(access, to, toAt, bytes);
  }

  #mayPost(copy: Posted, site: number): boolean {
    return this.#detector === null || mayCopy(this.#issuer, this.#log, copy, site, 16);
  }

  #move({ to, toAt, from, fromAt, bytes }: Posted): void {
    to.u8.set(from.u8.subarray(fromAt, fromAt + bytes), toAt);
    const { traffic } = this.#issuer.block.launch;
    if (to.rank !== this.#issuer.rank) traffic[0]! += bytes;
    if (from.rank !== this.#issuer.rank) traffic[1]! += bytes;
    this.#issuer.wrote(to, toAt, bytes);
  }
}

/** Checks that bytes may be copied, which count as written from now on. Both ends, and how many, are multiples of `unit`. */
export function mayCopy(
  by: Pick<Issuer, 'refuse' | 'report'>,
  log: FindingLog,
  { to, toAt, from, fromAt, bytes }: Posted,
  site: number,
  unit: 1 | 16,
): boolean {
  const access = { kind: 'read', order: 'weak', scope: 'cta', bytes, site } as const;
  let may = true;
  for (const [buffer, offset, kind] of [
    [from, fromAt, 'read'],
    [to, toAt, 'write'],
  ] as const) {
    const outside = offset < 0 || offset + bytes > buffer.bytes || buffer.freed;
    if (!outside && offset % unit === 0 && bytes % unit === 0) continue;
    by.refuse({ ...access, kind, bytes: outside ? bytes : unit }, buffer, offset);
    may = false;
  }
  if (may && !from.isInitialised(fromAt, bytes)) {
    log.add({
      kind: 'uninitialised-read',
      buffer: from.purpose,
      location: from.describe(from.firstUninitialised(fromAt, bytes)),
      access: by.report(access),
    });
  }
  if (may) to.markInitialised(toAt, bytes);
  return may;
}
