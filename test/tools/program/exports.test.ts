/** Exported hosts, unmodified, on the simulated driver and under the race detector: what they get is what Heddle's own host gets there. */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { bytesOf } from '../../../src/moe/index.js';
import type { LaunchPlan } from '../../../src/tools/export/index.js';
import { libraryFolder } from '../../../src/tools/program/library.js';
import { makeSources } from '../../../src/verify/testing/index.js';
import { hostCompiler, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root, transpiled, tree } from '../../tree.js';
import { expertsOf, heddleRounds, writeInputs } from '../export/rounds.js';

describe('an exported host on simulated GPUs', needing('nvcc', 'cc', 'c++'), () => {
  const folder = temporaryFolder();
  const main = transpiled(join(root, 'src/cli/main.ts'));
  const inFolder = (...names: readonly string[]): string => join(folder, ...names);
  const heddle = (args: readonly string[], more: Readonly<Record<string, string>> = {}) =>
    spawnSync(process.execPath, [main, ...args], {
      ...{ encoding: 'utf8', timeout: 280_000 },
      env: { ...process.env, ...more },
    });

  /** PTX, which the simulated driver takes: cubins are for GPUs. */
  function write(name: string, shape: string, more: readonly string[] = []): LaunchPlan {
    const args = ['export', 'one-sided', '--shape', shape, '--sms', '2', '--arch', 'compute_90a', ...more];
    const { status, stderr } = heddle([...args, '--out', inFolder(name)]);
    expect({ status, stderr }).toMatchObject({ status: 0 });
    execFileSync('cc', ['-O1', '-c', inFolder(name, 'heddle.c'), '-o', inFolder(name, 'heddle.o')]);
    return JSON.parse(readFileSync(inFolder(name, 'plan.json'), 'utf8')) as LaunchPlan;
  }

  /** What hosts are to leave in `data` stands there: rounds of few tokens, of many and of none. */
  async function compared(
    { layer, weights }: Pick<LaunchPlan, 'layer' | 'weights'>,
    data: string,
    run: () => void,
  ): Promise<void> {
    const rounds = [8, 3].map((first, n) =>
      makeSources(
        layer,
        Array.from({ length: layer.ranks }, (_, rank) => (rank % 2 === 0 ? first : 8 * n)),
        n + 1,
      ),
    );
    mkdirSync(data);
    writeInputs(data, layer, rounds);
    const experts = weights && ((rank: number) => expertsOf(weights, rank));
    for (let rank = 0; rank < layer.ranks; rank++)
      for (const [{ name }, bits] of experts?.(rank) ?? [])
        writeFileSync(join(data, `${name}-${rank}`), bytesOf(bits));
    run();
    const how = { family: 'one-sided', split: false, device: 'sim' } as const;
    const own = await heddleRounds(layer, rounds, { ...how, ...(experts && { experts }) });
    for (const [n, outs] of own.entries())
      for (const [r, out] of outs.entries())
        expect(readFileSync(join(data, `out-${n}-${r}`)).equals(out), `round ${n}, rank ${r}`).toBe(true);
  }
  const shape = (ranks: number): string => `ranks=${ranks},tokens=8,hidden=256,experts=8,topk=2`;

  /** The driver with which a host is linked, and which it finds when it is run by the command alone. */
  let driver = '';
  const python = { PYTHONPATH: inFolder('packages'), HEDDLE_SHAPES: inFolder('shapes') };
  beforeAll(() => {
    driver = libraryFolder();
    const own = inFolder('packages/heddle');
    cpSync(join(root, 'python/heddle'), own, { recursive: true });
    mkdirSync(join(own, '_js'));
    symlinkSync(join(tree, 'src'), join(own, '_js/dist'));
    const player = ['-o', join(own, 'libheddle_player.so'), join(root, 'src/tools/export/player.c')];
    execFileSync('cc', ['-std=c11', '-shared', '-fPIC', ...player, '-ldl']);
  });

  test.each([
    [2, 'descriptor'],
    [2, 'ipc'],
    [4, 'auto'],
  ])('in C++, %i processes, windows by %s: the same bits, and no finding', async (ranks, way) => {
    const name = `${ranks}-${way}`;
    const plan = write(name, shape(ranks));
    const [engine, data] = [inFolder(name, 'engine'), inFolder(name, 'data')];
    const stub = ['-I', inFolder(name), '-I', join(root, 'test/tools/export/cuda')];
    const from = [join(root, 'examples/export/engine.cpp'), inFolder(name, 'heddle.o')];
    const link = ['-L', driver, '-l:libcuda.so.1', '-ldl', '-lpthread', '-o', engine];
    execFileSync(hostCompiler()!, ['-std=c++17', ...stub, ...from, ...link]);
    await compared(plan, data, () => {
      const args = ['check', '--gpus', `${ranks}`, '--seeds', '2', '--', engine, data, '2'];
      const { status, stdout } = heddle(args, { HEDDLE_WINDOWS: way });
      expect(stdout).toContain(`2 rounds on ${ranks} GPUs\n`);
      expect(stdout).toContain('2 kernels, 1 configuration, 2 schedules: no finding');
      expect(status).toBe(0);
    });
  });

  test.each([
    ['that give back what they get', {}, '', []],
    ['of bf16', { inner: 64 }, ',weighting=plan', ['--experts', '64']],
    [
      'of MXFP4',
      { inner: 64, weights: 'mxfp4' },
      ',weighting=plan',
      ['--experts', '64', '--weights', 'mxfp4'],
    ],
  ] as const)(
    'in Python, with torch on the CPU, two processes, experts %s: the same bits, and no finding',
    needing('torch'),
    async (name, experts, key, flags) => {
      const data = inFolder(name, 'data');
      const options = { experts: 8, top_k: 2, max_tokens: 8, hidden: 256, sms: 2, ...experts };
      const plan = write(name, shape(2) + key, ['--multiprocessors', '2', ...flags]);
      await compared(plan, data, () => {
        const script = join(root, 'test/python/simulated.py');
        const rank = (n: number) => `python3 ${script} ${n} 2 '${data}' '${JSON.stringify(options)}'`;
        const args = ['check', '--seeds', '1', '--', 'sh', '-c', `${rank(0)} & ${rank(1)} && wait $!`];
        const { status, stdout } = heddle(args, python);
        expect(stdout).toContain(`${plan.kernels.length} kernels, 1 configuration, 1 schedule: no finding`);
        expect(status).toBe(0);
      });
    },
  );

  test('the layer of the page about Python, started by torchrun', needing('torch'), () => {
    const page = readFileSync(join(root, 'docs/python.md'), 'utf8');
    const [, layer] = /```python\n(import os, heddle.*?)```/s.exec(page)!;
    writeFileSync(inFolder('layer.py'), layer!.replace('128, 8, 4096, 1536, 100', '8, 2, 256, 128, 6'));
    const torchrun = ['python3', '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '2'];
    const args = ['run', '--device', 'sim', '--gpus', '2', '--', ...torchrun, inFolder('layer.py')];
    const { status, stdout } = heddle(args, python);
    expect(stdout.match(/dtype=torch.bfloat16/g)).toHaveLength(2);
    expect(status).toBe(0);
  });

  test('in Rust, a thread a rank: no finding', needing('rustc'), () => {
    write('rust', 'ranks=2,tokens=128,hidden=1024,experts=16,topk=4');
    const link = ['-C', `link-arg=${inFolder('rust/heddle.o')}`, '-C', `link-arg=${driver}/libcuda.so.1`];
    execFileSync('rustc', [...link, '-o', inFolder('rust/engine'), join(root, 'examples/export/engine.rs')]);
    const { status, stdout } = heddle(['check', '--seeds', '1', '--', inFolder('rust/engine')]);
    expect(stdout).toContain('3 rounds on 2 GPUs\n');
    expect(stdout).toContain('no finding');
    expect(status).toBe(0);
  });
});
