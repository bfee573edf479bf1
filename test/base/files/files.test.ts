import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { FileError } from '../../../src/base/errors.js';
import {
  makeFolder,
  readRegular,
  requireFolder,
  requireUnshared,
  requireWritable,
  warnOnce,
  writeOutput,
  writeWhole,
} from '../../../src/base/files/index.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { transpiledUrl } from '../../tree.js';

let folder = '';
beforeEach(() => {
  folder = temporaryFolder(onTestFinished);
});

const text = (path: string): string => readFileSync(path, 'utf8');
const pipe = (): string => {
  const path = join(folder, 'pipe');
  spawnSync('mkfifo', [path]);
  return path;
};

describe('a file that is written whole', () => {
  it('is, for a reader that has opened it, all of what was there before', () => {
    const file = join(folder, 'a');
    writeWhole(file, 'before');
    const open = openSync(file, 'r');
    writeWhole(file, 'and then');
    expect(readFileSync(open, 'utf8')).toBe('before');
    closeSync(open);
    expect(text(file)).toBe('and then');
    expect(readdirSync(folder)).toEqual(['a']);
  });

  it('keeps its mode and the link that names it', () => {
    const [file, link] = [join(folder, 'a'), join(folder, 'link')];
    writeFileSync(file, 'before');
    chmodSync(file, 0o600);
    symlinkSync(file, link);
    writeWhole(link, 'after');
    expect(text(file)).toBe('after');
    expect(lstatSync(link).isSymbolicLink()).toBe(true);
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it('keeps a mode that new files do not get', () => {
    const file = join(folder, 'a');
    writeFileSync(file, 'before');
    chmodSync(file, 0o666);
    writeWhole(file, 'after');
    expect(statSync(file).mode & 0o777).toBe(0o666);
  });

  it('that cannot be is named with the reason, and leaves nothing', () => {
    const taken = join(folder, 'taken');
    mkdirSync(join(taken, 'below'), { recursive: true });
    expect(() => writeWhole(taken, 'x')).toThrow(/taken cannot be written: E[A-Z]+: [^']*$/);
    expect(() => writeWhole(join(folder, 'no/file'), 'x')).toThrow(
      /no\/file cannot be written: ENOENT: no such file or directory$/,
    );
    expect(readdirSync(folder)).toEqual(['taken']);
  });
});

describe('a file to be written', () => {
  it('is tried without a trace', () => {
    requireWritable(join(folder, 'new'));
    expect(readdirSync(folder)).toEqual([]);
    writeFileSync(join(folder, 'old'), 'before');
    requireWritable(join(folder, 'old'));
    expect(readdirSync(folder)).toEqual(['old']);
    expect(text(join(folder, 'old'))).toBe('before');
  });

  it.each([
    ['in no folder', 'no/file', 'ENOENT: no such file or directory'],
    ['that is a folder', '.', 'it is a folder'],
    ['below a file', 'a/file', 'ENOTDIR: not a directory'],
  ])('%s is refused', (_, path, reason) => {
    writeFileSync(join(folder, 'a'), '');
    expect(() => requireWritable(join(folder, path))).toThrow(`cannot be written: ${reason}`);
  });

  it('may be a pipe, which stays one', needing('mkfifo'), () => {
    const path = pipe();
    const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    requireWritable(path);
    writeOutput(path, 'through');
    const read = Buffer.alloc(7);
    readSync(reader, read);
    closeSync(reader);
    expect(read.toString()).toBe('through');
    expect(statSync(path).isFIFO()).toBe(true);
  });
});

it('what goes to /dev/stdout stands among all else that is printed, also in a file', needing('linux'), () => {
  const file = join(folder, 'out');
  const program = `
    import { writeOutput } from ${JSON.stringify(transpiledUrl('src/base/files/index.ts').href)};
    process.stdout.write('before\\n');
    writeOutput('/dev/stdout', 'a page\\n');
    process.stdout.write('after\\n');
    writeOutput('/dev/stderr', 'an error\\n');`;
  const [out, err] = [openSync(file, 'w'), openSync(`${file}.err`, 'w')];
  const { status } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', out, err],
  });
  for (const open of [out, err]) closeSync(open);
  expect({ status, out: text(file), err: text(`${file}.err`) }).toEqual({
    ...{ status: 0, out: 'before\na page\nafter\n', err: 'an error\n' },
  });
});

describe('a folder to be written into', () => {
  it('is made with those above it, and may be there', () => {
    const path = join(folder, 'a/b/c');
    requireFolder(path);
    expect(readdirSync(folder)).toEqual([]);
    makeFolder(path, 0o700);
    makeFolder(path);
    expect(statSync(join(folder, 'a/b')).mode & 0o777).toBe(0o700);
    requireFolder(path);
    expect(readdirSync(path)).toEqual([]);
  });

  it.each([
    ['a', 'EEXIST'],
    ['a/b', 'ENOTDIR'],
  ])('is refused where a file is in the way: %s', (path, code) => {
    writeFileSync(join(folder, 'a'), '');
    expect(() => requireFolder(join(folder, path))).toThrow(/cannot be written to: .*a is no folder$/);
    expect(() => makeFolder(join(folder, path))).toThrow(`cannot be made: ${code}`);
  });

  it('is refused at once below /proc', needing('linux'), () => {
    expect(() => requireFolder('/proc/nope/z')).toThrow('/proc/nope/z cannot be written to: ');
    expect(() => makeFolder('/proc/nope/z')).toThrow('/proc/nope cannot be made: ');
  });
});

describe('a file that is read', () => {
  it('is refused where it is a pipe, without waiting for what comes through', needing('mkfifo'), () => {
    expect(() => readRegular(pipe())).toThrow(/pipe cannot be read: it is no regular file$/);
  });

  it('is refused where it is a folder, or not there', () => {
    expect(() => readRegular(folder)).toThrow('cannot be read: it is no regular file');
    expect(() => readRegular(join(folder, 'none'))).toThrow(FileError);
  });

  it('is refused where somebody else may have written it', () => {
    const me = process.geteuid!();
    const other = me + 1;
    for (const [uid, mode] of [
      [me, 0o600],
      [me, 0o755],
      [0, 0o644],
    ] as const)
      expect(() => requireUnshared({ uid, mode })).not.toThrow();
    expect(() => requireUnshared({ uid: other, mode: 0o600 })).toThrow(`it belongs to the user ${other}`);
    for (const mode of [0o620, 0o602, 0o777])
      expect(() => requireUnshared({ uid: me, mode })).toThrow(`its mode is ${mode.toString(8)}`);
  });
});

it('says a warning once', () => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  try {
    for (const what of [`${folder} is slow`, `${folder} is slow`, `${folder} is full`])
      warnOnce('HEDDLE_TEST', what);
    expect(warn.mock.calls.map(([what]) => what)).toEqual([`${folder} is slow`, `${folder} is full`]);
  } finally {
    warn.mockRestore();
  }
});
