/** `heddle demo --join`: processes of which one is killed, started anew, and taken in again by the others. */

import { extname, join } from 'node:path';
import { UnavailableError } from '../base/errors.js';
import { aligned } from '../base/table.js';
import { expertsOf } from '../moe/layer/index.js';
import type { ProviderName } from '../net/fabric/index.js';
import { launchReporting } from '../net/world/index.js';
import { networkHere } from './demo-rounds.js';
import { count, number } from './print-demo.js';

export interface JoiningRounds {
  readonly sizes: {
    readonly experts: number;
    readonly topK: number;
    readonly maxTokens: number;
    readonly hidden: number;
  };
  readonly seed: number;
  readonly provider: ProviderName;
}

/** The rounds of all processes, of those without the killed one, and of all with it again. */
const rounds = [1, 2, 3] as const;

export interface JoinerSays {
  readonly process: number;
  readonly round: (typeof rounds)[number];
  readonly rank: number;
  readonly ranks: number;
  /** How long it renewed its world before the round. */
  readonly renewalMs: number;
  readonly values: number;
  readonly different: number;
}

/** @throws UnavailableError without libfabric, by which processes reach each other. */
export async function demoJoining(processes: number, seed: number, progress: (what: string) => void) {
  const provider = networkHere();
  if (provider === null)
    throw new UnavailableError(
      'processes that simulate GPUs reach each other by libfabric, which is not here',
      'Install it: apt-get install libfabric1',
    );
  const experts = 3 * processes;
  const sizes = { experts, topK: 2, maxTokens: 8, hidden: 64 };
  const reports: JoinerSays[] = [];
  const launch = {
    ...{ ranks: processes, nodes: processes, restarts: 1, onNote: progress },
    device: 'sim',
    program: join(import.meta.dirname, `demo-joiner${extname(import.meta.filename)}`),
    args: [JSON.stringify({ sizes, seed, provider } satisfies JoiningRounds)],
  } as const;
  await launchReporting('the demo', launch, (report) => reports.push(report as JoinerSays));
  const longest = (round: number) =>
    Math.max(...reports.filter((says) => says.round === round).map(({ renewalMs }) => renewalMs));
  const sum = (of: 'values' | 'different') => reports.reduce((all, says) => all + says[of], 0);
  // The longest that a process waited for the world without the killed one, and for the one with it again.
  return {
    ...{ processes, experts, provider, lossMs: longest(2), joinMs: longest(3) },
    ...{ values: sum('values'), different: sum('different'), reports },
  };
}

/** The summary, with a line of the picture for each process: the last is killed, so the others keep their ranks. */
export function joiningText(result: Awaited<ReturnType<typeof demoJoining>>): string {
  const { processes, experts, provider, lossMs, joinMs, values, different, reports } = result;
  const [mark, verdict] =
    different === 0
      ? ['✓', 'every bit as in the reference']
      : ['✗', `${number(different)} differ from the reference`];
  const had = (process: number, round: number): string => {
    const says = reports.find((one) => one.process === process && one.round === round);
    if (says === undefined) return 'killed';
    const { first, count } = expertsOf({ experts, ranks: says.ranks }, says.rank);
    return Array.from({ length: count }, (_, i) => first + i).join(' ');
  };
  const picture = Array.from({ length: processes }, (_, process) => [
    `rank ${process}`,
    ...rounds.map((round) => had(process, round)),
  ]);
  return [
    '',
    `${processes} processes, each with a simulated GPU, over libfabric (${provider})`,
    '',
    `${mark} right: ${count(values, 'value')} in ${rounds.length} rounds, ${verdict}`,
    `✓ went on: rank ${processes - 1} was killed, and the others had a world without it after ${Math.round(lossMs)} ms`,
    `✓ taken in: it was started anew, and the others had a world with it after ${Math.round(joinMs)} ms`,
    '',
    'Who had which expert',
    aligned([['', ...rounds.map((round) => `round ${round}`)], ...picture], 4).replaceAll(/^/gm, '  '),
    '',
    '',
  ].join('\n');
}
