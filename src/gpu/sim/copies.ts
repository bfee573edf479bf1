/** The copies of one thread, bulk or asynchronous: what it posts, in groups, and what it awaits. */

import { boxOf, type SimTensor } from './boxes.js';
import { type StatementAccess, weakly } from './compiled.js';
import type { AccessReport, CopyEngine, SiteId } from './detector/detector.js';
import type { Detector } from './detector/race-detector.js';
import type { FindingLog } from './findings.js';
import type { NetworkServices } from './flights.js';
import { type MBarrier, mbarrierBytes } from './mbarriers.js';
import type { ByteAt, SimBuffer } from './memory.js';
import { move, type Posted, PostedCopies, type Stretch } from './posted.js';
import { tensorMapBytes } from './tensor-maps.js';

/** The thread, as far as what it starts beside itself must know it. */
export interface Issuer {
  readonly id: number;
  readonly rank: number;
  readonly block: { readonly launch: { readonly firstSite: SiteId } };
  mbarrier(place: ByteAt): MBarrier;
  mayAccess(access: StatementAccess, buffer: SimBuffer, offset: number): boolean;
  /** Bytes of a buffer are about to change, by other operations than those of mbarriers. */
  overwrites(access: StatementAccess, buffer: SimBuffer, offset: number, bytes: number): void;
  refuse(access: StatementAccess, buffer: SimBuffer, offset: number): void;
  report(access: StatementAccess): AccessReport;
  wrote(buffer: SimBuffer, offset: number, bytes: number): void;
}

/** What is to be copied: plain bytes, or a box of a tensor. */
interface Job {
  /** Its ends, as findings name them. */
  readonly copy: Posted;
  /** Where its pieces are cut. */
  readonly pieces: Posted;
  /** The tensor map that it reads, if kernels may have changed it. */
  readonly map?: ByteAt | undefined;
  move(piece: Posted): void;
  /** Checks that the copy is allowed. From then on what it writes counts as written. */
  isAllowed(site: number): boolean;
  touches(): { readonly reads: readonly Stretch[]; readonly writes: readonly Stretch[] };
}

interface Unawaited {
  readonly copy: Posted;
  readonly group: number;
  readonly site: number;
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
  #unawaited: Unawaited[] = [];

  constructor(engine: CopyEngine, issuer: Issuer, { detector, log, random }: NetworkServices) {
    this.#engine = engine;
    this.#issuer = issuer;
    this.#detector = detector;
    this.#log = log;
    this.#posted = new PostedCopies(detector === null ? null : random);
  }

  /** A copy that its group's end awaits, of whole pieces of 16 bytes; or of as many as it says, between places so aligned. */
  post(to: ByteAt, from: ByteAt, bytes: number, site: number, alignment = 0): void {
    this.#send(this.#plain({ to, from, bytes }, alignment), site);
  }

  /** A tile to a box of a tensor, which the group's end awaits. */
  postBox(tensor: SimTensor, at: readonly number[], from: ByteAt, site: number): void {
    // As with columns between pieces of 16 bytes: loads may begin before a tensor, stores may not. Measured, PTX does not say so.
    if (at.some((index) => index < 0))
      throw new Error(
        `a box is stored to ${at.join(', ')}: Hopper stops a kernel that stores to before a tensor's first element`,
      );
    this.#send(this.#boxed(tensor, at, from, false), site);
  }

  /** A bulk load that arrives at an mbarrier. */
  load(to: ByteAt, from: ByteAt, bytes: number, barrier: ByteAt, site: number): void {
    this.#bring(this.#plain({ to, from, bytes }), this.#issuer.mbarrier(barrier), site);
  }

