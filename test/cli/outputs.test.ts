/** Each option that names what a command writes: one that cannot be written is refused, with path and reason, before any work. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { heddle } from '../../src/cli/program.js';
import { needing } from '../needs.js';
import { temporaryFolder } from '../temporary.js';
import { err, hear, out } from './said.js';

hear();
let folder = '';
beforeEach(() => {
  folder = temporaryFolder(onTestFinished);
  writeFileSync(join(folder, 'taken'), 'before');
});

const files = [
  ['bench', '--device', 'sim', '--output-file'],
  ['bench', '--device', 'sim', '--report'],
  ['bench', 'layer', '--device', 'sim', '--trace'],
];
const folders = [['export', 'one-sided', '--arch', 'none', '--out']];
const below = (path: string): string => join(folder, path);

describe.each(files.map((args) => ({ args, name: args.join(' ') })))('heddle $name', ({ args }) => {
  const option = args.at(-1);
  it.each([
    ['no/file', 'ENOENT: no such file or directory'],
    ['taken/file', 'ENOTDIR: not a directory'],
    ['.', 'it is a folder'],
  ])('refuses %s', async (path, reason) => {
    expect(await heddle([...args, below(path)])).toBe(2);
    expect(err).toBe(
      `heddle: ${option} is ${JSON.stringify(below(path))}; it must be a file that can be written (${reason}) (HEDDLE_ARGUMENT: docs/troubleshooting.md#heddle_argument)\n`,
    );
    expect(out).toBe('');
  });
});

describe.each(folders.map((args) => ({ args, name: args.join(' ') })))('heddle $name', ({ args }) => {
  it.each(['taken', 'taken/a/b'])('refuses %s', async (path) => {
    expect(await heddle([...args, below(path)])).toBe(2);
    expect(err).toContain(`${args.at(-1)} is ${JSON.stringify(below(path))}; it must be a folder`);
    expect(err).toContain(`that can be written (${below('taken')} is no folder)`);
    expect(readFileSync(below('taken'), 'utf8')).toBe('before');
  });

  it('refuses no name', async () => {
    expect(await heddle([...args, ''])).toBe(2);
    expect(err).toContain('is ""; it must be the path of a folder');
  });

  it('refuses /proc/nope/z at once', needing('linux'), async () => {
    expect(await heddle([...args, '/proc/nope/z'])).toBe(2);
    expect(err).toMatch(/\/proc\/nope\/z"; it must be a folder that can be written \(/);
  });
});

it('heddle tune refuses what is no tuning file, before it looks for GPUs', async () => {
  expect(await heddle(['tune', '--output', below('taken')])).toBe(2);
  expect(err).toMatch(/tuning file is ".*taken"; it must be as `heddle tune` writes it/);
  expect(await heddle(['tune', '--output', below('taken/tuning.json')])).toBe(2);
  expect(err).toMatch(/folder of the tuning file is ".*taken"; it must be a folder that can be written/);
  expect(await heddle(['tune', '--output', ''])).toBe(2);
  expect(err).toMatch(/tuning file is ""; it must be the path of a file/);
  expect(readdirSync(folder)).toEqual(['taken']);
});

it('a device that is full is named, without a stack', needing('/dev/full'), async () => {
  const smallest = ['bench', '--device', 'sim', '--ep', '2', '--tokens', '1', '--hidden', '512'];
  expect(await heddle([...smallest, '--output-file', '/dev/full'])).toBe(1);
  expect(err).toContain(
    'heddle: /dev/full cannot be written: ENOSPC: no space left on device (HEDDLE_FILE: docs/troubleshooting.md#heddle_file)\n',
  );
});
