import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CommanderError } from 'commander';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ArgumentError, UnavailableError } from '../../../src/base/errors.js';
import { Command } from '../../../src/cli/commander.js';
import { register } from '../../../src/cli/run.js';
import { Launch, type LaunchOptions, loaderArguments } from '../../../src/net/world/launch.js';
import { startReaper } from '../../../src/net/world/reaper.js';
import { launchReporting } from '../../../src/net/world/report-lines.js';
import { isRunning, Lines } from '../../processes.js';
import { temporaryFolder } from '../../temporary.js';
import { root, transpiled, transpiledUrl } from '../../tree.js';

const fixture = (name: string) => transpiled(`test/net/world/programs/${name}.ts`);
const FALL = fixture('fall');

const folder = temporaryFolder();

/** A program of plain JavaScript, which starts faster than one in TypeScript. */
function program(source: string): string {
  const file = join(mkdtempSync(join(folder, 'p-')), 'program.mjs');
  writeFileSync(file, source);
  return file;
}

/** One that says when it is ready, and waits. */
const waiting = (handlers = '') => program(`${handlers} setInterval(() => {}, 1000); console.log('ready');`);

/** One that ends, but has started a process first, and says its id. */
const starting = (options: string) =>
  program(`
    import { spawn } from 'node:child_process';
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], ${options});
    console.log(child.pid);
    child.unref();`);

/** A test that failed leaves no ranks behind. */
const running = new Set<Launch>();
afterEach(() => {
  vi.useRealTimers();
  for (const launch of running) launch.signal('SIGKILL');
});

/** Where nothing else is said ranks have more time to end than they need on a busy machine. */
async function start(options: Omit<LaunchOptions, 'stdout' | 'stderr'>) {
  const [stdout, stderr, notes] = [new Lines(), new Lines(), new Lines()];
  const onNote = (note: string) => notes.write(`${note}\n`);
  const launch = await Launch.start({ graceMs: 40_000, ...options, stdout, stderr, onNote });
  running.add(launch);
  void launch.finished.then(() => running.delete(launch));
  return { launch, stdout, stderr, notes };
}

async function run(options: Omit<LaunchOptions, 'stdout' | 'stderr'>) {
  const started = await start(options);
  const result = await started.launch.finished;
  for (const pid of started.launch.pids) expect(isRunning(pid)).toBe(false);
  return { ...started, result };
}

async function untilEnded(pids: readonly number[]): Promise<void> {
  while (pids.some(isRunning)) await delay(20);
}