  /** A box of a tensor to a tile, which arrives at an mbarrier. */
  loadBox(to: ByteAt, tensor: SimTensor, at: readonly number[], barrier: ByteAt, site: number): void {
    this.loadBoxAt(to, tensor, at, this.#issuer.mbarrier(barrier), site);
  }

  /** Loads a box into a tile of this block, or of another block of its cluster. */
  loadBoxAt(to: ByteAt, tensor: SimTensor, at: readonly number[], mbarrier: MBarrier, site: number): void {
    this.#bring(this.#boxed(tensor, at, to, true), mbarrier, site);
  }

  /** Begins a copy that is awaited with its group. */
  #send(job: Job, site: number): void {
    const group = this.#group;
    if (!this.#begins(job, group, site)) return;
    if (this.#detector !== null) this.#unawaited.push({ copy: job.copy, group, site });
    this.#posted.post(job.pieces, group, { move: job.move, landed: () => {} });
  }

  /** Begins a load. One that may not be arrives all the same. */
  #bring(job: Job, mbarrier: MBarrier, site: number): void {
    const group = this.#group++;
    const { to, bytes } = job.copy;
    const { place, isShown } = mbarrier;
    if (this.#detector !== null && !isShown)
      this.#log.misuse(
        'this copy arrives at an mbarrier that the copy engine does not know of: behind mbarrier.init comes ' +
          'fence.mbarrier_init, or fence.proxy.async',
        place.buffer,
        place.offset,
        this.#issuer.report(weakly('write', bytes, site)),
      );
    const landed = this.#arrival(group, mbarrier, bytes, { to, bytes }, site);
    if (!this.#begins(job, group, site)) {
      landed();
      return;
    }
    mbarrier.loads.post(job.pieces, group, { move: job.move, landed });
    // A load that was put off comes when a thread waits for it, so threads that wait already must look again.
    this.#issuer.wrote(place.buffer, place.offset, mbarrierBytes);
  }

  /** What it does besides copies touches these bytes; `own`: by the thread's own path to memory. */
  touch(kind: 'read' | 'write', place: ByteAt, bytes: number, site: number, own: boolean): void {
    const { id, block } = this.#issuer;
    const global = block.launch.firstSite + site;
    this.#detector?.copyIssued(id, this.#engine, this.#group, kind, place, bytes, global, own);
  }

  /** Arrives at an mbarrier once all that the thread has begun is done. */
  arriveAfterAll(mbarrier: MBarrier, site: number): void {
    const { place } = mbarrier;
    const group = this.#group++;
    const last = this.#unawaited.at(-1)?.copy ?? null;
    this.#unawaited = [];
    const arrived = this.#arrival(group, mbarrier, 0, last, site);
    const landed = (): void => {
      this.#posted.finish(group);
      arrived();
      mbarrier.expect(0);
    };
    mbarrier.loads.post({ to: place, from: place, bytes: 0 }, group, { move: () => {}, landed });
    this.#issuer.wrote(place.buffer, place.offset, mbarrierBytes);
  }

  /** Bytes are on their way to an mbarrier, the last of them that load; returns what to call once all are there. */
  #arrival(
    group: number,
    mbarrier: MBarrier,
    bytes: number,
    load: Pick<Posted, 'to' | 'bytes'> | null,
    site: number,
  ): () => void {
    const { id, block } = this.#issuer;
    const { place } = mbarrier;
    const global = block.launch.firstSite + site;
    this.#detector?.mbarrierNamed(id, place, global);
    const arrived = mbarrier.expectLoad(
      bytes,
      load === null || this.#detector === null
        ? null
        : { to: load.to, access: this.#issuer.report(weakly('write', load.bytes, site)) },
    );
    const behind = this.#engine === 'tcgen05' ? (this.#detector?.released(id) ?? null) : null;
    return () => {
      this.#detector?.copiesArrived(id, this.#engine, group, place, global, behind);
      arrived();
    };
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

  /** The thread has run to its end, and its copies with it. `failed`: not as it was meant to. */
  end(failed: boolean): void {
    if (!failed) for (const one of this.#unawaited) this.#reportUnawaited(one);
    this.#unawaited = [];
    this.#posted.finish(this.#group);
    this.#group = 0;
    this.#committed = [];
  }

  #reportUnawaited({ copy: { to, from, bytes }, group, site }: Unawaited): void {
    const reads = from.buffer.space === 'shared';
    const { buffer, offset } = reads ? from : to;
    const engine = `g.${this.#engine}`;
    const what =
      group === this.#group
        ? `is of no group that can be awaited: ${engine}.commit comes first, then a wait`
        : `has not been awaited: do so before the end of the kernel (${engine}.${reads ? 'waitReads' : 'wait'})`;
    const kind = reads ? 'read' : 'write';
    this.#log.misuse(
      `its thread ends while this copy may still ${kind} shared memory, which is then the next block's; the copy ${what}`,
      buffer,
      offset,
      this.#issuer.report(weakly(kind, bytes, site)),
    );
  }

  /** Plain bytes. Without an alignment (0) the copy must consist of whole pieces of 16 bytes. */
  #plain(copy: Posted, alignment = 0): Job {
    const { to, from, bytes } = copy;
    const issuer = this.#issuer;
    return {
      copy,
      pieces: copy,
      move: (piece) => {
        move(piece);
        issuer.wrote(piece.to.buffer, piece.to.offset, piece.bytes);
      },
      isAllowed: (site) => {
        const wrong = alignment === 0 ? undefined : [to, from].find(({ offset }) => offset % alignment !== 0);
        if (wrong === undefined) return mayCopy(issuer, this.#log, copy, site, alignment > 0 ? 1 : 16);
        issuer.refuse(weakly(wrong === to ? 'write' : 'read', alignment, site), wrong.buffer, wrong.offset);
        return false;
      },
      touches: () => ({ reads: [stretch(from, bytes)], writes: [stretch(to, bytes)] }),
    };
  }

  /** A box that is loaded to a tile, or stored from it. */
  #boxed(tensor: SimTensor, at: readonly number[], tile: ByteAt, loads: boolean): Job {
    const box = boxOf(tensor, at, tile);
    const issuer = this.#issuer;
    const { bytes, alignment } = tensor.tile;
    const [to, from] = loads ? [tile, tensor] : [tensor, tile];
    const whole = [stretch(tile, bytes)];
    return {
      copy: { to, from, bytes },
      map: tensor.map,
      // As its own bytes count.
      pieces: { to: { buffer: to.buffer, offset: 0 }, from: { buffer: from.buffer, offset: 0 }, bytes },
      move: (piece) => {
        box.move(loads, piece.to.offset, piece.bytes);
        for (const { buffer, offset, bytes } of loads ? whole : box.rows())
          issuer.wrote(buffer, offset, bytes);
      },
      isAllowed: (site) => {
        const { buffer, offset } = tile;
        const isAligned = offset % alignment === 0;
        const mayTouch = isAligned && offset >= 0 && offset + bytes <= buffer.bytes;
        if (!mayTouch)
          issuer.refuse(
            weakly(loads ? 'write' : 'read', isAligned ? bytes : alignment, site),
            buffer,
            offset,
          );
        else if (tensor.buffer.freed)
          issuer.refuse(weakly(loads ? 'read' : 'write', bytes, site), tensor.buffer, tensor.offset);
        else {
          // A tile at the end of a matrix may bring rows that nobody wrote. They are NaNs, so that no result can depend on them.
          if (loads) for (const row of box.rows()) row.buffer.fillUnwritten(row.offset, row.bytes);
          else requireInitialised(issuer, this.#log, weakly('read', bytes, site), buffer, offset);
          for (const one of loads ? whole : box.rows()) one.buffer.markInitialised(one.offset, one.bytes);
          return true;
        }
        return false;
      },
      touches: () => (loads ? { reads: box.rows(), writes: whole } : { reads: whole, writes: box.rows() }),
    };
  }

  /** Checks in checked mode that a copy may be, and tells the detector of the bytes that it reads and writes. */
  #begins(job: Job, group: number, site: number): boolean {
    if (this.#detector === null) return true;
    if (!job.isAllowed(site)) return false;
    const { id, block } = this.#issuer;
    const global = block.launch.firstSite + site;
    const { reads, writes } = job.touches();
    if (job.map !== undefined)
      this.#detector.copyIssued(id, 'map', group, 'read', job.map, tensorMapBytes, global);
    for (const place of reads)
      this.#detector.copyIssued(id, this.#engine, group, 'read', place, place.bytes, global);
    for (const place of writes) {
      const { buffer, offset, bytes } = place;
      this.#detector.copyIssued(id, this.#engine, group, 'write', place, bytes, global);
      this.#issuer.overwrites(weakly('write', bytes, site), buffer, offset, bytes);
    }
    return true;
  }
}

const stretch = ({ buffer, offset }: ByteAt, bytes: number): Stretch => ({ buffer, offset, bytes });

/** Checks that bytes may be copied, which count as written from now on. Both ends, and how many, are multiples of `unit`. */
export function mayCopy(
  by: Pick<Issuer, 'refuse' | 'report'>,
  log: FindingLog,
  { to, from, bytes }: Posted,
  site: number,
  unit: 1 | 16,
): boolean {
  if (bytes % unit !== 0) {
    const message = `this copy is of ${bytes} bytes: it must be of whole pieces of ${unit}`;
    log.misuse(message, to.buffer, to.offset, by.report(weakly('write', bytes, site)));
    return false;
  }
  let may = true;
  for (const [{ buffer, offset }, kind] of [
    [from, 'read'],
    [to, 'write'],
  ] as const) {
    const outside = offset < 0 || offset + bytes > buffer.bytes || buffer.freed;
    if (!outside && offset % unit === 0) continue;
    by.refuse(weakly(kind, outside ? bytes : unit, site), buffer, offset);
    may = false;
  }
  if (may) requireInitialised(by, log, weakly('read', bytes, site), from.buffer, from.offset);
  if (may) to.buffer.markInitialised(to.offset, bytes);
  return may;
}

/** Bytes that are read must have been written. False where they were not. */
export function requireInitialised(
  by: Pick<Issuer, 'report'>,
  log: FindingLog,
  access: StatementAccess,
  from: SimBuffer,
  offset: number,
): boolean {
  const first = from.firstUninitialised(offset, access.bytes);
  if (first >= 0) log.uninitialised(from, first, by.report(access));
  return first < 0;
}
