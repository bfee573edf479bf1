/**
 * Storms of processes: 16 simulated ranks in 8, of which one is killed in a round. `npm run bench:kills [storms] [waitMs] [leaseMs]` prints
 * how long the others needed, from the beginning of that round to the end of the first without the dead. A storm that fails before its
 * kill, because the machine is too busy for these times, is named and not counted. Exit code 1 where outcomes differ, or a storm hangs.
 */
import { isDeepStrictEqual } from 'node:util';
import { type Case, points, type Report } from '../../test/faults/cases.js';
import { Crew, EarlyFailure } from '../../test/faults/crew.js';
import { EtcdServer } from '../../test/net/world/etcd/server.js';
import { transpile } from '../../test/setup.js';

const storms = Number(process.argv[2] ?? 18);
const waitMs = Number(process.argv[3] ?? 10_000);
/** A rank's lease in etcd, whose end tells of one to which nothing was under way. */
const lossTimeoutMs = Number(process.argv[4] ?? waitMs / 2);
const goalMs = waitMs + 20;
const [processes, ranksHere] = [8, 2];
const meetings = ['at a host', 'in etcd', 'in etcd, the launcher killed too'] as const;

await transpile();
const crew = new Crew(null);
const etcd = await EtcdServer.start();
let port = 30_000 + (process.pid % 100) * 20;

/** The survivors' reports of the n-th storm. Each way to meet kills the processes in turn: at a host any but that which hosts. */
async function storm(n: number): Promise<Report[]> {
  const meeting = meetings[n % 3]!;
  const address = `127.0.0.1:${port++}`;
  const nth = Math.floor(n / 3);
  const victim = meeting === 'at a host' ? 1 + (nth % 7) : nth % 8;
  const launcher = meeting === meetings[2];
  const told: Omit<Case, 'meeting'> = {
    ...{ processes, ranksHere, waitMs, masks: true },
    fabric: { provider: 'tcp;ofi_rxm', devices: ['lo'] },
    ...(meeting !== 'at a host' && { lossTimeoutMs }),
    fall: { process: victim, fault: 'killed', point: points[n % 5]!, cut: [], launcher },
  };
  const said = launcher
    ? await crew.runLaunched({ ...told, meeting: null }, etcd.rendezvous)
    : await crew.run({
        ...told,
        meeting: meeting === 'at a host' ? { address } : { rendezvous: etcd.rendezvous, world: address },
      });
  const survivors = said.flatMap((reports, process) => (process === victim ? [] : (reports ?? [])));
  const gone = Array.from({ length: ranksHere }, (_, i) => victim * ranksHere + i);
  const alike = survivors.every(
    ({ first, wrong, masked }) =>
      first === null &&
      wrong === 0 &&
      isDeepStrictEqual(masked, survivors[0]!.masked) &&
      isDeepStrictEqual(masked!.at(-1), gone),
  );
  if (survivors.length === (processes - 1) * ranksHere && alike) return survivors;
  console.log(`storm ${n} met ${meeting}: ${JSON.stringify(said)}`);
  process.exitCode = 1;
  return [];
}

const rows = new Map<string, number[]>();
for (let n = 0; n < storms; n++) {
  const row = meetings[n % 3]!;
  const times = rows.get(row) ?? [];
  rows.set(row, times);
  let timer: NodeJS.Timeout | undefined;
  const hangs = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('it hangs')), 10 * goalMs);
  });
  try {
    const survivors = await Promise.race([storm(n), hangs]);
    times.push(...survivors.map(({ nextMs }) => nextMs!));
  } catch (error) {
    console.log(`storm ${n}, ${row}: ${error}`);
    if (!(error instanceof EarlyFailure)) process.exitCode = 1;
  }
  clearTimeout(timer);
}
console.log(`| the ranks met | survivors | within ${goalMs} ms | median | longest |`);
console.log('| --- | --- | --- | --- | --- |');
for (const [row, times] of rows) {
  times.sort((a, b) => a - b);
  const within = times.filter((ms) => ms <= goalMs).length;
  const [median = 0, longest = 0] = [times[times.length >> 1], times.at(-1)];
  console.log(
    `| ${row} | ${times.length} | ${within} | ${median.toFixed(0)} ms | ${longest.toFixed(0)} ms |`,
  );
}
await crew.end();
await etcd.end();
