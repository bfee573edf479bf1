/**
 * Worlds of two virtual machines, over verbs and over tcp, and faults that one machine cannot have. The machines are started once; where one has lost
 * its power it boots again.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { needing } from '../needs.js';
import { operations } from '../net/fabric/operations.js';
import { launchersAt } from '../net/world/environments.js';
import { EtcdServer } from '../net/world/etcd/server.js';
import { requireAllRight } from '../suite/nodes-over.js';
import { transpiled } from '../tree.js';
import { bundled, makeBundle } from './bundle.js';
import { type Command, inGroup, limitMemory, Machines, node, outside } from './machine.js';
import type { Step } from './programs/several.js';

/** The machines are emulated, and slower by a factor of ten or more. */
const timeout = 400_000;

const known = { HEDDLE_DEVICE: 'sim', HEDDLE_SECRET: 'known to both machines' };

/** Two ranks, one a machine, which say where they are. `port`: each world has its own. */
const meeting = (n: number, port: number, own: Readonly<Record<string, string>>): Step => ({
  ...{ program: 'place', args: ['15000'] },
  variables: {
    ...known,
    HEDDLE_RANK: `${n}`,
    HEDDLE_WORLD: '2',
    HEDDLE_ADDRESS: `10.99.0.1:${port}`,
    ...own,
  },
});

/** The part of a process in a world of four ranks: it has two from `rank` on. `port`: as `meeting` has it. */
const partFrom = (rank: number, port = 29_520) => ({
  ...{ ...known, HEDDLE_RANK: `${rank}`, HEDDLE_WORLD: '4', HEDDLE_RANKS_HERE: '2' },
  HEDDLE_ADDRESS: `10.99.0.1:${port}`,
});
const alone = (rank: number) => ({ ...partFrom(rank), HEDDLE_RANKS_HERE: '1' });

const launchers = Object.entries(launchersAt('10.99.0.1'));
const [strange, none] = ['known to machine 1 alone', ''];

/** The cases over tcp, and of four nodes, whose ranks form no groups: over verbs two machines have all. */
const few = 'mxfp8|^groups|two rounds|moved';
const fewOfFour = 'bf16$|mxfp8|two rounds|moved';

/** What processes of both machines do one after the other, by name. `etcd`: where that listens. */
const stepsOf = (etcd: string): Readonly<Record<string, (n: number) => Step>> => ({
  ...Object.fromEntries(
    launchers.map(([name, variables], i) => [
      name,
      (n): Step => ({ program: 'place', variables: { ...known, ...variables(n, 29_500 + i) } }),
    ]),
  ),
  'in etcd': (n) => meeting(n, 0, { HEDDLE_RENDEZVOUS: etcd, HEDDLE_WORLD_ID: 'one' }),
  'with another secret': (n) => meeting(n, 29_510, n === 0 ? {} : { HEDDLE_SECRET: strange }),
  'without a secret': (n) => meeting(n, 29_511, { HEDDLE_SECRET: none }),
  'in etcd, without a secret': (n) =>
    meeting(n, 0, { HEDDLE_RENDEZVOUS: etcd, HEDDLE_WORLD_ID: 'three', HEDDLE_SECRET: none }),
  'in etcd, with another secret': (n) =>
    meeting(n, 0, {
      ...{ HEDDLE_RENDEZVOUS: etcd, HEDDLE_WORLD_ID: 'two' },
      ...(n === 1 && { HEDDLE_SECRET: strange }),
    }),
  'four nodes': (n) => rounds(alone(2 * n), 'verbs;ofi_rxm', 'rxe0', fewOfFour),
  engines: (n) => ({ program: 'engines', variables: partFrom(2 * n, 29_521) }),
  'verbs;ofi_rxm': (n) => rounds(partFrom(2 * n, 29_522), 'verbs;ofi_rxm', 'rxe0'),
  'tcp;ofi_rxm': (n) => rounds(partFrom(2 * n, 29_523), 'tcp;ofi_rxm', 'eth0', few),
  'what there is': (n) => ({
    ...{ program: '../../../cli/main', args: [n === 0 ? 'fabric' : 'doctor'], variables: {} },
  }),
});

const rounds = (variables: Step['variables'], ...args: readonly string[]): Step => ({
  ...{ program: 'nodes-rank', args, variables },
});

