/** Calibration from Heddle's own reports: rounds of `heddle bench`, and the network of `heddle fabric bench`. */
import { ArgumentError, requireInteger, requireOneOf, requireText } from '../../base/errors.js';
import { type FormatName, formatNames } from '../../moe/layer/index.js';
import type { Network } from './calibration-file.js';
import { type Cell, cellFrom, figure, isRecord, parseJson } from './cells.js';

const benchFormat = 'heddle-bench/1';

/** The cells of a report of `heddle bench --output-file`. */
export function cellsOfBench(name: string, text: string): Cell[] {
  const report = parseJson(name, text);
  if (!isRecord(report) || report.format !== benchFormat || !Array.isArray(report.points))
    throw new ArgumentError(name, report, `a report of heddle bench --output-file (format ${benchFormat})`);
  const { workload: of, machine, unit } = report;
  if (unit !== 'µs') throw new ArgumentError(`${name}.unit`, unit, 'µs: steps of the simulator are no time');
  if (!isRecord(of) || !isRecord(machine) || !Array.isArray(machine.gpus))
    throw new ArgumentError(name, report, 'a report with its workload and machine');
  const router = isRecord(of.router) ? of.router.kind : undefined;
  if (router !== 'uniform') throw new ArgumentError(`${name}.workload.router`, router, 'uniform');
  // A cell is of ranks that all have tokens of their own.
  const { replicas = 1 } = of;
  if (replicas !== 1) throw new ArgumentError(`${name}.workload.replicas`, replicas, '1');
  const number = (field: string): number =>
    requireInteger(`${name}.workload.${field}`, of[field], 1, 2 ** 22);
  const format = (field: string): FormatName =>
    requireOneOf(`${name}.workload.${field}`, of[field], formatNames);
  const [dtype, back] = [format('dtype'), format('combineDtype')];
  const ranks = number('ranks');
  const common = {
    set: name,
    lib: 'heddle',
    mode: 'one_sided',
    hw: requireText(`${name}.machine.gpus[0]`, machine.gpus[0], "a GPU's name"),
    fabric: 'nvlink',
    ep: ranks,
    domain: Math.max(8, ranks),
    hidden: number('hidden'),
    topk: number('topK'),
    experts: number('experts'),
    src: name,
  };
  return report.points.flatMap((point: unknown) => {
    if (!isRecord(point) || !Array.isArray(point.rows))
      throw new ArgumentError(`${name}.points`, point, 'points with tokens and rows');
    const { tokens } = point;
    return point.rows.filter(isRecord).flatMap(({ subject, phase, time }): Cell[] => {
      if (subject !== 'heddle' || typeof time !== 'number') return [];
      if (phase !== 'dispatch' && phase !== 'combine') return [];
      const cell = { ...common, tokens, phase, dtype: phase === 'dispatch' ? dtype : back, us: time };
      return [cellFrom(`${name}.points`, cell)];
    });
  });
}

/** The most GB/s that plain stores to all peers reached in that report: the ceiling of a rank's NVLink. */
export function ceilingOfBench(name: string, text: string): number {
  const report = parseJson(name, text);
  const points = isRecord(report) && Array.isArray(report.points) ? report.points.filter(isRecord) : [];
  const reached = points.flatMap(({ rows }) =>
    (Array.isArray(rows) ? rows.filter(isRecord) : []).flatMap(({ subject, physical }) =>
      subject === 'stores' && typeof physical === 'number' && physical > 0 && Number.isFinite(physical)
        ? [physical]
        : [],
    ),
  );
  if (reached.length === 0) throw new ArgumentError(name, report, "a report with the ceiling 'stores'");
  return Math.max(...reached);
}

/** Of figures in a report of `heddle fabric bench`, which says what, and how it becomes a parameter. */
const figures = {
  latency: { what: 'latency of an 8-byte write, caller thread', from: (us: number) => us },
  message: { what: 'rate of 8-byte writes, caller thread', from: (millions: number) => 1 / millions },
  nic: { what: 'bandwidth of 1 MiB writes, caller thread', from: (gbps: number) => 1000 / gbps },
} as const;

/** The network that a report of `heddle fabric bench --json` measured. */
export function networkOfBench(name: string, text: string): Network {
  const report = parseJson(name, text);
  if (!isRecord(report) || !Array.isArray(report.figures))
    throw new ArgumentError(name, report, 'a report of heddle fabric bench --json');
  const all = report.figures.filter(isRecord);
  const provider = requireText(`${name}.figures[0].provider`, all[0]?.provider, "a provider's name");
  const measured = ({ what, from }: (typeof figures)[keyof typeof figures]): number => {
    const found = all.find((one) => one.what === what && one.provider === provider);
    return from(figure(`${name}: '${what}' of ${provider}`, found?.heddle));
  };
  const { latency, message, nic } = figures;
  return { provider, latency: measured(latency), message: measured(message), nic: measured(nic) };
}
