/** One access, packed into a number: what the shadow memory remembers besides actor and epoch. */
import type { Order } from '../../../lang/index.js';
import { type Actor, type Reach, reachOf } from './actors.js';
import type { AccessKind, DetectedForm, SiteId } from './detector.js';

const kinds: readonly AccessKind[] = ['read', 'write', 'update'];
const orders: readonly Order[] = ['weak', 'relaxed', 'acquire', 'release', 'acq_rel'];
/** The site of a stream's copies and fills, which stand in no kernel. */
export const noSite: SiteId = -1;

const incoherentBit = 1 << 10;

/** An access that an actor made, and the actor's epoch at that time. */
export interface Made {
  readonly by: Actor;
  readonly epoch: number;
  readonly meta: number;
}

// bits 0–1 kind, 2–4 order, 5–6 scope, 7–9 log2 of the size (7: a range), 10 incoherent, 11… site + 1
export function packAccess({ kind, order, scope, bytes, incoherent }: DetectedForm, site: SiteId): number {
  const power = 31 - Math.clz32(bytes);
  const size = bytes <= 16 && bytes === 1 << power ? power : 7;
  const how = kinds.indexOf(kind) | (orders.indexOf(order) << 2) | (reachOf[scope] << 5) | (size << 7);
  return how | (incoherent ? incoherentBit : 0) | ((site + 1) << 11);
}

export const kindOf = (meta: number): AccessKind => kinds[meta & 3]!;
export const orderOf = (meta: number): Order => orders[(meta >> 2) & 7]!;
export const scopeOf = (meta: number): Reach => ((meta >> 5) & 3) as Reach;
export const siteOf = (meta: number): SiteId => (meta >> 11) - 1;
export const bytesOf = (meta: number): number => 1 << ((meta >> 7) & 7);

export const isRead = (meta: number): boolean => (meta & 3) === 0;
/** Loads at the scope of a block, and weak ones, may be answered by L1. */
export const readsByL1 = (meta: number): boolean => isRead(meta) && (!isAtomic(meta) || scopeOf(meta) === 0);
export const isIncoherent = (meta: number): boolean => (meta & incoherentBit) !== 0;
export const isAtomic = (meta: number): boolean => (meta & 0x1c) !== 0;
export const sameSize = (a: number, b: number): boolean => ((a ^ b) & 0x380) === 0;
/** Scope and size of an atomic, 0 for weak accesses that are coherent: accesses of one thread and strength stand for each other. */
export const strengthOf = (meta: number): number =>
  isAtomic(meta) ? 8 | ((meta >> 5) & 3) | (meta & 0x380) : meta & incoherentBit;
