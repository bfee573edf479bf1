/** Addresses of memory that each block, or each thread, sees its own of. */

/** Upper words of addresses of memory that has none of its own. */
export const windows = {
  ...{ shared: 0x10000, local: 0x10001, param: 0x10002 },
  /** Where the blocks of a cooperative launch count each other. */
  grid: 0x10003,
  /** The shared memory of block 0 of the cluster; that of the others follows. */
  cluster: 0x10010,
} as const;

/** Below: where in a block's shared memory. Above: which block of the cluster it is of, from 1 on; 0 is the block itself. */
const rankShift = 24;
export const mostShared = (1 << rankShift) - 1;

/** The result of `mapa` for an address. Both are expressions in generated code. */
export const mapped = (address: string, rank: string): string =>
  `(${address} & ${mostShared} | ${rank} + 1 << ${rankShift})`;

/** The upper word of the generic address, and the one in the space of the cluster, of what either names. */
export const genericOf = (address: string): string =>
  `(${address} >>> ${rankShift} ? ${windows.cluster - 1} + (${address} >>> ${rankShift}) : ${windows.shared})`;
export const inCluster = (low: string, high: string): string =>
  `(${high} < ${windows.cluster} ? ${low} : ${mapped(low, `${high} - ${windows.cluster}`)})`;

/** The block of the cluster that an address names; null where that is the block itself. */
export const clusterRank = (address: number): number | null => {
  const named = address >>> rankShift;
  return named === 0 ? null : named - 1;
};
