/** The copies of one thread, bulk or asynchronous: what it posts, in groups, and what it awaits. */

import { type Box, boxOf, type SimTensor } from './boxes.js';
import type { StatementAccess } from './compiled.js';
import type { AccessReport, CopyEngine, SiteId } from './detector/detector.js';
import type { Detector } from './detector/race-detector.js';
import type { FindingLog } from './findings.js';
import type { Carrier } from './flights.js';
import { type MBarrier, mbarrierBytes } from './mbarriers.js';
import type { Place, SimBuffer } from './memory.js';
import { move, type Posted, PostedCopies } from './posted.js';

export interface Issuer {
  readonly id: number;
  readonly rank: number;
  readonly block: { readonly launch: { readonly firstSite: SiteId } };
  mbarrier(place: Place): MBarrier;
  /** Bytes of a buffer are about to change, by other operations than those of mbarriers. */
  overwrites(access: StatementAccess, buffer: SimBuffer, offset: number, bytes: number): void;
  refuse(access: StatementAccess, buffer: SimBuffer, offset: number): void;
  report(access: StatementAccess): AccessReport;
  wrote(buffer: SimBuffer, offset: number, bytes: number): void;
}

interface Gate {
  readonly place: Place;
  readonly mbarrier: MBarrier;
}

interface Unawaited {
  readonly copy: Posted;
  readonly group: number;
  readonly site: number;
}

/** One side of an asynchronous operation. `kind`: what a box does to its tile. */
interface Told extends Pick<Unawaited, 'group' | 'site'> {
  readonly kind: 'read' | 'write';
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

  constructor(engine: CopyEngine, issuer: Issuer, { detector, log, random }: Carrier) {
    this.#engine = engine;
    this.#issuer = issuer;
    this.#detector = detector;
    this.#log = log;
    this.#posted = new PostedCopies(detector === null ? null : random);
  }

  /** A copy that its group's end awaits, of whole pieces of 16 bytes; or of as many as it says, between places so aligned. */
  post(to: Place, from: Place, bytes: number, site: number, alignment = 0): void {
    const copy = { to, from, bytes };
    if (this.#mayPost(copy, this.#group, site, alignment))
      this.#send(copy, copy, site, (piece) => this.#move(piece));
  }

  /** A tile to a box of a tensor, which the group's end awaits. */
  postBox(tensor: SimTensor, at: readonly number[], from: Place, site: number): void {
    // As with columns between pieces of 16 bytes: loads may begin before a tensor, stores may not. Measured, PTX does not say so.
    if (at.some((index) => index < 0))
      throw new Error(
        `a box is stored to ${at.join(', ')}: Hopper stops a kernel that stores to before a tensor's first element`,
      );
    const box = boxOf(tensor, at, from);
    const group = this.#group;
    if (!this.#mayMove(box, { tensor, group, site, kind: 'read' }, from)) return;
    const { bytes } = tensor.tile;
    this.#send(wholeBox(bytes, tensor.buffer, from.buffer), { to: tensor, from, bytes }, site, (piece) => {
      box.move(false, piece.to.offset, piece.bytes);
      for (const { inTensor, bytes } of box.rows()) this.#issuer.wrote(tensor.buffer, inTensor, bytes);
    });
  }

  /** Begins what its group's end awaits. `pieces`: where its pieces are cut, if not where it is. */
  #send(pieces: Posted, copy: Posted, site: number, move: (piece: Posted) => void): void {
    const group = this.#group;
    if (this.#detector !== null) this.#unawaited.push({ copy, group, site });
    this.#posted.post(pieces, group, { move, landed: () => {} });
  }

