/**
 * `npm run bench:fabric`: latency, rate, bandwidth and calls of the transfer engine between local processes, beside the same libfabric
 * calls from C, which need a C compiler and libfabric-dev. In full a provider takes one to three minutes, on few processors more;
 * `-- --provider shm --scale 0.1 --repeat 1` makes it less. `--device` names one of its devices, `--json` prints JSON.
 */
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { requireOneOf, UnavailableError } from '../../src/base/errors.js';
import { type Column, textTable } from '../../src/base/table.js';
import {
  libfabricVersion,
  listProviders,
  type ProviderName,
  providers,
  requireShmSpace,
} from '../../src/net/fabric/index.js';
import { buildBaseline } from './fabric/baseline.js';
import {
  type FabricBenchOptions,
  type Figure,
  measureProvider,
  scatterPeers,
} from './fabric/measurements.js';

const { values } = parseArgs({
  options: {
    ...{ provider: { type: 'string' }, device: { type: 'string' }, json: { type: 'boolean' } },
    ...{ repeat: { type: 'string', default: '3' }, scale: { type: 'string', default: '1' } },
  },
});
const usable = listProviders().filter(({ devices }) => devices.length > 0);
const report = await benchFabric({
  ...{ device: values.device, repeat: Number(values.repeat), scale: Number(values.scale) },
  providers: values.provider
    ? [requireOneOf('--provider', values.provider, providers)]
    : usable.map(({ provider }) => provider),
  progress: (line) => process.stderr.write(`${line}\n`),
});
console.log(values.json ? JSON.stringify(report, null, 2) : benchText(report));

/** Measures the engine between local processes, and the same libfabric calls from C, in one run. */
async function benchFabric(options: FabricBenchOptions) {
  if (options.providers.length === 0)
    throw new UnavailableError(
      'no provider of libfabric can be measured here',
      '`heddle fabric list` says what each lacks',
    );
  const machine = {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    processors: cpus().length,
    loadBefore: loadavg()[0]!,
    node: process.version,
    libfabric: libfabricVersion(),
  };
  for (const provider of options.providers) {
    deviceOf(provider, options.device);
    // An endpoint for each engine, and one for each peer of it.
    if (provider === 'shm') requireShmSpace('bench:fabric -- --provider shm', 1 + 2 * scatterPeers);
  }
  const built = await buildBaseline();
  const [baseline, lacking] = typeof built === 'string' ? [null, built] : [built, null];
  const figures: Figure[] = [];
  try {
    for (const provider of options.providers)
      figures.push(
        ...(await measureProvider({
          ...{ ...options, provider, baseline, device: deviceOf(provider, options.device) },
        })),
      );
  } finally {
    await baseline?.remove();
  }
  // `baseline` says why there is nothing from C to compare with, if so.
  return { machine, when: new Date().toISOString(), baseline: lacking, figures };
}

/** The device that was asked for, else the one for processes of one machine: loopback, where the provider has it. */
function deviceOf(provider: ProviderName, asked: string | undefined): string {
  const { devices, missing } = listProviders().find((report) => report.provider === provider)!;
  if (devices.length === 0) {
    throw new UnavailableError(
      `${provider} cannot be measured here: ${missing}`,
      '`heddle fabric list` shows which providers can',
    );
  }
  const names = [...new Set(devices.map(({ device }) => device))];
  if (asked !== undefined) return requireOneOf('--device', asked, names);
  return (devices.find(({ device }) => device === 'lo') ?? devices[0]!).device;
}

function benchText({ machine, baseline, figures }: Awaited<ReturnType<typeof benchFabric>>): string {
  const { cpu, processors, loadBefore, node, libfabric } = machine;
  const head = `${processors} × ${cpu}, load ${loadBefore.toFixed(1)} before, Node.js ${node}, libfabric ${libfabric}`;
  const without = baseline === null ? [] : [`Nothing from C to compare with: ${baseline}.`];
  const columns: readonly Column<Figure>[] = [
    { head: 'provider', kind: 'name', cell: ({ provider }) => provider },
    { head: 'what', kind: 'name', cell: ({ what }) => what },
    { head: 'Heddle', kind: 'name', cell: ({ heddle, unit }) => `${round(heddle)} ${unit}`.trim() },
    { head: 'C', kind: 'name', cell: ({ c, unit }) => (c === null ? '' : `${round(c)} ${unit}`) },
    { head: 'ratio', kind: 'name', cell: ({ ratio }) => ratio?.toFixed(2) ?? '' },
  ];
  return [head, ...without, '', textTable(columns, figures)].join('\n');
}

function round(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
}