describe('two virtual machines', { timeout, ...needing('machines', 'etcd') }, () => {
  let machines: Machines;
  let etcd: EtcdServer;
  let names: readonly string[];
  let several: readonly Command[];
  let launched: readonly Command[];
  /** Those of four nodes that are processes of their own. They start while the others wait. */
  let others: readonly Command[];
  beforeAll(async () => {
    etcd = await EtcdServer.start();
    machines = new Machines();
    await Promise.all([machines.boot(0), machines.boot(1), makeBundle()]);
    const steps = stepsOf(`etcd://${outside}:${etcd.port}/heddle`);
    names = Object.keys(steps);
    several = [0, 1].map((n) =>
      run(n, `${process.execPath} ${bundled('several')}`, {
        STEPS: JSON.stringify(Object.values(steps).map((of) => of(n))),
      }),
    );
    const heddle = `${node} ${transpiled('src/cli/main.ts')}`;
    const command = `${heddle} run -n 2 --nodes 2 --device sim --no-prefix ${bundled('place')}`;
    launched = [0, 1].map((n) => machines.at(n).run(command));
  }, timeout);
  /** A case that failed. What its ranks still do would hold up others, too. */
  let failed: string | null = null;
  beforeEach(({ skip }) => skip(failed !== null, `${failed} failed`));
  // A case that fails by its time alone would say nothing.
  afterEach(async ({ task }) => {
    if (task.result?.state !== 'fail' || failed !== null) return;
    failed = task.name;
    console.error(await machines.report());
  });
  afterAll(async () => {
    await machines.end();
    await etcd.end();
  });

  /** What both machines have printed in a step, by lines, once it is over. */
  async function said(name: string): Promise<readonly (readonly string[])[]> {
    const n = names.indexOf(name);
    await Promise.all(several.map((command) => command.hasPrinted(new RegExp(`^end of ${n}$`))));
    return several.map(({ lines }) => {
      const start = n === 0 ? 0 : lines.indexOf(`end of ${n - 1}`) + 1;
      return lines.slice(start, lines.indexOf(`end of ${n}`));
    });
  }

  /** Runs a program of the tests in a machine. */
  function run(n: number, program: string, variables: Readonly<Record<string, string>>): Command {
    const said = Object.entries(variables).map(([name, value]) => `${name}='${value}'`);
    return machines.at(n).run(inGroup([...said, 'exec', program].join(' ')));
  }

  /** Starts this machine's part of a world of four ranks, which goes on without those that are lost until so many times all were there again. */
  const survive = (n: number, times: number, variables: Readonly<Record<string, string>>): Command =>
    run(n, `${node} ${bundled('survive')} ${times}`, { ...partFrom(2 * n), ...variables });

  it.each([...launchers.map(([name]) => name), 'in etcd'])('meet: %s', async (name) => {
    const met = ['rank 0', 'rank 1'];
    expect(await said(name)).toEqual(
      [0, 1].map((rank) => [JSON.stringify({ rank, ranks: 2, nodes: 2, met })]),
    );
  });

  it('refuse a rank that knows another secret, or none', async () => {
    others = [1, 3].map((rank) =>
      run(rank >> 1, `${node} ${bundled('nodes-rank')} 'verbs;ofi_rxm' rxe0 '${fewOfFour}'`, alone(rank)),
    );
    const [, stranger] = await said('with another secret');
    expect(stranger).toEqual([
      expect.stringMatching(/^failed: rank 1 cannot join .*its secret is another one/),
    ]);
    for (const name of ['without a secret', 'in etcd, without a secret'])
      for (const lines of await said(name))
        expect(lines).toEqual([expect.stringMatching(/^failed: HEDDLE_SECRET is undefined; it must be set/)]);
    const inEtcd = (await said('in etcd, with another secret')).flat().join('\n');
    expect(inEtcd).toContain('was begun with another secret');
    expect(inEtcd).not.toContain('"met"');
  });

  it('over verbs: rounds of four nodes of one rank each', async () => {
    expect(await Promise.all(others.map((command) => command.ends()))).toEqual([0, 0]);
    const lines = [...(await said('four nodes')).flat(), ...others.flatMap(({ lines }) => lines)];
    const out = lines.filter((line) => line.startsWith('{')).join('\n');
    requireAllRight(out, 'verbs;ofi_rxm', 4, 1, lines.join('\n'), fewOfFour);
  });

  it('run engines over verbs: all operations, and two NICs each with shard peer and bytes', async () => {
    const lines = (await said('engines')).flat();
    const checked = lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
    for (const shard of ['peer', 'bytes'])
      for (const rank of [0, 1, 2, 3])
        expect(checked).toContainEqual({ rank, shard, bytesChecked: 3 * 4 * 10_000 });
    expect(lines.filter((line) => !line.startsWith('{'))).toEqual(Object.keys(operations));
  });

  it.each([
    ['verbs;ofi_rxm', ''],
    ['tcp;ofi_rxm', few],
  ] as const)('over %s: rounds of hybrid bring the same bits as the reference', async (provider, wanted) => {
    const lines = (await said(provider)).flat();
    const out = lines.filter((line) => line.startsWith('{')).join('\n');
    requireAllRight(out, provider, 4, 2, lines.join('\n'), wanted);
  });

  it('say what there is: soft-RoCE, no measure of speed, and what GPU memory would take', async () => {
    const [fabric, doctor] = (await said('what there is')).map((lines) => lines.join('\n'));
    const soft = /rxe\d: soft-RoCE on eth\d: RDMA in software, no measure of speed; .* by dma-buf/g;
    expect(fabric!.match(soft)).toHaveLength(2);
    expect(fabric).toMatch(/^verbs;ofi_rxm +rxe0 .* staged$/m);
    expect(doctor).toMatch(/rxe0 up, soft-RoCE on eth0: .*no measure of speed.*dma-buf.*rxe1 up, soft-RoCE/);
    expect(doctor).toMatch(/providers: .*verbs;ofi_rxm \(rxe0, rxe1\)/);
  });

  it('run a world of their own each by heddle run', async () => {
    await Promise.all(launched.map((command) => command.ends()));
    const met = ['rank 0', 'rank 1'];
    for (const { lines } of launched)
      expect(lines.map((line) => JSON.parse(line)).sort((a, b) => a.rank - b.rank)).toEqual(
        [0, 1].map((rank) => ({ rank, ranks: 2, nodes: 2, met })),
      );
  });

  /** Does something to machine `n`, and waits until it is done. */
  async function inMachine(n: number, command: string): Promise<void> {
    const { ends, lines } = machines.at(n).run(command);
    expect(await ends(), lines.join('\n')).toBe(0);
  }

  /** Requires that a world's ranks have printed right rows alone, also beside those of machine 1, and have named no others. */
  const requireRight = (commands: readonly Command[]) => {
    const said = commands.flatMap(({ lines }) => lines);
    const right = /^([0-3]: round \d+ without (2|3|2,3)?: right|[0-3]: lost [23](,3)?: .*|[23]: out)$/;
    expect(said.filter((line) => !right.test(line))).toEqual([]);
    for (const line of said) {
      const [, lost, named] = /: lost ([\d,]+): .*peer rank (\d)/.exec(line) ?? [];
      if (named !== undefined) expect(lost!.split(','), line).toContain(named);
    }
  };

  it('leave out one whose RDMA device is removed, and that loses its power, and admit it again in new processes', async () => {
    const where = { HEDDLE_PROVIDER: 'verbs;ofi_rxm', HEDDLE_NICS: 'rxe0' };
    const here = (n: number, times: number, name?: string) =>
      survive(n, times, { ...where, ...(name && { HEDDLE_REJOIN: name }) });
    const [first, second] = [here(0, 2), here(1, 2)];
    await first.prints(/round 3 /);
    await inMachine(1, 'rdma link delete rxe0');
    await first.prints(/without 2,3/);
    // It cannot come back by itself: it opens the device again, and says so.
    expect(await second.ends()).toBe(1);
    expect(second.lines.join('\n')).toContain('FabricError: fi_domain failed');
    requireRight([{ ...second, lines: second.lines.filter((line) => /^\d: /.test(line)) }]);
    await inMachine(1, 'rdma link add rxe0 type rxe netdev eth0');
    const third = here(1, 2, 'with a new device');
    await first.prints(/without :/);
    await machines.at(1).losePower();
    await first.prints(/without 2,3/);
    await machines.boot(1);
    const fourth = here(1, 1, 'booted');
    expect(await Promise.all([first, third, fourth].map((command) => command.ends()))).toEqual([0, null, 0]);
    requireRight([first, third, fourth]);
    expect(fourth.lines.some((line) => line.startsWith('3: round'))).toBe(true);
  });

  it('go on where packets are lost, doubled and late, a clock jumps, one stands still, a link goes down, and memory runs out', async () => {
    const where = { HEDDLE_PROVIDER: 'tcp;ofi_rxm', HEDDLE_NICS: 'eth0' };
    const [first, second] = [survive(0, 3, where), survive(1, 3, where)];
    await first.prints(/round 3 /);
    await inMachine(0, 'tc qdisc add dev eth0 root netem delay 50ms 20ms loss 1% duplicate 1% reorder 25%');
    for (let line = 0; line < 6; line++) await first.prints(/: round/);
    await inMachine(0, 'tc qdisc del dev eth0 root');
    for (const days of ['+1 day', '-2 days']) {
      await inMachine(1, `date -s "${days}"`);
      for (let line = 0; line < 2; line++) await first.prints(/: round/);
    }
    // None of that has cost a rank.
    requireRight([first]);
    expect(first.lines.filter((line) => line.includes('without 2'))).toEqual([]);
    machines.at(1).freeze(true);
    await first.prints(/without 2,3/);
    machines.at(1).freeze(false);
    await first.prints(/without :/);
    await inMachine(1, 'ip link set eth0 down');
    await first.prints(/without 2,3/);
    await inMachine(1, 'ip link set eth0 up');
    await first.prints(/without :/);
    // New processes of such a machine come back in storms, and behind the other faults here: each takes long to start.
    await inMachine(1, limitMemory('20M'));
    expect(await second.ends()).toBe(137);
    await first.prints(/without 2,3/);
    requireRight([first, second]);
  });
});
