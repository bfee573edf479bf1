/** The copies of one thread, bulk or asynchronous: what it posts, in groups, and what it awaits. */
import type { StatementAccess } from './compiled.js';
import type { AccessReport, CopyEngine, Detector, SiteId } from './detector/detector.js';
import type { FindingLog } from './findings.js';
import type { MBarrier } from './mbarriers.js';
import type { SimBuffer } from './memory.js';
import { type Posted, PostedCopies } from './posted.js';
import type { Random } from './random.js';

/** The thread that posts. */
export interface Issuer {
  readonly id: number;
  readonly rank: number;
  readonly block: { readonly launch: { readonly firstSite: SiteId; readonly traffic: Float64Array } };
  mbarrier(buffer: SimBuffer, offset: number): MBarrier;
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
    this.#posted.post(copy, this.#group, { move: (piece) => this.#move(piece), landed: () => {} });
  }

  commit(): void {
    this.#committed.push(this.#group++);
  }

  wait(pending: number, readsOnly: boolean): void {
    const done = this.#committed.at(-1 - pending);
    if (done === undefined) return;
    this.#posted.finish(done);
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
    const mbarrier = this.#issuer.mbarrier(barrier, barrierAt);
    const copy = { to, toAt, from, fromAt, bytes };
    const group = this.#group++;
    const landed = () => {
      const { id, block } = this.#issuer;
      const place = { buffer: barrier, offset: barrierAt };
      this.#detector?.bulkArrived(id, group, place, block.launch.firstSite + site);
      mbarrier.landed(bytes);
    };
    if (!this.#mayPost(copy, site)) {
      landed();
      return;
    }
    this.#issued(copy, group, site);
    mbarrier.loads.post(copy, group, { move: (piece) => this.#move(piece), landed });
  }

  /** The thread has run to its end, and its copies with it. */
  end(): void {
    this.#posted.finish(this.#group);
    this.#group = 0;
    this.#committed = [];
  }

  #issued({ to, toAt, from, fromAt, bytes }: Posted, group: number, site: number): void {
    const { id, block } = this.#issuer;
    const [source, target] = [
      { buffer: from, offset: fromAt },
      { buffer: to, offset: toAt },
    ];
    this.#detector?.copyIssued(id, this.#engine, group, source, target, bytes, block.launch.firstSite + site);
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
