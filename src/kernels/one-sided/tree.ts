const powerOfTwo = (n: number): number => 2 ** Math.ceil(Math.log2(n));

/**
 * How a kernel adds up to `rows` values as the tree of docs/semantics.md: in groups of at most `most` that fit in registers,
 * then the groups. Both counts are powers of 2; absent places hold -0, which changes nothing that it is added to.
 */
export function sumTree(rows: number, most = 8) {
  const group = Math.min(most, powerOfTwo(rows));
  const groups = powerOfTwo(Math.ceil(rows / group));
  return {
    ROWS: rows,
    GROUP: group,
    GROUP_LEVELS: Math.log2(group),
    GROUPS: groups,
    LEVELS: Math.log2(groups),
  };
}
