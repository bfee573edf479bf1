/** CUDA programs of several hosts: threads and processes meet in one simulated machine. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { cudaTool, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root, transpiled } from '../../tree.js';

describe('a CUDA program of several hosts', needing('nvcc'), () => {
  const folder = temporaryFolder();
  const source = join(root, 'test/tools/program/processes.cu');
  const program = join(folder, 'processes');
  const fifo = join(folder, 'handle');

  beforeAll(() => {
    const options = ['-arch=sm_90', '-lineinfo', '-cudart', 'shared', '--compress-mode=none'];
    execFileSync(cudaTool('nvcc')!, [...options, source, '-o', program]);
    execFileSync('mkfifo', [fifo]);
  }, 300_000);

  function check(...command: readonly string[]) {
    const main = transpiled(join(root, 'src/cli/main.ts'));
    const how = {
      encoding: 'utf8',
      env: { ...process.env, HEDDLE_CACHE: join(folder, 'cache') },
      timeout: 100_000,
    } as const;
    const args = [main, 'check', '--seeds', '1', '--', ...command];
    const { status, stdout } = spawnSync(process.execPath, args, how);
    const left = spawnSync('pgrep', ['-f', program], { encoding: 'utf8' }).stdout;
    return { status, stdout, left };
  }
  /** Rank 0 puts with a fence (1), without one (0), or not at all (-1). */
  const ranks = (ordered: number) =>
    check(
      'sh',
      '-c',
      `${program} rank 1 ${fifo} ${ordered} & ${program} rank 0 ${fifo} ${ordered} && wait $!`,
    );
  const lineOf = (mark: string): number =>
    readFileSync(source, 'utf8')
      .split('\n')
      .findIndex((line) => line.endsWith(`// ${mark}`)) + 1;

  test.each([
    ['threads', () => check(program, 'threads'), 'took 42, and reads 42\n'],
    ['processes with an IPC handle', () => ranks(1), 'took 42, and reads 42\n'],
    ['a fork in the middle', () => check(program, 'forks'), 'the child: cudaErrorInitializationError\n'],
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

  test('a process waits for what no other will do: the wait is named, and both end', () => {
    const { status, stdout, left } = ranks(-1);
    expect(stdout).toContain('nobody will end');
    expect({ status, left }).toEqual({ status: 1, left: '' });
  });
});
