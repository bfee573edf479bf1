/** CUDA programs as they are: their hosts run, and the simulated machine answers. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { lineMarked } from '../../gpu/sim/ptx/nvcc.js';
import { cudaTool, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root, transpiled } from '../../tree.js';

const source = join(root, 'test/tools/program/programs.cu');
const lineOf = (mark: string): number => lineMarked(source, mark);

describe('a CUDA program', needing('nvcc'), () => {
  const folder = temporaryFolder();
  const program = join(folder, 'programs');
  const temporary = join(folder, 'temporary');

  beforeAll(() => {
    mkdirSync(temporary);
    build(source, program);
  }, 120_000);

  function build(from: string, to: string, ...more: readonly string[]): void {
    const options = ['-g', '-arch=sm_90', '-lineinfo', '-cudart', 'shared', '--compress-mode=none', ...more];
    execFileSync(cudaTool('nvcc')!, [...options, from, '-o', to]);
  }

  const main = transpiled(join(root, 'src/cli/main.ts'));
  const env = { ...process.env, HEDDLE_CACHE: join(folder, 'cache'), TMPDIR: temporary };
  const running = (): string => spawnSync('pgrep', ['-f', program], { encoding: 'utf8' }).stdout;
  const check = (name: string, ...options: readonly string[]) => run([program, name], ...options);
  function run(command: readonly string[], ...options: readonly string[]) {
    const count = options.includes('--seeds') ? [] : ['--schedules', '4'];
    const args = [main, 'check', ...count, ...options, '--', ...command];
    const { status, stdout } = spawnSync(process.execPath, args, { encoding: 'utf8', env, timeout: 100_000 });
    return { status, stdout };
  }

  test('runs on one device, and is clean', () => {
    const { status, stdout } = check('clean');
    expect(stdout).toContain('sum 4032, 64 threads\n');
    expect(stdout).toContain('1 kernel, 1 configuration, 4 schedules: no finding');
    expect(status).toBe(0);
  });

  test('lacks a barrier: the line of its source is named, and the barrier that mends it', () => {
    const { status, stdout } = check('no-barrier');
    expect(stdout).toContain(`programs.cu:${lineOf('summed')}:`);
    expect(stdout).toContain('tried: with __syncthreads()');
    expect(status).toBe(1);
  });

  test('of two devices lacks an event: what is said is what docs/programs.md says; with it the program is clean', () => {
    const example = join(root, 'examples/programs/exchange.cu');
    const [without, mended] = [join(folder, 'exchange'), join(folder, 'mended')];
    build(example, without);
    build(example, mended, '-DMENDED');
    const { status, stdout } = run([without], '--seeds', '10');
    const page = readFileSync(join(root, 'docs/programs.md'), 'utf8');
    const said = stdout.replace(/not clean, in .*/, '');
    expect(page.replace(/\s+/g, ' ')).toContain(said.replace(/\s+/g, ' '));
    expect(status).toBe(1);
    expect(run([mended])).toMatchObject({ status: 0, stdout: expect.stringContaining('no finding') });
    const alone = run([mended], '--gpus', '1', '--json');
    expect(JSON.parse(alone.stdout).findings[0].message).toContain(
      'cudaSetDevice(1): invalid device ordinal',
    );
  });

  test.each([
    ['graph', '4 nodes, 11, 11 and 21\n', `programs.cu:${lineOf('increased')}:`, 'copied'],
    ['pool', 'result 1\n', `programs.cu:${lineOf('increased')}:`, 'freed'],
    ['reuse', 'result 4\n', 'the host changed memory after a copy from it was enqueued', 'reused'],
  ])('%s: clean, and found where it misses an order', (name, printed, place, call) => {
    const clean = check(name);
    expect(clean.stdout).toContain(printed);
    expect(clean.stdout).toContain('4 schedules: no finding');
    const { status, stdout } = run([program, name, 'misses'], '--seeds', '10');
    expect(stdout).toContain(place);
    expect(stdout).toContain(`enqueued by ${name}(int) (programs.cu:${lineOf(call)})`);
    expect(status).toBe(1);
  });

  test.each([
    ['mapped', 'managed 8\n', 'waits for a kernel without a call, as the kernel waits for it'],
    ['own', '3, 6, 11 and 12\n', 'shares a variable and memory of its own with kernels of two devices'],
    ['spins', '100 ms\n', 'waits for the clock alone'],
    ['again', 'again 3 and 3\n', 'frees memory of a graph that is launched again'],
  ])('%s: clean', (name, printed) => {
    const { status, stdout } = check(name);
    expect(stdout).toContain(printed);
    expect(stdout).toContain('4 schedules: no finding');
    expect(status).toBe(0);
  });

  test('calls what is not there: it is refused, and named once', () => {
    const { status, stdout } = check('array');
    expect(stdout).toContain(
      'cudaErrorNotSupported\ncudaErrorNotSupported\nheddle: not simulated: cudaMallocArray, once\n' +
        'heddle: not simulated: cudaHostRegister of shared memory, once\n',
    );
    expect(status).toBe(1);
  });

  test.each([
    ['stuck', 'Waits that nobody will end', 'a kernel that waits for ever'],
    ['garbage', 'the program ended with exit code 1', 'an address that is none'],
    ['crash', 'the program ended with SIGABRT', 'a program that aborts'],
    ['exit', 'the program ended with exit code 7', 'a program that exits with a kernel under way'],
    ['fork', 'the program ended with exit code 4', 'a child that lives longer'],
  ])('%s: a finding, and neither process nor file stays', (name, words) => {
    const { status, stdout } = check(name, '--seeds', '1');
    expect(stdout).toContain(words);
    expect(status).toBe(1);
    expect(readdirSync(temporary)).toEqual([]);
    expect(running()).toBe('');
  });

  test.each([
    ['graph', [], 0, '4 nodes, 11, 11 and 21\n'],
    ['spins', [], 0, '100 ms\n'],
    ['occupancy', [], 0, '2, 32, 0 and 2 blocks\n'],
    ['crash', [], 128 + 6, ''],
    ['exit', [], 7, ''],
    ['stuck', ['--timeout', '2'], 124, ''],
  ])('just runs: %s', (name, more, status, stdout) => {
    const just = [main, 'run', '--device', 'sim', ...more, '--', program, name];
    const options = { encoding: 'utf8', env, timeout: 100_000 } as const;
    expect(spawnSync(process.execPath, just, options)).toMatchObject({ status, stdout });
    expect(running()).toBe('');
  });

  test('ends with the check, if that is killed', async () => {
    const args = [main, 'check', '--', program, 'sleeps'];
    const checking = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = (await once(checking.stdout, 'data')) as [Buffer];
    expect(line.toString()).toBe('asleep\n');
    checking.kill('SIGKILL');
    await once(checking, 'exit');
    await vi.waitFor(() => expect(running()).toBe(''), 20_000);
  });
});
