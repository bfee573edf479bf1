/** Addresses of memory that each block, or each thread, sees its own of. */

/** Upper words of addresses of memory that has none of its own. */
export const windows = { shared: 0x10000, local: 0x10001, param: 0x10002 } as const;

/** Below: where in a block's shared memory. Above: which block of the cluster it is of, from 1 on; 0 is the block itself. */
const rankShift = 24;
export const mostShared = (1 << rankShift) - 1;

/** The result of `mapa` for an address. Both are expressions in generated code. */
export const mapped = (address: string, rank: string): string =>
  `(${address} & ${mostShared} | ${rank} + 1 << ${rankShift})`;

/** The block of the cluster that an address names; null where that is the block itself. */
export const clusterRank = (address: number): number | null => {
  const named = address >>> rankShift;
  return named === 0 ? null : named - 1;
};
