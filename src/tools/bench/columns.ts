/** The common parts of the tables that benchmarks print. */
import type { Column } from '../../base/table.js';
import type { Power, Spread, Unit } from './statistics.js';
import type { Workload } from './workload.js';

type Described = Pick<Workload, 'name' | 'hidden' | 'topK' | 'experts' | 'ranks'>;

export const layerInWords = ({ name, hidden, topK, experts, ranks }: Described): string =>
  `${name}: hidden ${hidden}, top-${topK} of ${experts} experts, ep ${ranks}`;

const inColumns = <Of>(columns: readonly Column<Of>[], cell: (column: Column<Of>) => string): string =>
  columns
    .map((column) => cell(column).padStart(column.width ?? Math.max(10, column.head.length + 2)))
    .join('');

export const headOf = <Of>(columns: readonly Column<Of>[]): string => inColumns(columns, ({ head }) => head);
export const lineOf = <Of>(columns: readonly Column<Of>[], of: Of): string =>
  inColumns(columns, ({ cell }) => cell(of));

/** The columns that a table of the unit has: steps give no rates. */
export const columnsIn = <Of>(unit: Unit, columns: readonly Column<Of>[]): readonly Column<Of>[] =>
  columns.filter(({ rate }) => unit === 'µs' || rate === undefined);

export const percent = (share: number | null | undefined, digits = 0): string =>
  share === null || share === undefined ? '–' : `${(share * 100).toFixed(digits)} %`;

/** Three significant digits where that matters; a dash for nothing. */
export function number(value: number | null, digits?: number): string {
  if (value === null || !Number.isFinite(value)) return '–';
  if (digits !== undefined) return value.toFixed(value < 10 && digits === 0 ? 1 : digits);
  return value >= 1000 ? value.toFixed(0) : value >= 100 ? value.toFixed(1) : value.toFixed(2);
}

/** The columns of what sustained work takes of a GPU; no columns where it was not sustained. */
export const powerColumns = <Of>(sustained: boolean, of: (point: Of) => Spread): readonly Column<Of>[] => {
  const column = (head: string, name: keyof Power, digits: number): Column<Of> => ({
    ...{ head, rate: true, cell: (point) => of(point).power?.[name].toFixed(digits) ?? '–' },
  });
  return sustained
    ? [
        ...[column('MHz', 'megahertz', 0), column('kcycles', 'kilocycles', 0)],
        ...[column('W', 'watts', 0), column('J', 'joules', 4)],
      ]
    : [];
};
