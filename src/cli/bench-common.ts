/** What the benchmarks of a part take and print alike. */
import { type Command, Option } from 'commander';
import { families } from '../moe/families/index.js';
import { profiles } from '../moe/layer/index.js';
import { times } from './counts.js';

/** The flags that `measuring` adds. */
export interface Measuring {
  readonly device: 'cuda' | 'sim';
  readonly iterations?: number;
  readonly json?: boolean;
}

export const profileOption = (summary: string): Option =>
  new Option('--profile <name>', summary).choices(Object.keys(profiles)).default('deepseek_v3');

export const familyOption = (): Option =>
  new Option('--family <name>', 'of kernels (default: the first that can)').choices(
    families.map(({ name }) => name),
  );

/** Adds how something is measured, behind options that say what. */
export const measuring = (command: Command, device: string, iterations: number): Command =>
  command
    .addOption(new Option('--device <kind>', device).choices(['cuda', 'sim']).default('cuda'))
    .option('--iterations <n>', `measured iterations (default: ${iterations}, simulated 1)`, times)
    .option('--json', 'print all results as JSON; the table goes to stderr');

/** The help's last words. */
export const closing = (missing: 'a GPU' | 'GPUs', ...examples: readonly string[]): string => `
Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks ${missing}.

Examples:
${examples.map((example) => `  $ heddle bench ${example}`).join('\n')}`;

/**
 * Prints a line for each point as it comes and, where asked for, all results at the end. The table's head comes with the
 * first line, so that what cannot be measured here has none.
 */
export async function tabulate<Point, Report>(
  { device, json }: { readonly device: Measuring['device']; readonly json: boolean | undefined },
  head: string,
  line: (point: Point) => string,
  measure: (on: (point: Point) => void) => Promise<Report>,
  foot?: (report: Report) => string,
): Promise<Report> {
  const table = json ? process.stderr : process.stdout;
  if (device === 'sim')
    process.stderr.write('heddle bench: simulated, to try the command: figures are steps, not times\n');
  let begun = false;
  const report = await measure((point) => {
    table.write(begun ? `${line(point)}\n` : `${head}\n${line(point)}\n`);
    begun = true;
  });
  if (foot !== undefined) table.write(`${foot(report)}\n`);
  if (json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  return report;
}
