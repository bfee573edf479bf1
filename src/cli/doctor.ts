import { styleText } from 'node:util';
import { formatBytes } from '../gpu/cuda/index.js';
import { type Diagnosis, diagnose, type GpuReport } from '../tools/doctor/index.js';
import type { Command } from './commander.js';

export function register(command: Command): void {
  command
    .option('--json', 'print the findings as JSON')
    .addHelpText(
      'after',
      `
Every library is tried in a process of its own first, so a broken one cannot take doctor down.

Exit code: 0 when everything that is here and everything that is set works; what is missing (–) does not matter. 1 when
something is broken (✗): it is here, or a variable of the environment asks for it, and does not work.

Examples:
  $ heddle doctor
  $ heddle doctor --json | jq '.findings[] | select(.state != "found")'`,
    )
    .action(async ({ json }) => {
      process.stderr.write('heddle doctor: looking at this machine …\n');
      const diagnosis = await diagnose();
      process.stdout.write(json === true ? `${JSON.stringify(diagnosis, null, 2)}\n` : render(diagnosis));
      process.exitCode = diagnosis.findings.some(({ state }) => state === 'broken') ? 1 : 0;
    });
}

const marks = {
  found: ['✓', 'green'],
  missing: ['–', 'yellow'],
  broken: ['✗', 'red'],
} as const;

/** The findings for people. Colours only where standard output is a terminal. */
export function render({ summary, findings, gpus }: Diagnosis): string {
  const colour = (style: Parameters<typeof styleText>[0], text: string) =>
    process.stdout.isTTY ? styleText(style, text) : text;
  const lines: string[] = [];
  for (const { name, state, detail, enables, remedy } of findings) {
    const [mark, style] = marks[state];
    lines.push(`${colour(style, mark)} ${colour('bold', name)}  ${detail}`);
    lines.push(`    enables: ${enables}`);
    if (remedy !== null) lines.push(`    to have it: ${remedy}`);
  }
  if (gpus.length > 0) lines.push('', ...gpuTable(gpus));
  lines.push('', 'On this machine Heddle can use:', ...summary.map((line) => `  ${line}`), '');
  return lines.join('\n');
}

function gpuTable(gpus: readonly GpuReport[]): readonly string[] {
  const lines = gpus.map(({ ordinal, name, capability, multiprocessors, memoryBytes, pciBusId, links }) => {
    const nvlink =
      links === null
        ? 'NVLink unknown (no NVML)'
        : links.active === 0
          ? 'no NVLink'
          : `${links.active} NVLinks${links.version === null ? '' : ` (${links.version})`}${
              links.toSwitch > 0 ? ' to a switch' : ''
            }`;
    const chip = `compute ${capability.join('.')}, ${multiprocessors} SMs, ${formatBytes(memoryBytes)}`;
    return `GPU ${ordinal}  ${name}  ${chip}, ${pciBusId}, ${nvlink}`;
  });
  if (gpus.length < 2) return lines;
  lines.push('', 'Peer access (row reads and writes column; A: atomics too):');
  lines.push(`      ${gpus.map(({ ordinal }) => String(ordinal).padStart(3)).join('')}`);
  for (const gpu of gpus) {
    const cells = gpus.map(({ ordinal, pciBusId }) => {
      const peer = gpu.peers.find((other) => other.ordinal === ordinal);
      if (peer === undefined) return '  ·';
      const direct = gpu.links?.toGpus[pciBusId];
      const mark = peer.access ? (peer.atomics ? 'A' : 'x') : '–';
      return direct === undefined ? `  ${mark}` : ` ${direct}${mark}`;
    });
    lines.push(`  ${String(gpu.ordinal).padStart(4)}${cells.join('')}`);
  }
  return lines;
}
