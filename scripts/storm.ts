/**
 * Storms over two virtual machines: `npm run storm:machines [faults] [seed] [provider]`. Four simulated ranks, two a machine, run rounds that leave lost
 * ranks out, met in an etcd on this machine. Faults are drawn from the seed, each at one machine; then all have to be there again. Every row is
 * checked, and every name. Exit code 1 where a row or a name is wrong, or somebody waits for too long. `test/machines/make` comes first.
 */
import { execFileSync } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { random } from '../src/verify/testing/index.js';
import { bundled, makeBundle } from '../test/machines/bundle.js';
import { type Command, inGroup, limitMemory, Machines, outside } from '../test/machines/machine.js';
import { EtcdServer } from '../test/net/world/etcd/server.js';
import { transpile } from '../test/setup.js';

const count = Number(process.argv[2] ?? 40);
const seed = Number(process.argv[3] ?? Date.now() % 1e6);
const provider = process.argv[4] ?? 'verbs;ofi_rxm';
const nic = provider.startsWith('verbs') ? 'rxe0' : 'eth0';
/** Longer than anything takes on a busy machine but what hangs. */
const longestMs = 300_000;
/** A write has half of it: on a busy machine an emulated one may answer after seconds. */
const waitMs = 20_000;
/** Longer than a simulated rank stands still where it ends a connection of soft-RoCE to a machine that does not answer: half a minute. */
const lossTimeoutMs = 60_000;

const draw = random(seed);
await transpile();
await makeBundle();
const [machines, etcd] = await Promise.all([Machines.boot(), EtcdServer.start()]);
const ranksOf = (n: number) => `${2 * n},${2 * n + 1}`;
let starts = 0;
let worlds = 0;

/** Starts a machine's ranks: of a new world, or to take their places. */
function start(n: number, again: boolean): Command {
  const variables = {
    ...{ HEDDLE_RANK: 2 * n, HEDDLE_WORLD: 4, HEDDLE_RANKS_HERE: 2, HEDDLE_DEVICE: 'sim' },
    ...{ HEDDLE_RENDEZVOUS: `etcd://${outside}:${etcd.port}/storm`, HEDDLE_WORLD_ID: `storm ${worlds}` },
    ...{ HEDDLE_PROVIDER: provider, HEDDLE_NICS: nic, HEDDLE_SECRET: 'known to both machines' },
    ...(again && { HEDDLE_REJOIN: `start ${++starts}` }),
  };
  const said = Object.entries(variables).map(([name, value]) => `${name}='${value}'`);
  const program = `${bundled('survive')} 0 ${waitMs} ${lossTimeoutMs}`;
  return machines.at(n).run(inGroup(`${said.join(' ')} exec ${process.execPath} ${program}`));
}

async function inMachine(n: number, command: string): Promise<void> {
  const { ended, lines } = machines.at(n).run(command);
  if ((await ended) !== 0) throw new Error(`${command}: ${lines.join('\n')}`);
}

/** A fault of machine `n`. */
interface Fault {
  readonly name: string;
  /** Whether the others have to leave its ranks out. */
  readonly loses: boolean;
  /** Whether its processes end, too. */
  readonly ends?: boolean;
  begin(n: number): Promise<void>;
  mend(n: number): Promise<void>;
}

const nothing = async () => {};
const netem = (what: string): Fault => ({
  ...{ name: `netem ${what}`, loses: false },
  begin: (n) => inMachine(n, `tc qdisc add dev eth0 root netem ${what}`),
  mend: (n) => inMachine(n, 'tc qdisc del dev eth0 root'),
});
const clock = (days: string): Fault => ({
  ...{ name: `the clock jumps by ${days}`, loses: false, mend: nothing },
  begin: (n) => inMachine(n, `date -s '${days}'`),
});
/** Not until the others leave it out: what they send to it stalls their emulated NICs, and so perhaps themselves. */
const frozen = (seconds: number, loses: boolean): Fault => ({
  ...{ name: `frozen for ${seconds} s`, loses, mend: nothing },
  async begin(n) {
    machines.at(n).freeze(true);
    await delay(1000 * seconds);
    machines.at(n).freeze(false);
  },
});

let booting = Promise.resolve();
const deadly: readonly Fault[] = [
  {
    ...{ name: 'power', loses: true, ends: true },
    async begin(n) {
      await machines.at(n).losePower();
      booting = machines.boot(n);
    },
    mend: () => booting,
  },
  {
    ...{ name: 'memory runs out', loses: true, ends: true },
    begin: (n) => inMachine(n, limitMemory('20M')),
    mend: (n) => inMachine(n, limitMemory('max')),
  },
  ...(nic === 'eth0'
    ? []
    : [
        {
          ...{ name: 'RDMA device removed', loses: true, ends: true },
          // The command waits until nobody has the device open any more.
          begin: async (n: number) => void machines.at(n).run('rdma link delete rxe0'),
          mend: (n: number) => inMachine(n, 'rdma link add rxe0 type rxe netdev eth0'),
        },
      ]),
];
/** Over TCP alone: soft-RoCE of Linux 6.1 that sends without a link connects nobody any more until its device is made anew. */
const links: readonly Fault[] = [
  {
    ...{ name: 'link down and up', loses: true },
    begin: (n) => inMachine(n, 'ip link set eth0 down'),
    mend: (n) => inMachine(n, 'ip link set eth0 up'),
  },
  {
    ...{ name: 'link down for 0.2 s', loses: false, mend: nothing },
    begin: (n) => inMachine(n, 'ip link set eth0 down; sleep 0.2; ip link set eth0 up'),
  },
];
const others: readonly Fault[] = [
  ...(nic === 'eth0' ? links : []),
  frozen(40, true),
  frozen(2, false),
  ...['loss 1%', 'duplicate 1%', 'delay 50ms 20ms', 'delay 10ms reorder 25%'].map(netem),
  ...['+1 day', '-1 day'].map(clock),
];
/** Those that end processes take the longest, and come half as often. */
const faults = [...deadly, ...others, ...others];