describe('a launch', () => {
  it('gives each rank its place, and forwards its lines behind its label', async () => {
    const file = program(`
      const { HEDDLE_RANK, HEDDLE_WORLD, HEDDLE_LOCAL_RANK, HEDDLE_HOSTED } = process.env;
      console.log(HEDDLE_RANK, HEDDLE_WORLD, HEDDLE_LOCAL_RANK, HEDDLE_HOSTED, process.argv.slice(2).join('|'));
      process.stderr.write('no newline');`);
    const { result, stdout, stderr } = await run({ ranks: 3, program: file, args: ['a b', '--json'] });
    expect(result).toMatchObject({ exitCode: 0, timedOut: false, firstFailure: null });
    const ranks = [0, 1, 2];
    expect(result.results.map(({ rank, exitCode }) => [rank, exitCode])).toEqual(
      ranks.map((rank) => [rank, 0]),
    );
    expect(stdout.lines.sort()).toEqual(ranks.map((rank) => `[rank ${rank}] ${rank} 3 ${rank} 1 a b|--json`));
    expect(stderr.lines.sort()).toEqual(ranks.map((rank) => `[rank ${rank}] no newline`));
  });

  it('gives equal nodes to ranks, or one process to each node where GPUs are simulated', async () => {
    const file = program(`
      const { HEDDLE_RANK, HEDDLE_NODES, HEDDLE_DEVICE, HEDDLE_RANKS_HERE } = process.env;
      console.log(HEDDLE_RANK, HEDDLE_NODES, HEDDLE_DEVICE, HEDDLE_RANKS_HERE);`);
    const real = await run({ ranks: 4, nodes: 2, program: file });
    expect(real.stdout.lines.sort()).toEqual(
      [0, 1, 2, 3].map((rank) => `[rank ${rank}] ${rank} 2 undefined undefined`),
    );
    const simulated = await run({ ranks: 4, nodes: 2, device: 'sim', program: file });
    expect(simulated.stdout.lines.sort()).toEqual(['[ranks 0-1] 0 2 sim 2', '[ranks 2-3] 2 2 sim 2']);
    expect(simulated.result.results.map(({ rank, ranks }) => [rank, ranks])).toEqual([
      [0, 2],
      [2, 2],
    ]);
    await expect(run({ ranks: 4, nodes: 3, program: file })).rejects.toThrow(
      /nodes is 3; it must be a divisor of 4/,
    );
  });

  it('forwards all of a large output before it finishes', async () => {
    const file = program("process.stdout.write(('x'.repeat(99) + '\\n').repeat(20_000))");
    const { stdout } = await run({ ranks: 2, program: file });
    for (const rank of [0, 1]) {
      const mine = stdout.lines.filter((line) => line.startsWith(`[rank ${rank}] `));
      expect(mine).toHaveLength(20_000);
      expect(new Set(mine.map((line) => line.length))).toEqual(new Set([108]));
    }
  });

  it('passes a signal on, and takes the exit code of the rank that fails first', async () => {
    const file = waiting(
      "process.on('SIGINT', () => process.exit(process.env.HEDDLE_RANK === '1' ? 42 : 0));",
    );
    const { launch, stdout } = await start({ ranks: 2, program: file });
    await stdout.atLeast(2, /ready/);
    launch.signal('SIGINT');
    expect(await launch.finished).toMatchObject({ exitCode: 42, firstFailure: { rank: 1, exitCode: 42 } });
  });

  it('ends them at the second signal, whatever the grace time', async () => {
    const file = waiting("process.on('SIGINT', () => console.log('ignored'));");
    const { launch, stdout } = await start({ ranks: 2, program: file, graceMs: 600_000 });
    await stdout.atLeast(2, /ready/);
    launch.signal('SIGINT');
    await stdout.atLeast(2, /ignored/);
    launch.signal('SIGINT');
    expect(await launch.finished).toMatchObject({ exitCode: 137 });
  });

  it.each([
    ['before joining', 'join'],
    ['after joining', 'dispatch'],
  ])('takes a rank that comes to its end %s as one that left', async (point, operation) => {
    const { result, stdout, notes } = await run({
      ranks: 2,
      program: fixture('end'),
      args: [point],
      graceMs: 0,
    });
    expect(result).toMatchObject({ exitCode: 0, firstFailure: null });
    expect(stdout.lines).toEqual([
      `[rank 1] ${JSON.stringify({ ranks: [0], operation, why: 'it left the world' })}`,
    ]);
    expect(notes.lines).toEqual([]);
  });

  it('ends everything when its time is over', async () => {
    const { result, notes } = await run({ ranks: 2, program: waiting(), timeoutMs: 300 });
    expect(result).toMatchObject({ exitCode: 124, timedOut: true });
    expect(notes.lines[0]).toBe('not finished after 0.3 s; the ranks have 40 s to end');
  });

  it('leaves nothing behind that a rank has started, in its group', async () => {
    const file = starting("{ stdio: 'inherit' }");
    const { stdout } = await run({ ranks: 1, program: file });
    await untilEnded([Number(stdout.lines[0]!.split('] ')[1])]);
  });

  it('does not wait for ever for what a rank has put outside its group', async () => {
    const file = starting("{ stdio: 'inherit', detached: true }");
    const { result, stdout } = await run({ ranks: 1, program: file });
    expect(result.exitCode).toBe(0);
    process.kill(Number(stdout.lines[0]!.split('] ')[1]), 'SIGKILL');
  });

  it.each<[object, string]>([
    [{ args: 5 }, 'args is 5; it must be an array of texts'],
    [{ args: ['a', 5] }, 'args[1] is 5'],
    [{ rank: 1 }, 'options.rank is 1; it must be left out: there are ranks,'],
  ])('refuses %o', async (options, complaint) => {
    const file = program('');
    await expect(Launch.start({ ranks: 1, program: file, ...options })).rejects.toThrow(complaint);
  });

  it('says what became of several ranks of a process in the plural', async () => {
    const file = program("process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1000)");
    const { notes } = await run({ ranks: 2, device: 'sim', program: file });
    expect(notes.lines[0]).toBe('ranks 0-1 were ended by SIGTERM');
  });

  it('is told to its reaper, which ignores the end of what it has not heard of', async () => {
    const reaper = startReaper(1000);
    for (let pid = 0; pid < 64; pid++) reaper.ended(2 ** 30 + pid);
    await reaper.done();
  });

  it('refuses a program that is not there, and numbers out of range', async () => {
    await expect(Launch.start({ ranks: 1, program: folder })).rejects.toThrow('an existing file');
    await expect(start({ ranks: 1, program: 'no/such.ts' })).rejects.toThrow(ArgumentError);
    await expect(launchReporting('it', { ranks: 1, program: 'x'.repeat(300) }, () => {})).rejects.toThrow(
      /^program is "x+…"; it must be an existing file that can be read \(ENAMETOOLONG\)$/,
    );
    for (const ranks of [0, -1, 1.5, 1025]) {
      await expect(start({ ranks, program: FALL })).rejects.toMatchObject({ argument: 'ranks' });
    }
    await expect(start({ ranks: 1, program: FALL, timeoutMs: 0 })).rejects.toMatchObject({
      argument: 'timeoutMs',
    });
  });
});