  /** A box of a tensor to a tile, which arrives at an mbarrier. */
  loadBox(to: Place, tensor: SimTensor, at: readonly number[], barrier: Place, site: number): void {
    this.loadBoxAt(to, tensor, at, this.#gateAt(barrier), site);
  }

  #gateAt(place: Place): Gate {
    return { place, mbarrier: this.#issuer.mbarrier(place) };
  }

  /** The same, be the tile this block's or that of another of its cluster. */
  loadBoxAt(to: Place, tensor: SimTensor, at: readonly number[], gate: Gate, site: number): void {
    const box = boxOf(tensor, at, to);
    const { bytes } = tensor.tile;
    const group = this.#group++;
    const landed = this.#arrival(group, gate, { to, bytes }, site);
    const may = this.#mayMove(box, { tensor, group, site, kind: 'write' }, to);
    this.#bring(may, wholeBox(bytes, to.buffer, tensor.buffer), group, gate, landed, (piece) => {
      box.move(true, piece.to.offset, piece.bytes);
      this.#issuer.wrote(to.buffer, to.offset, bytes);
    });
  }

  /** Arrives at an mbarrier once all copies that the thread has begun are made. */
  arriveAfterAll(place: Place, site: number): void {
    const { id, block } = this.#issuer;
    const mbarrier = this.#issuer.mbarrier(place);
    const global = block.launch.firstSite + site;
    const group = this.#group++;
    const [last] = this.#unawaited.slice(-1);
    this.#unawaited = [];
    this.#detector?.mbarrierNamed(id, place, global);
    const access = {
      kind: 'write',
      order: 'weak',
      scope: 'cta',
      bytes: last?.copy.bytes ?? 0,
      site,
    } as const;
    const arrived = mbarrier.expectLoad(0, last && { to: last.copy.to, access: this.#issuer.report(access) });
    const landed = (): void => {
      this.#posted.finish(group);
      this.#detector?.copiesArrived(id, this.#engine, group, place, global);
      arrived();
      mbarrier.expect(0);
    };
    mbarrier.loads.post({ to: place, from: place, bytes: 0 }, group, { move: () => {}, landed });
    this.#issuer.wrote(place.buffer, place.offset, mbarrierBytes);
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
  load(to: Place, from: Place, bytes: number, barrier: Place, site: number): void {
    const gate = this.#gateAt(barrier);
    const copy = { to, from, bytes };
    const group = this.#group++;
    const landed = this.#arrival(group, gate, copy, site);
    const may = this.#mayPost(copy, group, site);
    this.#bring(may, copy, group, gate, landed, (piece) => this.#move(piece));
  }

  /** Begins a load. One that may not be arrives all the same. */
  #bring(
    may: boolean,
    copy: Posted,
    group: number,
    { place, mbarrier }: Gate,
    landed: () => void,
    move: (piece: Posted) => void,
  ): void {
    if (!may) {
      landed();
      return;
    }
    mbarrier.loads.post(copy, group, { move, landed });
    // If it was put off, it comes when a thread waits for it: those that do already look again.
    this.#issuer.wrote(place.buffer, place.offset, mbarrierBytes);
  }

  /** A load is on its way to an mbarrier; returns what to call once its last byte is there. */
  #arrival(
    group: number,
    { place, mbarrier }: Gate,
    { to, bytes }: Pick<Posted, 'to' | 'bytes'>,
    site: number,
  ): () => void {
    const { id, block } = this.#issuer;
    const global = block.launch.firstSite + site;
    this.#detector?.mbarrierNamed(id, place, global);
    const access = { kind: 'write', order: 'weak', scope: 'cta', bytes, site } as const;
    if (this.#detector !== null && !mbarrier.isShown)
      this.#log.misuse(
        'this copy arrives at an mbarrier that the copy engine does not know of: behind mbarrier.init comes ' +
          'fence.mbarrier_init, or fence.proxy.async',
        place.buffer,
        place.offset,
        this.#issuer.report(access),
      );
    const arrived = mbarrier.expectLoad(
      bytes,
      this.#detector === null ? null : { to, access: this.#issuer.report(access) },
    );
    return () => {
      this.#detector?.copiesArrived(id, this.#engine, group, place, global);
      arrived();
    };
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
      this.#issuer.report({ kind, order: 'weak', scope: 'cta', bytes, site }),
    );
  }

  /** Checks that bytes may be copied, and tells the detector that they are. */
  #mayPost(copy: Posted, group: number, site: number, alignment = 0): boolean {
    if (this.#detector === null) return true;
    const { to, from, bytes } = copy;
    const form = { order: 'weak', scope: 'cta', bytes: alignment, site } as const;
    if (alignment > 0 && to.offset % alignment !== 0)
      this.#issuer.refuse({ ...form, kind: 'write' }, to.buffer, to.offset);
    else if (alignment > 0 && from.offset % alignment !== 0)
      this.#issuer.refuse({ ...form, kind: 'read' }, from.buffer, from.offset);
    else if (mayCopy(this.#issuer, this.#log, copy, site, alignment > 0 ? 1 : 16)) {
      this.#tell({ kind: 'read', group, site }, from, bytes);
      this.#tell({ kind: 'write', group, site }, to, bytes);
      return true;
    }
    return false;
  }

  #move(piece: Posted): void {
    move(piece);
    this.#issuer.wrote(piece.to.buffer, piece.to.offset, piece.bytes);
  }

  /** Checks that a box may move, and tells the detector what moves it. */
  #mayMove(box: Box, by: Told & { readonly tensor: SimTensor }, inShared: Place): boolean {
    if (this.#detector === null) return true;
    const { kind, group, site } = by;
    const { buffer, tile } = by.tensor;
    const { bytes, alignment } = tile;
    const { buffer: shared, offset: at } = inShared;
    const inTile = { kind, order: 'weak', scope: 'cta', bytes, site } as const;
    if (at < 0 || at + bytes > shared.bytes || at % alignment !== 0) {
      this.#issuer.refuse(at % alignment === 0 ? inTile : { ...inTile, bytes: alignment }, shared, at);
      return false;
    }
    if (buffer.freed) {
      this.#issuer.refuse({ ...inTile, kind: kind === 'read' ? 'write' : 'read' }, buffer, by.tensor.offset);
      return false;
    }
    const whole = [{ ...inShared, bytes }];
    const rows = box.rows().map(({ inTensor, bytes }) => ({ buffer, offset: inTensor, bytes }));
    const [reads, writes] = kind === 'read' ? [whole, rows] : [rows, whole];
    for (const { bytes, ...place } of reads) {
      const { buffer, offset } = place;
      // A tile at the end of a matrix may bring rows that nobody wrote. They are NaNs, so that no result can depend on them.
      if (kind === 'write') buffer.fillUnwritten(offset, bytes);
      else requireInitialised(this.#issuer, this.#log, { ...inTile, kind: 'read', bytes }, buffer, offset);
      this.#tell({ kind: 'read', group, site }, place, bytes);
    }
    for (const { bytes, ...place } of writes) {
      place.buffer.markInitialised(place.offset, bytes);
      this.#tell({ kind: 'write', group, site }, place, bytes);
    }
    return true;
  }

  /** Tells the detector of bytes that an asynchronous operation reads or writes. */
  #tell({ kind, group, site }: Told, place: Place, bytes: number): void {
    const { id, block } = this.#issuer;
    const global = block.launch.firstSite + site;
    this.#detector!.copyIssued(id, this.#engine, group, kind, place, bytes, global);
    const access = { kind, order: 'weak', scope: 'cta', bytes, site } as const;
    if (kind === 'write') this.#issuer.overwrites(access, place.buffer, place.offset, bytes);
  }
}

/** A box as its own bytes count, from which pieces are cut. */
function wholeBox(bytes: number, to: SimBuffer, from: SimBuffer): Posted {
  return { to: { buffer: to, offset: 0 }, from: { buffer: from, offset: 0 }, bytes };
}

/** Checks that bytes may be copied, which count as written from now on. Both ends, and how many, are multiples of `unit`. */
export function mayCopy(
  by: Pick<Issuer, 'refuse' | 'report'>,
  log: FindingLog,
  { to, from, bytes }: Posted,
  site: number,
  unit: 1 | 16,
): boolean {
  const access = { kind: 'read', order: 'weak', scope: 'cta', bytes, site } as const;
  let may = true;
  for (const [{ buffer, offset }, kind] of [
    [from, 'read'],
    [to, 'write'],
  ] as const) {
    const outside = offset < 0 || offset + bytes > buffer.bytes || buffer.freed;
    if (!outside && offset % unit === 0 && bytes % unit === 0) continue;
    by.refuse({ ...access, kind, bytes: outside ? bytes : unit }, buffer, offset);
    may = false;
  }
  if (may) requireInitialised(by, log, access, from.buffer, from.offset);
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
