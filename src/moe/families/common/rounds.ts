/**
 * The number before that of the first round, with which everything that counts rounds begins: every bit is set, so all counters
 * wrap in the first round, and none waits for its 2^32nd to show whether it may.
 */
export const beforeFirst = 0xffff_ffff;

/** For people, who count rounds from 1. */
export const numberOfRound = (epoch: number): number => (epoch - beforeFirst) >>> 0;
