/** The secret of a world: what it must be, and how both sides of a handshake prove that they know it. */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { ArgumentError } from '../../base/errors.js';
import { isLoopback } from './address.js';
import type { Join } from './messages.js';

/** 32 random bytes in hexadecimal: a challenge that is never asked twice. */
export function newNonce(): string {
  return randomBytes(32).toString('hex');
}

/** Someone who overhears one proof can try secrets at leisure, so a short one would not last. */
const MIN_SECRET = 16;

/**
 * Proves that its author knows the secret, without showing it, and holds for this joiner and the two challenges alone. The role keeps a proof from being sent back
 * to its author as the other side's. Without a secret (loopback only) this still catches mistakes: a rank of
 * another world, or one side with a secret and the other without.
 */
export function prove(
  secret: string | undefined,
  role: 'host' | 'joiner',
  { version, world, rank, ranks, outside, lossTimeoutMs, nonce }: Omit<Join, 'type' | 'proof'>,
  hostNonce: string,
): string {
  // JSON keeps the fields apart: no two handshakes give the same text.
  const text = JSON.stringify([
    ...['heddle', role, version, world, rank, ranks, outside, lossTimeoutMs, hostNonce, nonce],
  ]);
  return createHmac('sha256', secret ?? '')
    .update(text)
    .digest('hex');
}

/** Compares proofs in a time that does not depend on where they differ. */
export function sameProof(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, 'hex'), Buffer.from(b, 'hex')];
  return left.length === right.length && timingSafeEqual(left, right);
}

/** Refuses an address beyond this machine without a secret that is worth its name. */
export function requireSecret(host: string, secret: string | undefined): void {
  // The secret goes into no message.
  if (secret !== undefined && typeof secret !== 'string') {
    throw new ArgumentError('HEDDLE_SECRET', typeof secret, 'a text');
  }
  if (secret !== undefined && secret.length < MIN_SECRET) {
    throw new ArgumentError(
      'HEDDLE_SECRET',
      `${secret.length} characters long`,
      `at least ${MIN_SECRET} characters long; \`openssl rand -hex 32\` makes one`,
    );
  }
  if (secret === undefined && !isLoopback(host)) {
    throw new ArgumentError(
      'HEDDLE_SECRET',
      undefined,
      `set, the same on every rank, because ${host} can be reached from other machines; \`openssl rand -hex 32\` makes one`,
    );
  }
}
