import { describe, expect, it, vi } from 'vitest';
import { listSubjects, runCheck } from '../../../src/cli/check.js';
import type { SimMachine } from '../../../src/gpu/sim/index.js';
import { type IrModule, kernel, pointer } from '../../../src/lang/index.js';
import { type CheckProgress, check, mutantsOf, mutate, runOnce } from '../../../src/verify/check/index.js';
import { launch } from '../../gpu/sim/harness.js';
import { ringConfiguration, ringKernel, ringSubject } from './ring.js';

const right = ringSubject();
const wrong = ringSubject({ waitsUntilTaken: false });

/** Launches kernels one after another, each with memory of its own. */
const onOneGpu = (...modules: readonly IrModule[]) => ({
  name: 'one GPU',
  ranks: 1,
  async run(machine: SimMachine) {
    const device = machine.device(0);
    const rank = { rank: 0, device, stream: device.createStream() };
    for (const module of modules) await launch(rank, module, {}, { out: device.allocate(128, 'output') });
    await rank.stream.synchronize();
  },
});

describe('check', () => {
  it('finds nothing in a kernel that is right', async () => {
    const seen: CheckProgress[] = [];
    const report = await check([right], { seeds: 20, progress: (p) => seen.push(p) });
    expect(report).toMatchObject({ kernels: ['ring'], configurations: 2, schedules: 40, findings: [] });
    expect(seen.at(-1)).toMatchObject({ phase: 'schedules', done: 40, total: 40 });
  });

  it('runs about 800 schedules by default, at least one of each kind in every configuration', async () => {
    let seeds: string[][] = [];
    const idle = (count: number) => ({
      name: 'idle',
      kernels: [],
      configurations: Array.from({ length: count }, (_, i) => ({
        name: `${i}`,
        ranks: 1,
        run: async ({ seed }: SimMachine) => void seeds[i]!.push(seed),
      })),
    });
    for (const [configurations, schedules] of [
      [1, 800],
      [500, 1000],
    ] as const) {
      seeds = Array.from({ length: configurations }, () => []);
      expect(await check([idle(configurations)])).toMatchObject({ configurations, schedules, findings: [] });
      expect(new Set(seeds.map((of) => of.slice(0, 2).join()))).toEqual(new Set(['random-0,priority-1']));
    }
  });

  it('finds a buffer that is used again one round too early, and replays it', async () => {
    const report = await check([wrong], { seeds: 20 });
    const race = report.findings.find((f) => f.kind === 'race');
    expect(race).toMatchObject({ buffer: 'window', location: expect.stringMatching(/^row\[\d\]/) });
    const again = await check([wrong], { replay: `${race!.configuration}/${race!.seed}` });
    expect(again.schedules).toBe(1);
    expect(again.findings).toContainEqual(race);
  });

  it.each<[string, (machine: SimMachine) => Promise<void>]>([
    ['waits for what nobody does', () => new Promise(() => {})],
    [
      'looks again and again',
      async (machine) => {
        const stream = machine.device(0).createStream();
        for (;;) {
          await stream.synchronize();
          for (let i = 0; i < 50; i++) await new Promise((resolve) => setTimeout(resolve, 1));
        }
      },
    ],
  ])('ends the schedule of a host program that %s, by turns of the event loop', async (_, run) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'setInterval', 'clearInterval'] });
    try {
      const running = runOnce({ name: 'endless', ranks: 1, run }, { seed: '1' });
      for (let i = 0; i < 25; i++) await vi.advanceTimersByTimeAsync(1000);
      const message = expect.stringContaining('the host programs do not end');
      expect((await running).findings).toMatchObject([{ kind: 'failure', message }]);
    } finally {
      vi.useRealTimers();
    }
  });

  it('kills every mutant of a kernel that needs all it has', async () => {
    const { mutants } = await check([right], { seeds: 4, mutants: true });
    expect(mutants.survivors).toEqual([]);
    expect(mutants.total).toBe(12);
    expect(mutants.killed).toBe(12);
  });

  it('names what is superfluous as a survivor', async () => {
    const twice = kernel({ name: 'twice', params: { out: pointer('u32') } }, (g, { out }) => {
      g.store(out.at(g.threadIdx.x), 1);
      g.barrier();
      g.store(out.at(g.threadIdx.x), 2);
    });
    const subject = { name: 'one', kernels: ['twice'], configurations: [onOneGpu(twice.ir())] };
    const options = { seeds: 1, mutants: true, schedulesPerMutant: 5 };
    const { mutants } = await check([subject], options);
    const survivor = { kernel: 'twice', text: 'g.barrier()' };
    expect(mutants).toMatchObject({ total: 1, killed: 0, survivors: [survivor], elsewhere: [] });
    // Another subject, which was not asked for, might catch it.
    const both = [subject, { ...subject, name: 'other', configurations: [onOneGpu(twice.ir())] }];
    const some = await check(both, { ...options, only: ['one'] });
    expect(some.mutants).toMatchObject({ total: 1, killed: 0, survivors: [], elsewhere: [survivor] });
    const { text, clean } = await runCheck(both, ['one'], { seeds: 1, mutants: true });
    expect(text).toContain(
      '1 mutant of kernels that other configurations run too, not caught here: heddle check twice --mutants',
    );
    expect(clean).toBe(true);
  });

  it('changes all kernels of a name that a configuration runs, not only the first', async () => {
    const made = (orders: boolean) =>
      kernel(
        { name: 'made', params: { out: pointer('u32') }, using: { ORDERS: orders } },
        (g, { out }, { ORDERS }) => {
          g.store(out.at(g.threadIdx.x), 1);
          if (ORDERS) g.barrier();
        },
      );
    const modules = [made(false), made(true), made(true)].map((one) => one.ir());
    const subject = { name: 'one', kernels: ['made'], configurations: [onOneGpu(...modules)] };
    const { mutants } = await check([subject], { seeds: 1, mutants: true, schedulesPerMutant: 5 });
    expect(mutants).toMatchObject({ total: 1, survivors: [{ kernel: 'made', text: 'g.barrier()' }] });
  });

  it('says what there is when asked for something else', async () => {
    await expect(check([right], { only: ['line'] })).rejects.toThrow(
      'kernel is "line"; it must be one of rings, ring',
    );
  });

  it('turns what a configuration throws into a finding', async () => {
    const failing = { name: 'failing', ranks: 1, run: async () => Promise.reject(new Error('no luck')) };
    const { findings } = await runOnce(failing, { seed: 'random-0' });
    expect(findings).toEqual([
      { kind: 'failure', message: 'no luck', seed: 'random-0', configuration: 'failing', stale: [] },
    ]);
  });
});