/** What ranks do takes what it takes; the launcher's time passes when a test says so. */
describe('when the grace time is over', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  });
  const graceMs = 1000;

  it('ranks that ignore a signal are ended', async () => {
    const file = waiting("process.on('SIGTERM', () => console.log('ignored'));");
    const { launch, stdout } = await start({ ranks: 2, program: file, graceMs });
    await stdout.atLeast(2, /ready/);
    launch.signal('SIGTERM');
    await stdout.atLeast(2, /ignored/);
    vi.advanceTimersByTime(graceMs - 1);
    expect(launch.pids.every(isRunning)).toBe(true);
    vi.advanceTimersByTime(1);
    expect(await launch.finished).toMatchObject({ exitCode: 137, firstFailure: { signal: 'SIGKILL' } });
  });

  it('those are ended that one has left behind, and that did not end when they were asked at half of it', async () => {
    const file = waiting(`
      const rank = process.env.HEDDLE_RANK;
      process.on('SIGUSR2', () => process.exit(9));
      process.on('SIGTERM', () => { console.log('asked'); if (rank === '0') process.exit(0); });`);
    const { launch, stdout, notes } = await start({ ranks: 3, program: file, graceMs });
    const { pids, finished } = launch;
    await stdout.atLeast(3, /ready/);
    process.kill(pids[1]!, 'SIGUSR2');
    await notes.atLeast(1, /^rank 1 ended with exit code 9; the others have 1 s to end$/);
    vi.advanceTimersByTime(graceMs / 2);
    expect((await stdout.atLeast(2, /asked/)).sort()).toEqual(['[rank 0] asked', '[rank 2] asked']);
    await untilEnded([pids[0]!]);
    vi.advanceTimersByTime(graceMs / 2);
    const result = await finished;
    expect(result).toMatchObject({ exitCode: 9, firstFailure: { rank: 1 } });
    expect(result.results.map(({ exitCode, signal }) => exitCode ?? signal)).toEqual([0, 9, 'SIGKILL']);
  });
});

describe('loaderArguments', () => {
  it('needs nothing for JavaScript, nor for TypeScript where Node.js strips types', () => {
    expect(loaderArguments('/a/b.mjs', false, [])).toEqual([]);
    expect(loaderArguments('/a/b.ts', true, [])).toEqual([]);
  });

  it('finds tsx beside the program or beside heddle', () => {
    expect(loaderArguments('/nowhere/b.ts', false, ['/nowhere/b.ts', FALL])).toEqual([
      '--import',
      expect.stringMatching(/^file:.*tsx/),
    ]);
  });

  it('takes tsx where heddle runs from source, though Node.js strips types: programs get the source, too', () => {
    const text = `
      process.features.typescript ??= 'strip';
      const { loaderArguments } = await import('./src/net/world/launch.ts');
      console.log(loaderArguments('examples/processes.ts').join(' '));`;
    const node = ['--import', 'tsx', '--input-type=module', '--eval', text];
    expect(spawnSync(process.execPath, node, { cwd: root, encoding: 'utf8' }).stdout).toMatch(
      /^--import file:.*tsx/,
    );
  });

  it('says what to install otherwise', () => {
    expect(() => loaderArguments('/nowhere/b.tsx', true, ['/nowhere/b.tsx'])).toThrow(UnavailableError);
    expect(() => loaderArguments('/nowhere/b.ts', false, ['/nowhere/b.ts'])).toThrow(
      /npm install --save-dev tsx/,
    );
  });
});

