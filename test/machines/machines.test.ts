/**
 * Worlds of two virtual machines, over verbs and over tcp, and faults that one machine cannot have. The machines are started once; where one has lost
 * its power it boots again.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { needing } from '../needs.js';
import { launchersAt } from '../net/world/environments.js';
import { requireAllRight } from '../suite/nodes-over.js';
import { transpiled } from '../tree.js';
import { type Command, Machines } from './machine.js';

/** The machines are emulated, and slower by a factor of ten or more. */
const timeout = 400_000;

/** Over verbs all cases; over tcp, by which processes of one machine run them, a few. */
const networks = [
  ['verbs;ofi_rxm', 'rxe0', ''],
  ['tcp;ofi_rxm', 'eth0', 'bf16'],
] as const;

describe('two virtual machines', { timeout, ...needing('machines') }, () => {
  let machines: Machines;
  beforeAll(async () => {
    machines = await Machines.boot();
  }, timeout);
  afterAll(() => machines.end());

  /** Runs a program of the tests in a machine. */
  function run(n: number, program: string, variables: Readonly<Record<string, string>>): Command {
    const said = Object.entries(variables).map(([name, value]) => `${name}='${value}'`);
    const [path, ...args] = program.split(' ');
    return machines.at(n).run([...said, process.execPath, transpiled(`test/${path}.ts`), ...args].join(' '));
  }

  /** Starts this machine's part of a world of four ranks. */
  const start = (n: number, program: string, variables: Readonly<Record<string, string>> = {}): Command =>
    run(n, program, {
      ...{ HEDDLE_RANK: `${2 * n}`, HEDDLE_WORLD: '4', HEDDLE_RANKS_HERE: '2', HEDDLE_DEVICE: 'sim' },
      ...{ HEDDLE_ADDRESS: '10.99.0.1:29500', HEDDLE_SECRET: 'known to both machines' },
      ...variables,
    });

  it('meet by the variables of launchers', async () => {
    for (const [name, variables] of Object.entries(launchersAt('10.99.0.1'))) {
      const own = { HEDDLE_DEVICE: 'sim', HEDDLE_SECRET: 'known to both machines' };
      const ranks = [0, 1].map((rank) =>
        run(rank, 'net/world/programs/place', { ...own, ...variables(rank, 29500) }),
      );
      await Promise.all(ranks.map(({ ended }) => ended));
      const said = ranks.map(({ lines }) => lines.join('\n'));
      const met = ['rank 0', 'rank 1'];
      expect(said, name).toEqual([0, 1].map((rank) => JSON.stringify({ rank, ranks: 2, nodes: 2, met })));
    }
  });

  it.each(networks)(
    'over %s: rounds of hybrid bring the same bits as the reference',
    async (provider, nic, wanted) => {
      const program = `suite/programs/nodes-rank '${provider}' ${nic} ${wanted}`;
      const parts = [0, 1].map((n) => start(n, program));
      const codes = await Promise.all(parts.map(({ ended }) => ended));
      const lines = parts.flatMap(({ lines }) => lines);
      const out = lines.filter((line) => line.startsWith('{')).join('\n');
      requireAllRight(out, provider, 4, 2, lines.join('\n'), wanted);
      expect(codes).toEqual([0, 0]);
    },
  );

  /** Does something to machine `n`, and waits until it is done. */
  async function inMachine(n: number, command: string): Promise<void> {
    const { ended, lines } = machines.at(n).run(command);
    expect(await ended, lines.join('\n')).toBe(0);
  }

  /** Requires that a world's ranks have printed right rows alone, also beside those of machine 1, and have named no others. */
  const requireRight = (commands: readonly Command[]) => {
    const said = commands.flatMap(({ lines }) => lines);
    const right = /^([0-3]: round \d+ without (2|3|2,3)?: right|[0-3]: lost [23](,3)?: .*|[23]: out)$/;
    expect(said.filter((line) => !right.test(line))).toEqual([]);
  };

  it('leave out one whose RDMA device is removed, and that loses its power, and admit it again in new processes', async () => {
    const where = { HEDDLE_PROVIDER: 'verbs;ofi_rxm', HEDDLE_NICS: 'rxe0' };
    const survive = (n: number, comings: number, name?: string) =>
      start(n, `machines/programs/survive ${comings}`, { ...where, ...(name && { HEDDLE_REJOIN: name }) });
    const [first, second] = [survive(0, 2), survive(1, 2)];
    await first.prints(/round 3 /);
    await inMachine(1, 'rdma link delete rxe0');
    await first.prints(/without 2,3/);
    // It cannot come back by itself: it opens the device again, and says so.
    expect(await second.ended).toBe(1);
    expect(second.lines.join('\n')).toContain('FabricError: fi_domain failed');
    requireRight([{ ...second, lines: second.lines.filter((line) => /^\d: /.test(line)) }]);
    await inMachine(1, 'rdma link add rxe0 type rxe netdev eth0');
    const third = survive(1, 2, 'with a new device');
    await first.prints(/without :/);
    await machines.at(1).losePower();
    await first.prints(/without 2,3/);
    await machines.boot(1);
    const fourth = survive(1, 1, 'booted');
    expect(await Promise.all([first.ended, third.ended, fourth.ended])).toEqual([0, null, 0]);
    requireRight([first, third, fourth]);
    expect(fourth.lines.some((line) => line.startsWith('3: round'))).toBe(true);
  });

  it('go on where packets are lost, doubled and late, a clock jumps, one stands still, and a link goes down', async () => {
    const where = { HEDDLE_PROVIDER: 'tcp;ofi_rxm', HEDDLE_NICS: 'eth0' };
    const parts = [0, 1].map((n) => start(n, 'machines/programs/survive 2', where));
    const [first] = parts;
    await first!.prints(/round 3 /);
    await inMachine(0, 'tc qdisc add dev eth0 root netem delay 50ms 20ms loss 1% duplicate 1% reorder 25%');
    await first!.prints(/round 6 /);
    await inMachine(0, 'tc qdisc del dev eth0 root');
    for (const days of ['+1 day', '-2 days']) {
      await inMachine(1, `date -s "${days}"`);
      await first!.prints(/: round/);
      await first!.prints(/: round/);
    }
    // None of that has cost a rank.
    requireRight([first!]);
    expect(first!.lines.filter((line) => line.includes('without 2'))).toEqual([]);
    machines.at(1).freeze(true);
    await first!.prints(/without 2,3/);
    machines.at(1).freeze(false);
    await first!.prints(/without :/);
    await inMachine(1, 'ip link set eth0 down');
    await first!.prints(/without 2,3/);
    await inMachine(1, 'ip link set eth0 up');
    expect(await Promise.all(parts.map(({ ended }) => ended))).toEqual([0, 0]);
    requireRight(parts);
  });
});
