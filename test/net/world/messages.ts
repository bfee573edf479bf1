import type { Message } from '../../../src/net/world/messages.js';

const digest = '0'.repeat(64);

/** One of each type. */
export const messages: readonly Message[] = [
  { type: 'hello', version: 1, nonce: digest },
  {
    type: 'join',
    version: 1,
    world: 'w',
    rank: 0,
    ranks: 2,
    outside: false,
    lossTimeoutMs: 1,
    nonce: digest,
    proof: digest,
  },
  { type: 'welcome', proof: digest },
  { type: 'refused', why: 'x' },
  { type: 'arrive', id: 0, kind: 'barrier', operation: 'x', timeoutMs: 1 },
  { type: 'completed', id: 3, lengths: [0, 1] },
  { type: 'failed', id: 3, ranks: [1], operation: 'x', why: 'y' },
  { type: 'lost', ranks: [1], operation: 'x', why: 'y' },
  { type: 'wait', name: 'rank 3' },
  { type: 'waiting', outsiders: 1 },
  { type: 'regrouped', rank: 1, origins: [0, 2] },
  { type: 'abandon', ranks: [2], why: 'x' },
  { type: 'leave' },
  { type: 'farewell' },
  { type: 'ping' },
  { type: 'pong' },
];