let ranks: Command[] = [];
/** By machine: how many of the lines that its ranks have printed were looked at. */
let seen = [0, 0];
let rows = 0;

async function begin(): Promise<void> {
  worlds++;
  ranks = [start(0, false), start(1, false)];
  seen = [0, 0];
  await rounds(0, 3);
}

async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  const over = new AbortController();
  const hangs = delay(longestMs, undefined, { signal: over.signal }).then(() => {
    throw new Error(`it hangs: ${what}`);
  });
  try {
    return await Promise.race([promise, hangs]);
  } finally {
    hangs.catch(() => {});
    over.abort();
  }
}

async function rounds(n: number, many: number): Promise<void> {
  for (let i = 0; i < many; i++) await inTime('a round', ranks[n]!.prints(/without : right/));
}

/** The lines of ranks since they were last looked at that are no right rows, and name others than those of machine `victim`. */
function wrongLines(victim: number | null): string[] {
  const out = victim === null ? '' : `${2 * victim}|${2 * victim + 1}|${ranksOf(victim)}`;
  const right = new RegExp(`^\\d: round \\d+ without (${out})?: right$`);
  const named = victim === null ? /^never$/ : new RegExp(`^(\\d: lost (${out}): .*|(${out}): out)$`);
  return ranks.flatMap(({ lines }, n) => {
    const fresh = lines.slice(seen[n]).filter((line) => /^\d: /.test(line));
    seen[n] = lines.length;
    const wrong = fresh.filter((line) => !right.test(line));
    rows += fresh.length - wrong.length;
    return wrong.filter((line) => !named.test(line));
  });
}

function requireRight(victim: number | null): void {
  const wrong = wrongLines(victim);
  if (wrong.length > 0) throw new Error(`wrong rows or names:\n${wrong.join('\n')}`);
}

const tally = new Map<string, number>();
let wrong = 0;
const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
console.log(`commit ${commit}, seed ${seed}: ${count} faults over ${provider}, waitMs ${waitMs}`);
const began = performance.now();
await begin();
for (let i = 0; i < count; i++) {
  const fault = faults[draw.below(faults.length)]!;
  const victim = draw.below(2);
  const observer = ranks[1 - victim]!;
  const since = performance.now();
  try {
    await rounds(1 - victim, 1 + draw.below(8));
    const leftOut = observer.prints(new RegExp(`without ${ranksOf(victim)}: right`));
    leftOut.catch(() => {});
    await inTime('the fault', fault.begin(victim));
    if (fault.ends) {
      await inTime('its processes end', ranks[victim]!.ended);
      requireRight(victim);
      await inTime('it is mended', fault.mend(victim));
      ranks[victim] = start(victim, true);
      seen[victim] = 0;
    }
    if (fault.loses) await inTime('the others leave its ranks out', leftOut);
    else await rounds(1 - victim, 3);
    if (!fault.ends) await inTime('it is mended', fault.mend(victim));
    await rounds(1 - victim, 3);
    await rounds(victim, 1);
    requireRight(fault.loses ? victim : null);
  } catch (error) {
    wrong++;
    console.log(`fault ${i + 1}, ${fault.name} at machine ${victim}: ${error}`);
    const lines = ranks.flatMap(({ lines }) => lines);
    for (const of of [/^0: /, /^1: /, /^2: /, /^3: /, /^(?!\d: )/])
      console.log(
        lines
          .filter((line) => of.test(line))
          .slice(-20)
          .join('\n'),
      );
    await Promise.all([0, 1].map((n) => machines.at(n).losePower()));
    await Promise.all([0, 1].map((n) => machines.boot(n)));
    await begin();
  }
  tally.set(fault.name, (tally.get(fault.name) ?? 0) + 1);
  console.log(
    `${i + 1}: ${fault.name} at machine ${victim}, ${((performance.now() - since) / 1000).toFixed(0)} s; ${rows} rows`,
  );
}
await Promise.all([machines.end(), etcd.end()]);
console.log(
  `seed ${seed}: ${count} faults in ${((performance.now() - began) / 1000).toFixed(0)} s, ${rows} rounds of a rank right; ${wrong} faults ended otherwise`,
);
for (const [name, times] of [...tally].sort()) console.log(`| ${name} | ${times} |`);
process.exitCode = wrong === 0 ? 0 : 1;
