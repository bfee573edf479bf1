/** CUDA programs of several hosts: threads and processes meet in one simulated machine. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { Patience } from '../../../src/tools/program/patience.js';
import { lineMarked, nvccPtx } from '../../gpu/sim/ptx/nvcc.js';
import { cudaHeaders, cudaTool, hostCompiler, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root, transpiled } from '../../tree.js';

const folder = temporaryFolder();
const HEDDLE_CACHE = join(folder, 'cache');

function check(...command: readonly string[]) {
  const main = transpiled(join(root, 'src/cli/main.ts'));
  const how = { encoding: 'utf8', env: { ...process.env, HEDDLE_CACHE }, timeout: 280_000 } as const;
  return spawnSync(process.execPath, [main, 'check', '--seeds', '1', '--', ...command], how);
}

test('a process in a session of its own, as torchrun starts them, counts as one of the program that may act', async () => {
  const started = spawn('sh', ['-c', 'setsid sh -c "echo ready; read line"; true'], { detached: true });
  await once(started.stdout, 'data');
  const patience = new Patience(started.pid!);
  expect([1, 2].map((waiting) => patience.mayAct(waiting))).toEqual([true, false]);
  started.stdin.end('\n');
  await once(started, 'close');
});

describe('a CUDA program of several hosts', needing('nvcc'), () => {
  const source = join(root, 'test/tools/program/processes.cu');
  const program = join(folder, 'processes');
  const fifo = join(folder, 'handle');

  beforeAll(() => {
    const options = ['-arch=sm_90', '-lineinfo', '-cudart', 'shared', '--compress-mode=none'];
    execFileSync(cudaTool('nvcc')!, [...options, source, '-o', program]);
    execFileSync('mkfifo', [fifo]);
  }, 300_000);

  const checked = (...command: readonly string[]) => {
    const { status, stdout } = check(...command);
    return { status, stdout, left: spawnSync('pgrep', ['-f', program], { encoding: 'utf8' }).stdout };
  };
  /** Rank 0 puts with a fence (1), without one (0), or not at all (-1). */
  const ranks = (ordered: number) =>
    checked(
      'sh',
      '-c',
      `${program} rank 1 ${fifo} ${ordered} & ${program} rank 0 ${fifo} ${ordered} && wait $!`,
    );
  const lineOf = (mark: string): number => lineMarked(source, mark);

  test.each([
    ['threads', () => checked(program, 'threads'), 'took 42, and reads 42\n'],
    ['processes with an IPC handle', () => ranks(1), 'took 42, and reads 42\n'],
    ['a fork in the middle', () => checked(program, 'forks'), 'the child: cudaErrorInitializationError\n'],
  ])('%s: clean', (_, run, said) => {
    const { status, stdout, left } = run();
    expect(stdout).toContain(said);
    expect(stdout).toContain('no finding');
    expect({ status, left }).toEqual({ status: 0, left: '' });
  });

  test('processes whose kernels race: both lines are named', () => {
    const { status, stdout, left } = ranks(0);
    for (const mark of ['put', 'taken']) expect(stdout).toContain(`processes.cu:${lineOf(mark)}:`);
    expect({ status, left }).toEqual({ status: 1, left: '' });
  });

  test('a process waits for what no other will do: the wait is named, and both end', {
    timeout: 300_000,
  }, () => {
    const { status, stdout, left } = ranks(-1);
    expect(stdout).toContain('nobody will end');
    expect({ status, left }).toEqual({ status: 1, left: '' });
  });
});

describe('a program of the driver', needing('nvcc', 'c++'), () => {
  const [program, kernel, ptx] = ['driver', 'add.cu', 'add.ptx'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];

  beforeAll(() => {
    // What a program has compiled ahead: the libraries that it is linked with.
    expect(check('true').status).toBe(1);
    const [library] = readdirSync(HEDDLE_CACHE).filter((name) => name.startsWith('runtime-'));
    writeFileSync(
      kernel,
      'extern "C" __global__ void add(unsigned *at, unsigned more) { at[threadIdx.x] += more; }',
    );
    nvccPtx(kernel, ptx);
    const from = ['-I', cudaHeaders()!, join(root, 'test/tools/program/driver.cpp'), '-o', program];
    execFileSync(hostCompiler()!, [...from, '-L', join(HEDDLE_CACHE, library!), '-l:libcuda.so.1']);
  }, 300_000);

  test('its modules, waits for words, calls by name, mappings, pools and graphs are there, and a cubin is refused', () => {
    const { status, stdout } = check(program, ptx, 'ordered');
    expect(stdout).toContain(
      '1, 256 bytes, the second parameter at 8\neach is 42\nthe host reads 42\na node of the host reads 5050506\na function of the host\nheddle: not simulated: a module of machine code alone',
    );
    expect(stdout).toContain('3 kernels, 1 configuration, 1 schedule: no finding');
    expect(status).toBe(0);
  });

  test('streams that wait for no word race', () => {
    const { status, stdout } = check(program, ptx);
    expect(stdout).toContain('streams 5 and 4 of rank 0 run side by side');
    expect(status).toBe(1);
  });
});
