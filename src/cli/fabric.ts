import { type Column, textTable } from '../base/table.js';
import {
  type FabricDevice,
  listNics,
  listProviders,
  type ProviderReport,
  providers,
} from '../net/fabric/index.js';
import { benchFabric, type FabricBenchReport } from '../tools/bench/index.js';
import type { Command } from './commander.js';
import { choice, numberIn, times } from './options.js';

/** `heddle fabric`: what there is between machines here, and how fast it is. */
export function register(fabric: Command): void {
  fabric.addHelpText(
    'after',
    `
Without a command it lists: heddle fabric --json is heddle fabric list --json.

Examples:
  $ heddle fabric
  $ heddle fabric bench --provider shm --scale 0.1 --repeat 1`,
  );
  fabric
    .command('list', { isDefault: true })
    .description('list the providers that Heddle drives, their devices, and why others have none')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      `
Exit code: 0; 1 when no provider is usable, 2 where there is no libfabric.

Example:
  $ heddle fabric list`,
    )
    .action((options) => {
      const reports = listProviders();
      console.log(options.json ? JSON.stringify(reports, null, 2) : listText(reports));
      if (reports.every(({ devices }) => devices.length === 0)) process.exitCode = 1;
    });

  fabric
    .command('bench')
    .description('measure latency, message rate, bandwidth and calls between local processes, beside C')
    .addOption(choice('--provider <name>', 'which one (default: all that work here)', providers))
    .option('--device <name>', 'which of its devices (default: loopback)')
    .option('--repeat <n>', 'repetitions of each measurement; the best counts', times, 3)
    .option('--scale <factor>', 'how much each measurement does', numberIn({ above: 0, to: 1000 }), 1)
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      `
In full a provider takes one to three minutes, on few processors more; --scale and --repeat make it less.

The comparison needs a C compiler, libfabric-dev and this repository (scripts/bench/fabric-raw.c).

Exit code: 0; 2 for a mistake in the arguments or something that this machine lacks.

Example:
  $ heddle fabric bench --provider shm --scale 0.1 --repeat 1`,
    )
    .action(async ({ provider: asked, json, device, ...how }) => {
      const usable = listProviders().filter(({ devices }) => devices.length > 0);
      const report = await benchFabric({
        ...{ ...how, device },
        providers: asked ? [asked] : usable.map(({ provider }) => provider),
        progress: (line) => process.stderr.write(`${line}\n`),
      });
      console.log(json ? JSON.stringify(report, null, 2) : benchText(report));
    });
}

const deviceColumns: readonly Column<FabricDevice>[] = [
  { head: 'provider', kind: 'name', cell: ({ provider }) => provider },
  { head: 'device', kind: 'name', cell: ({ device }) => device },
  { head: 'addressing', kind: 'name', cell: ({ addressing }) => addressing },
  { head: 'completes on', kind: 'name', cell: ({ delivery }) => (delivery ? 'delivery' : 'sending') },
  { head: 'GPU memory', kind: 'name', cell: ({ gpuMemory }) => (gpuMemory ? 'claimed' : 'staged') },
];

export function listText(reports: readonly ProviderReport[], nics = listNics()): string {
  const devices = reports.flatMap((report) => report.devices);
  const lacking = reports.filter(({ missing }) => missing !== null);
  const lines = lacking.map(({ provider, missing }) => `${provider}: ${missing}`);
  const soft = nics.filter(({ detail }) => detail.startsWith('soft-RoCE'));
  lines.push(...soft.map(({ name, detail }) => `${name}: ${detail}`));
  return [textTable(deviceColumns, devices), '', ...lines].join('\n').trimEnd();
}

const figureColumns: readonly Column<FabricBenchReport['figures'][number]>[] = [
  { head: 'provider', kind: 'name', cell: ({ provider }) => provider },
  { head: 'what', kind: 'name', cell: ({ what }) => what },
  { head: 'Heddle', kind: 'name', cell: ({ heddle, unit }) => `${round(heddle)} ${unit}`.trim() },
  { head: 'C', kind: 'name', cell: ({ c, unit }) => (c === null ? '' : `${round(c)} ${unit}`) },
  { head: 'ratio', kind: 'name', cell: ({ ratio }) => ratio?.toFixed(2) ?? '' },
];

function benchText({ machine, baseline, figures }: FabricBenchReport): string {
  const { cpu, processors, loadBefore, node, libfabric } = machine;
  const head = `${processors} × ${cpu}, load ${loadBefore.toFixed(1)} before, Node.js ${node}, libfabric ${libfabric}`;
  const without = baseline === null ? [] : [`Nothing from C to compare with: ${baseline}.`];
  return [head, ...without, '', textTable(figureColumns, figures)].join('\n');
}

function round(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
}
