/**
 * Worlds of two virtual machines, over verbs and over tcp, and faults that one machine cannot have. The machines are started once; where one has lost
 * its power it boots again.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { needing } from '../needs.js';
import { requireAllRight } from '../suite/nodes-over.js';
import { transpiled } from '../tree.js';
import { type Command, Machines } from './machine.js';

/** The machines are emulated, and slower by a factor of ten or more. */
const timeout = 400_000;

const networks = [
  ['verbs;ofi_rxm', 'rxe0'],
  ['tcp;ofi_rxm', 'eth0'],
] as const;

describe('two virtual machines', { timeout, ...needing('machines') }, () => {
  let machines: Machines;
  beforeAll(async () => {
    machines = await Machines.boot();
  }, timeout);
  afterAll(() => machines.end());

  /** Starts this machine's part of a world of four ranks. */
  function start(n: number, program: string, variables: Readonly<Record<string, string>> = {}): Command {
    const all = {
      ...{ HEDDLE_RANK: `${2 * n}`, HEDDLE_WORLD: '4', HEDDLE_RANKS_HERE: '2', HEDDLE_DEVICE: 'sim' },
      ...{ HEDDLE_ADDRESS: '10.99.0.1:29500', HEDDLE_SECRET: 'known to both machines' },
      ...variables,
    };
    const said = Object.entries(all).map(([name, value]) => `${name}='${value}'`);
    const [path, ...args] = program.split(' ');
    return machines.at(n).run([...said, process.execPath, transpiled(`test/${path}.ts`), ...args].join(' '));
  }

  it.each(networks)(
    'over %s: rounds of hybrid bring the same bits as the reference',
    async (provider, nic) => {
      const parts = [0, 1].map((n) => start(n, `suite/programs/nodes-rank '${provider}' ${nic}`));
      const codes = await Promise.all(parts.map(({ ended }) => ended));
      const lines = parts.flatMap(({ lines }) => lines);
      const out = lines.filter((line) => line.startsWith('{')).join('\n');
      requireAllRight(out, provider, 4, 2, lines.join('\n'));
      expect(codes).toEqual([0, 0]);
    },
  );

  it.each(networks)(
    'over %s: one that loses its power is left out, boots, and is admitted again',
    async (provider, nic) => {
      const where = { HEDDLE_PROVIDER: provider, HEDDLE_NICS: nic };
      const [first, second] = [0, 1].map((n) => start(n, 'machines/programs/survive', where)) as [
        Command,
        Command,
      ];
      await first.printed(/round 3 /);
      await machines.at(1).losePower();
      await first.printed(/without 2,3/);
      await machines.boot(1);
      const back = start(1, 'machines/programs/survive', { ...where, HEDDLE_REJOIN: 'machine 1' });
      expect(await Promise.all([first.ended, second.ended, back.ended])).toEqual([0, null, 0]);
      const said = [first, second, back].flatMap(({ lines }) => lines);
      expect(said.filter((line) => !/^[0-3]: round \d+ without (2,3)?: right$/.test(line))).toEqual([]);
      // It ends with rounds of all ranks.
      const rounds = (command: Command) => command.lines.map((line) => line.split(': ')[1]);
      expect(rounds(first).at(-1)).toBe(rounds(back).at(-1));
      expect(back.lines.some((line) => line.startsWith('3: '))).toBe(true);
    },
  );
});
