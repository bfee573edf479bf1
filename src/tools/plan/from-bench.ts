/** Calibration from Heddle's own reports: rounds of `heddle bench`, and the network of `heddle fabric bench`. */
import { ArgumentError, requireInteger, requireText } from '../../base/errors.js';
import { type FormatName, formats } from '../../moe/layer/index.js';
import { type Cell, cellFrom, isRecord, parseJson } from './cells.js';
import type { Fit } from './fit.js';
import type { Calibration } from './machines.js';
import { type Nominal, type ParameterName, parameterNames, priors } from './model.js';

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
  const number = (field: string): number =>
    requireInteger(`${name}.workload.${field}`, of[field], 1, 2 ** 22);
  const dtype = Object.keys(formats).find((one) => one === of.dtype) as FormatName | undefined;
  const back = Object.keys(formats).find((one) => one === of.combineDtype) as FormatName | undefined;
  if (dtype === undefined || back === undefined)
    throw new ArgumentError(`${name}.workload.dtype`, of.dtype, `one of ${Object.keys(formats).join(', ')}`);
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
    gbps: null,
    gbps_def: null,
    src: name,
    note: '',
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

const isFigure = (value: unknown): value is number =>
  typeof value === 'number' && value > 0 && Number.isFinite(value);

/** The most GB/s that plain stores to all peers reached in that report: the ceiling of a rank's NVLink. */
export function ceilingOfBench(name: string, text: string): number {
  const report = parseJson(name, text);
  const points = isRecord(report) && Array.isArray(report.points) ? report.points.filter(isRecord) : [];
  const reached = points.flatMap(({ rows }) =>
    (Array.isArray(rows) ? rows.filter(isRecord) : []).flatMap(({ subject, physical }) =>
      subject === 'stores' && isFigure(physical) ? [physical] : [],
    ),
  );
  if (reached.length === 0) throw new ArgumentError(name, report, "a report with the ceiling 'stores'");
  return Math.max(...reached);
}

/** Of figures in a report of `heddle fabric bench`, which says what, and how it becomes a parameter. */
const figures: readonly {
  readonly name: ParameterName;
  readonly what: string;
  readonly parameter: (value: number) => number;
}[] = [
  { name: 'latency', what: 'latency of an 8-byte write, caller thread', parameter: (us) => us },
  { name: 'message', what: 'rate of 8-byte writes, caller thread', parameter: (millions) => 1 / millions },
  { name: 'nic', what: 'bandwidth of 1 MiB writes, caller thread', parameter: (gbps) => 1000 / gbps },
];

/** How exact figures of a quiet loop are for rounds. */
const doubt = 0.2;

/** The network that a report of `heddle fabric bench --json` measured, for both phases. */
export function networkOfBench(name: string, text: string, nominal: Nominal): Calibration {
  const report = parseJson(name, text);
  if (!isRecord(report) || !Array.isArray(report.figures))
    throw new ArgumentError(name, report, 'a report of heddle fabric bench --json');
  const all = report.figures.filter(isRecord);
  const provider = requireText(`${name}.figures[0].provider`, all[0]?.provider, "a provider's name");
  const before = priors(nominal);
  const parameters = {} as Record<ParameterName, number>;
  const widths = {} as Record<ParameterName, number>;
  for (const parameter of parameterNames) [parameters[parameter], widths[parameter]] = before[parameter];
  for (const { name: parameter, what, parameter: from } of figures) {
    const found = all.find((one) => one.what === what && one.provider === provider);
    if (!isFigure(found?.heddle))
      throw new ArgumentError(name, report, `a report with the figure '${what}' of ${provider}`);
    parameters[parameter] = from(found.heddle);
    widths[parameter] = doubt;
  }
  const fit: Fit = {
    parameters,
    covariance: parameterNames.map((a) => parameterNames.map((b) => (a === b ? widths[a] ** 2 : 0))),
    ...{ nominal, scatter: doubt, wider: 1 },
    seen: [],
    continued: [],
  };
  return {
    set: name,
    lib: 'heddle fabric bench',
    mode: 'hybrid',
    hw: provider,
    fabric: provider,
    src: [name],
    nominal,
    fits: { dispatch: fit, combine: fit },
  };
}