describe('a rank that falls', () => {
  /** What the survivors report. */
  const reports = (lines: readonly string[]) =>
    lines.map((line) => JSON.parse(line.replace(/^\[rank \d+\] /, '')) as Record<string, unknown>);

  it.each([
    ['before joining', 'join', false],
    ['in the middle of a frame', 'dispatch', true],
  ])('by SIGKILL %s', async (point, operation, joined) => {
    const { result, stdout, stderr } = await run({ ranks: 3, program: FALL, args: ['1', point] });
    expect(result).toMatchObject({ exitCode: 137, firstFailure: { rank: 1, signal: 'SIGKILL' } });
    if (!joined) {
      // The survivors' join rejects, and they do not catch that.
      expect(stderr.lines.join('\n')).toMatch(/RankLostError.*rank 1 did not answer during join/);
      expect(stderr.lines.join('\n')).toContain('its process was ended by SIGKILL');
      return;
    }
    const survivors = reports(stdout.lines);
    expect(survivors).toHaveLength(2);
    for (const report of survivors) {
      expect(report).toMatchObject({ ranks: [1], operation, heard: true, aborted: true });
      expect(report.why).toMatch(/its (connection (closed|broke)|process was ended by SIGKILL)/);
    }
  });

  it.each([
    ['exits', 7],
    ['throws', 1],
  ])('because it %s', async (point, exitCode) => {
    const { result, stdout } = await run({ ranks: 3, program: FALL, args: ['2', point] });
    expect(result).toMatchObject({ exitCode, firstFailure: { rank: 2 } });
    expect(reports(stdout.lines)).toMatchObject([
      { ranks: [2], operation: 'dispatch' },
      { ranks: [2], operation: 'dispatch' },
    ]);
  });

  it.each([
    ['stopped', 'SIGKILL'],
    ['spinning', 'SIGTERM'],
  ])('silent: it is %s, and ended by %s', async (point, signal) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const graceMs = 3000;
    const args = ['1', point, '4000'];
    const { launch, stdout, notes } = await start({ ranks: 3, program: FALL, args, graceMs });
    const survivors = reports(await stdout.atLeast(2, /ranks/));
    for (const report of survivors) {
      expect(report).toMatchObject({ ranks: [1], operation: 'dispatch', heard: true, aborted: true });
      expect(report.why).toBe('it gave no sign of life for 4000 ms');
    }
    await untilEnded([launch.pids[0]!, launch.pids[2]!]);
    // It is seen to run on, then asked to end, at last ended.
    for (const ms of [250, graceMs / 2, ...(signal === 'SIGKILL' ? [graceMs / 2] : [])]) {
      vi.advanceTimersByTime(ms);
    }
    const { results } = await launch.finished;
    expect(results.map((ended) => ended.signal ?? ended.exitCode)).toEqual([0, signal, 0]);
    expect(notes.lines).toEqual([
      'rank 1 is lost: it gave no sign of life for 4000 ms; the others have 3 s to end',
      `rank 1 was ended by ${signal}`,
    ]);
  });
});

