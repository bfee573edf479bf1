/** Tables: a line for each thing, by columns that say what they show of it. */

export interface Column<Of> {
  readonly head: string;
  /** Characters, in a table that is printed line by line. The default is as much as its head needs, and at least 10. */
  readonly width?: number;
  /**
   * Without it the column holds numbers, which stand to the right. Names stand to the left, and pages print the main number of a line large.
   */
  readonly kind?: 'name' | 'main';
  /** Says something of GPUs alone, such as GB/s: where a machine is simulated the table has no such column. */
  readonly rate?: true;
  cell(of: Of): string;
}

/** Columns as wide as their widest cell. The first `names` are to the left. */
export function aligned(rows: readonly (readonly string[])[], names = 1): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const padded = (cell: string, i: number): string =>
    i < names ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!);
  return rows.map((row) => row.map(padded).join('  ').trimEnd()).join('\n');
}

/** A table of plain text. Columns of names must stand before those of numbers. */
export const textTable = <Of>(columns: readonly Column<Of>[], lines: readonly Of[]): string =>
  aligned(
    [columns.map(({ head }) => head), ...lines.map((line) => columns.map(({ cell }) => cell(line)))],
    columns.filter(({ kind }) => kind === 'name').length,
  );
