import { type Column, textTable } from '../base/table.js';
import { type FabricDevice, listNics, listProviders, type ProviderReport } from '../net/fabric/index.js';
import type { Command } from './commander.js';

/** `heddle fabric`: what there is between machines here. */
export function register(fabric: Command): void {
  fabric.addHelpText(
    'after',
    `
Without a command it lists: heddle fabric --json is heddle fabric list --json.

Example:
  $ heddle fabric`,
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
  lines.push(...soft.map(({ name, up, detail }) => `${name}${up ? '' : ', without a link'}: ${detail}`));
  return [textTable(deviceColumns, devices), '', ...lines].join('\n').trimEnd();
}
