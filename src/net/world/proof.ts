import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** What both sides of a handshake agree on; a proof holds for this and nothing else. */
interface Handshake {
  readonly world: string;
  readonly rank: number;
  readonly ranks: number;
  readonly version: number;
  readonly hostNonce: string;
  readonly joinerNonce: string;
}

/** 32 random bytes in hexadecimal: a challenge that is never asked twice. */
export function newNonce(): string {
  return randomBytes(32).toString('hex');
}

/** Someone who overhears one proof can try secrets at leisure, so a short one would not last. */
export const MIN_SECRET = 16;

/**
 * Proves that its author knows the secret, without showing it. The role keeps a proof from being sent back
 * to its author as the other side's. Without a secret (loopback only) this still catches mistakes: a rank of
 * another world, or one side with a secret and the other without.
 */
export function prove(secret: string | undefined, role: 'host' | 'joiner', handshake: Handshake): string {
  const { world, rank, ranks, version, hostNonce, joinerNonce } = handshake;
  // JSON keeps the fields apart: no two handshakes give the same text.
  const text = JSON.stringify(['heddle', role, version, world, rank, ranks, hostNonce, joinerNonce]);
  return createHmac('sha256', secret ?? '')
    .update(text)
    .digest('hex');
}

/** Compares proofs in a time that does not depend on where they differ. */
export function sameProof(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, 'hex'), Buffer.from(b, 'hex')];
  return left.length === right.length && timingSafeEqual(left, right);
}