describe('mutants', () => {
  it('weaken or remove one operation of the source each', () => {
    const module = ringKernel(3, { waitsUntilTaken: true }).ir();
    const mutants = mutantsOf(module);
    expect(mutants.map((m) => m.description).sort()).toEqual(
      [
        ...['acquire → relaxed', 'sys → gpu'].flatMap((d) => [d, d]),
        ...['release → relaxed', 'sys → gpu', 'looks once'].flatMap((d) => [d, d]),
        'barrier removed',
        'barrier removed',
      ].sort(),
    );
    expect(new Set(mutants.map((m) => m.id)).size).toBe(mutants.length);
    for (const mutant of mutants) {
      expect(mutate(module, mutant)).not.toBe(module);
      expect(mutant.where).toMatch(/ring\.ts:\d+:\d+$/);
    }
  });

  it('leave kernels alone that lack the operation', () => {
    const other = kernel({ name: 'other', params: {} }, (g) => {
      g.barrier();
    }).ir();
    for (const mutant of mutantsOf(ringKernel(3, { waitsUntilTaken: true }).ir())) {
      expect(mutate(other, mutant)).toBe(other);
    }
  });
});

describe('determinism', () => {
  const configuration = ringConfiguration(ringKernel(3, { waitsUntilTaken: false }), 3, 4);

  it.each(['random', 'priority'] as const)('the same seed gives the same run (%s)', async (schedule) => {
    const runs = [];
    for (const seed of ['a', 'a', 'b']) {
      const { machine, findings } = await runOnce(configuration, { seed, schedule });
      runs.push({
        steps: machine.statistics.steps,
        trace: [...machine.trace],
        findings: findings.map((f) => ({ ...f, seed: '' })),
      });
    }
    expect(runs[1]).toEqual(runs[0]);
    expect(runs[2]).not.toEqual(runs[0]);
  });
});

describe('heddle check', () => {
  it('prints a summary, and the findings of a wrong kernel', async () => {
    const good = await runCheck([right], [], { seeds: 3 });
    expect(good.clean).toBe(true);
    expect(good.text).toMatch(/^1 kernel, 2 configurations, 6 schedules: no finding\nclean, in [\d.]+ s\n$/);
    const bad = await runCheck([wrong], ['ring'], { seeds: 10 });
    expect(bad.clean).toBe(false);
    expect(bad.text).toContain('Data race on window, row[');
    expect(bad.text).toMatch(/seen in ring of \d, 3 rounds\/(random|priority)-\d/);
  });

  it('prints the report as JSON', async () => {
    const { text } = await runCheck([right], [], { seeds: 2, mutants: true, json: true });
    const report = JSON.parse(text);
    expect(Object.keys(report)).toEqual([
      'kernels',
      'configurations',
      'schedules',
      'findings',
      'mutants',
      'seconds',
      'causes',
    ]);
    expect(report.mutants).toEqual({ total: 12, killed: 12, survivors: [], elsewhere: [] });
  });

  it('runs one configuration, by the name that --list prints', async () => {
    const [, second] = right.configurations;
    expect(await check([right], { only: [second!.name], seeds: 3 })).toMatchObject({
      configurations: 1,
      schedules: 3,
    });
    expect(listSubjects([right], [second!.name], false)).toContain(`of ring\n  ${second!.name}`);
  });

  it('says what it does in a file too, after two seconds', async () => {
    let now = 0;
    const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    vi.spyOn(performance, 'now').mockImplementation(() => now);
    const ring = right.configurations[0]!;
    const slow: typeof ring = {
      ...ring,
      async run(machine) {
        now += 1500;
        await ring.run(machine);
      },
    };
    try {
      await runCheck([{ ...right, configurations: [slow] }], [], { seeds: 3, workers: 1 });
      expect(said.mock.calls.map(([line]) => line)).toEqual([
        expect.stringMatching(/^heddle check: schedules 2 of 3: ring.*\n$/),
      ]);
    } finally {
      vi.restoreAllMocks();
    }
  });

  it('lists what there is, by kernel, and the configurations of a kernel that is named', () => {
    expect(listSubjects([right], [], false)).toBe('rings: 2 configurations of ring\n');
    expect(listSubjects([right], ['ring'], false)).toBe(
      'rings: 2 configurations of ring\n  ring of 2, 3 rounds\n  ring of 3, 3 rounds\n',
    );
    expect(() => listSubjects([right], ['rung'], false)).toThrow('it must be one of rings, ring');
    expect(JSON.parse(listSubjects([right], [], true))).toEqual({
      subjects: [
        {
          name: 'rings',
          kernels: ['ring'],
          configurations: [
            { name: 'ring of 2, 3 rounds', ranks: 2 },
            { name: 'ring of 3, 3 rounds', ranks: 3 },
          ],
        },
      ],
    });
  });
});