describe('heddle run', () => {
  const CLI = fixture('cli');
  const heddle = (...args: string[]) => {
    const child: ChildProcess = spawn(process.execPath, [CLI, 'run', ...args]);
    const [stdout, stderr] = [new Lines(), new Lines()];
    child.stdout!.pipe(stdout);
    child.stderr!.pipe(stderr);
    const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
    return { child, stdout, stderr, ended };
  };

  it('prints a summary with --json, and the ranks’ output to stderr', async () => {
    const file = program(
      "console.log(process.argv[2]); process.exit(process.env.HEDDLE_RANK === '1' ? 3 : 0)",
    );
    const { stdout, stderr, ended } = heddle('-n', '2', '--json', '--grace', '40', file, '--prefix');
    expect(await ended).toBe(3);
    expect(stdout.lines).toHaveLength(1);
    expect(JSON.parse(stdout.lines[0]!)).toMatchObject({
      program: file,
      ranks: 2,
      exitCode: 3,
      timedOut: false,
      firstFailure: 1,
      results: [
        { rank: 0, exitCode: 0 },
        { rank: 1, exitCode: 3 },
      ],
    });
    expect(stderr.lines).toContain('[rank 0] --prefix');
    expect(stderr.lines.join('\n')).toContain('heddle run: rank 1 ended with exit code 3');
  });

  const LACKING = `
    import { UnavailableError } from '${transpiledUrl('src/base/errors.ts')}';
    import { ProcessCircle } from '${transpiledUrl('src/net/world/index.ts')}';
    await ProcessCircle.join();
    throw new UnavailableError('no such library', 'Install it');`;

  it('says once what all ranks lack, without a stack', async () => {
    const { stderr, ended } = heddle('-n', '2', program(LACKING));
    expect(await ended).toBe(2);
    expect(stderr.lines).toEqual([
      expect.stringMatching(/^heddle run: rank [01]: no such library\. Install it \(HEDDLE_UNAVAILABLE\)/),
    ]);
  });

  it('leaves that to the program, or to DEBUG', async () => {
    const answered = `process.on('uncaughtException', ({ message }) => { console.log('mine:', message); process.exit(4); });`;
    const own = heddle('-n', '1', program(`${answered} ${LACKING}`));
    expect(await own.ended).toBe(4);
    expect(own.stdout.lines).toEqual(['[rank 0] mine: no such library. Install it']);
    const debugged = heddle('-n', '1', program(`process.env.DEBUG = '1'; ${LACKING}`));
    expect(await debugged.ended).toBe(1);
    expect(debugged.stderr.lines.join('\n')).toMatch(/UnavailableError: no such library[\s\S]*program\.mjs/);
  });

  it('passes Ctrl-C on, and forwards lines as they are with --no-prefix', async () => {
    const { child, stdout, ended } = heddle('-n', '2', '--no-prefix', waiting());
    await stdout.atLeast(2, /^ready$/);
    child.kill('SIGINT');
    expect(await ended).toBe(130);
  });

  it.each([
    [['file.mjs'], /required option '-n, --ranks <count>'/],
    [['-n', '0', 'file.mjs'], /must be an integer from 1 to 1024/],
    [['-n', '2', '--timeout', 'soon', 'file.mjs'], /'soon' is invalid. It must be a number/],
    [['-n', '2'], /missing required argument 'program'/],
  ])('refuses %j', async (args, complaint) => {
    const command = new Command('heddle').enablePositionalOptions();
    register(command.command('run'));
    let said = '';
    for (const each of [command, ...command.commands]) {
      each.exitOverride().configureOutput({
        writeErr: (text) => {
          said += text;
        },
      });
    }
    await expect(command.parseAsync(['run', ...args], { from: 'user' })).rejects.toThrow(CommanderError);
    expect(said).toMatch(complaint);
  });

  it('leaves no process behind even when it is killed itself', async () => {
    // Rank 0 ignores requests, rank 1 never gives its event loop a chance, rank 2 has a child of its own.
    const file = program(`
      import { spawn } from 'node:child_process';
      const rank = process.env.HEDDLE_RANK;
      if (rank === '0') process.on('SIGTERM', () => {});
      const child = rank === '2' && spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
      process.stdout.write('pids ' + process.pid + (child ? ' ' + child.pid : '') + '\\n', () => {
        if (rank === '1') for (;;);
      });
      setInterval(() => {}, 1000);`);
    const { child, stdout, ended } = heddle('-n', '3', '--grace', '0.2', file);
    const lines = await stdout.atLeast(3, /pids/);
    const pids = lines.flatMap((line) => line.match(/\d+/g)!.slice(1).map(Number));
    expect(pids).toHaveLength(4);
    child.kill('SIGKILL');
    await ended;
    await untilEnded(pids);
  });
});
