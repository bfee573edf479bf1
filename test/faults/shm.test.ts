/** What processes leave in /dev/shm that end in any way, and what the next ones make of it. */
import { spawnSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { needing } from '../needs.js';
import { transpiled } from '../tree.js';

const program = transpiled('test/faults/programs/shm.ts');
const run = (command: string, ...args: readonly string[]) =>
  spawnSync(command, args, { encoding: 'utf8', timeout: 100_000 });

const namespace = statSync('/proc/self/ns/pid').ino;
/** By Heddle's names, and by the provider's own. */
const filesOf = (pid: number) =>
  readdirSync('/dev/shm').filter((name) =>
    [`heddle-${namespace}-${pid}-`, `${pid}:`].some((start) => name.startsWith(start)),
  );

describe('a process that uses shm', () => {
  it.each(['closed', 'exited', 'thrown'])('leaves nothing where it has %s', (how) => {
    const { pid, stderr } = run(process.execPath, program, how);
    expect(stderr).toMatch(how === 'thrown' ? /on purpose/ : /^$/);
    expect(filesOf(pid)).toEqual([]);
  });

  it('keeps its endpoints where it is asked to end, and goes on', () => {
    const { pid, status, stdout, stderr } = run(process.execPath, program, 'asked');
    // A lock of each engine, and the mailboxes of the two and of the first one's for its peer.
    expect({ status, files: stdout, stderr }).toEqual({ status: 0, files: '5', stderr: '' });
    expect(filesOf(pid)).toEqual([]);
  });

  it('and was killed leaves what the next one removes', () => {
    const { pid, signal } = run(process.execPath, program, 'killed');
    expect(signal).toBe('SIGKILL');
    expect(run(process.execPath, program, 'closed').stderr).toBe('');
    expect(filesOf(pid)).toEqual([]);
  });
});

/** In a mount namespace of its own, with a /dev/shm of its own. */
const apart = (...command: readonly string[]) =>
  run(
    'unshare',
    '--mount',
    'sh',
    '-c',
    'mount -t tmpfs -o size=1g tmpfs /dev/shm && exec "$@"',
    'sh',
    ...command,
  );

describe('where process ids repeat', needing('process ids', 'shm'), () => {
  it('every start finds its way, whatever the ones before left', () => {
    const { stdout, stderr } = apart(process.execPath, program, 'restarts');
    const { left, ...found } = JSON.parse(stdout || '{}');
    expect(found, stderr).toEqual({ ids: ['2 ', '2 ', '2 ', '2 '], last: '', files: 0 });
    // A killed process leaves two locks and three mailboxes: of each engine, and of the one's for its peer.
    expect(left).toBe(5);
  });

  it('nobody removes what a living process of the same id uses', () => {
    const { stdout, stderr } = apart(process.execPath, program, 'neighbours');
    expect(JSON.parse(stdout || '{}'), stderr).toEqual({ said: 'here and well', files: 0 });
  });
});
