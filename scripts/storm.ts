/**
 * Storms over two virtual machines: `npm run storm:machines [faults] [seed] [provider]`. Four simulated ranks, two a machine, run rounds that leave lost
 * ranks out, met in an etcd on this machine. Faults are drawn from the seed, each at one machine; then all have to be there again. Every row is
 * checked, and every name. Exit code 1 where a row or a name is wrong, a process falls, or somebody waits for too long. `test/machines/make` comes
 * first. What it says last counts; a signal ends it with the faults so far.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../src/base/errors.js';
import { random } from '../src/verify/testing/index.js';
import { bundled, makeBundle } from '../test/machines/bundle.js';
import { type Command, inGroup, limitMemory, Machines, outside } from '../test/machines/machine.js';
import { EtcdServer } from '../test/net/world/etcd/server.js';
import { transpile } from '../test/setup.js';

const count = Number(process.argv[2] ?? 40);
const seed = Number(process.argv[3] ?? Date.now() % 1e6);
const provider = process.argv[4] ?? 'verbs;ofi_rxm';
const nic = provider.startsWith('verbs') ? 'rxe0' : 'eth0';
/** A write has half of it: on a busy machine an emulated one may answer after seconds. */
const waitMs = 20_000;
/** Longer than a simulated rank stands still where it ends a connection of soft-RoCE to a machine that does not answer: half a minute. */
const lossTimeoutMs = 60_000;

const draw = random(seed);
await transpile();
await makeBundle();
const etcd = await EtcdServer.start();
const machines = new Machines();
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
  const { ends, lines } = machines.at(n).run(command);
  if ((await ends()) !== 0) throw new Error(`${command}: ${lines.join('\n')}`);
}

/** A fault of machine `n`. */
interface Fault {
  readonly name: string;
  /** Whether the others have to leave its ranks out, or go on with them. */
  readonly loses: boolean | 'perhaps';
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
/**
 * Not until the others leave it out: what they send to it stalls their emulated NICs, and so perhaps themselves for as long. Then all go on together,
 * also after a time in which they would have left it out.
 */
const frozen = (seconds: number, loses: Fault['loses']): Fault => ({
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
      booting.catch(() => {});
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
  frozen(40, 'perhaps'),
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

/** Boots both machines, and begins a world. */
async function begin(): Promise<void> {
  worlds++;
  await Promise.all([0, 1].map((n) => machines.boot(n)));
  ranks = [start(0, false), start(1, false)];
  seen = [0, 0];
  await rounds(0, 3);
}

async function rounds(n: number, many: number): Promise<void> {
  for (let i = 0; i < many; i++) await ranks[n]!.prints(/without : right/);
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
/** Faults that ended otherwise. */
const otherwise = { hung: 0, 'with wrong names': 0, 'with wrong rows': 0, 'with a process that fell': 0 };
const kindOf = (message: string): keyof typeof otherwise =>
  message.startsWith('it hangs')
    ? 'hung'
    : !message.startsWith('wrong')
      ? 'with a process that fell'
      : /: wrong$/m.test(message)
        ? 'with wrong rows'
        : 'with wrong names';
const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
console.log(`commit ${commit}, seed ${seed}: ${count} faults over ${provider}, waitMs ${waitMs}`);
const began = performance.now();
const seconds = (since: number) => ((performance.now() - since) / 1000).toFixed(0);
/** The load, and for how much of the last minute some program waited for a processor: where a limit falls, it tells a busy machine from a defect. */
const busy = () => {
  const [load] = readFileSync('/proc/loadavg', 'utf8').split(' ');
  return `load ${load}, waiting ${/avg60=(\S+)/.exec(readFileSync('/proc/pressure/cpu', 'utf8'))?.[1]} %`;
};

function summarise(): void {
  const done = [...tally.values()].reduce((sum, times) => sum + times, 0);
  const ends = Object.entries(otherwise).map(([how, times]) => `${times} ${how}`);
  console.log(
    `seed ${seed}: ${done} of ${count} faults in ${seconds(began)} s: ${ends.join(', ')}; ${rows} rounds of a rank right`,
  );
  for (const [name, times] of [...tally].sort()) console.log(`| ${name} | ${times} |`);
  process.exitCode = done === count && ends.every((end) => end.startsWith('0 ')) ? 0 : 1;
}

async function one(i: number): Promise<void> {
  const fault = faults[draw.below(faults.length)]!;
  const [victim, before] = [draw.below(2), 1 + draw.below(8)];
  const since = performance.now();
  try {
    if (ranks.length === 0) await begin();
    const observer = ranks[1 - victim]!;
    await rounds(1 - victim, before);
    const leftOut = observer.prints(new RegExp(`without ${ranksOf(victim)}: right`));
    leftOut.catch(() => {});
    await fault.begin(victim);
    if (fault.ends) {
      await ranks[victim]!.ends();
      requireRight(victim);
      await fault.mend(victim);
      ranks[victim] = start(victim, true);
      seen[victim] = 0;
    }
    const together = fault.loses === true ? leftOut : rounds(1 - victim, 3);
    together.catch(() => {});
    await (fault.loses ? Promise.race([leftOut, together]) : together);
    if (!fault.ends) await fault.mend(victim);
    await rounds(1 - victim, 3);
    await rounds(victim, 1);
    requireRight(fault.loses ? victim : null);
  } catch (error) {
    const message = messageOf(error);
    otherwise[kindOf(message)]++;
    console.log(`fault ${i + 1}, ${fault.name} at machine ${victim}, ${busy()}: ${message}`);
    const lines = ranks.flatMap(({ lines }) => lines);
    for (const of of [/^0: /, /^1: /, /^2: /, /^3: /, /^(?!\d: )/])
      console.log(
        lines
          .filter((line) => of.test(line))
          .slice(-20)
          .join('\n'),
      );
    console.log(await machines.report());
    await machines.losePower();
    ranks = [];
  }
  tally.set(fault.name, (tally.get(fault.name) ?? 0) + 1);
  console.log(`${i + 1}: ${fault.name} at machine ${victim}, ${seconds(since)} s; ${rows} rows; ${busy()}`);
}

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    summarise();
    void machines.end();
    void etcd.end();
    process.exit();
  });
try {
  for (let i = 0; i < count; i++) await one(i);
} finally {
  await Promise.all([machines.end(), etcd.end()]);
  summarise();
}
