/** Files that other processes may read and write at the same time: written whole, read without waiting. */
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { FileError, valueOr } from '../errors.js';

/**
 * Reads a regular file. Refuses a pipe or a device, which may never end, and whatever `allows` throws for.
 * @throws FileError
 */
export function readRegular(path: string, allows: (stats: fs.Stats) => void = () => {}): Buffer {
  return naming(path, 'read', () => {
    // Without O_NONBLOCK, opening a pipe would wait for a writer.
    const file = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
    try {
      const stats = fs.fstatSync(file);
      if (!stats.isFile()) throw new Error('it is no regular file');
      allows(stats);
      return fs.readFileSync(file);
    } finally {
      fs.closeSync(file);
    }
  });
}

/** Throws unless only this user and root can have written the file. */
export function requireUnshared({ uid, mode }: Pick<fs.Stats, 'uid' | 'mode'>): void {
  // Windows has no such users and modes, so there is nothing to check.
  if (process.geteuid === undefined) return;
  if (uid !== process.geteuid() && uid !== 0) throw new Error(`it belongs to the user ${uid}`);
  if ((mode & 0o022) !== 0)
    throw new Error(`others may write to it: its mode is ${(mode & 0o777).toString(8)}`);
}

const temporaryName = (): string => `.${process.pid}-${randomBytes(6).toString('hex')}.tmp`;

/** Whether a name is one that `writeWhole` gives to a file which it has not put in its place yet. */
export const isTemporary = (name: string): boolean => /^\.\d+-[0-9a-f]{12}\.tmp$/.test(name);

/**
 * Writes a file: readers see what was there before, or all of the new, also where several processes write it or one is
 * killed. Without a mode the file keeps the one that it has.
 * @throws FileError
 */
export function writeWhole(path: string, contents: string | Uint8Array, asked?: number): void {
  naming(path, 'written', () => {
    const place = placeOf(path);
    const had = fs.statSync(place, { throwIfNoEntry: false })?.mode;
    const mode = asked ?? (had ?? 0o666) & 0o777;
    const temporary = join(dirname(place), temporaryName());
    try {
      fs.writeFileSync(temporary, contents, { flag: 'wx', mode });
      // The umask took bits away that the file has.
      if (asked === undefined && had !== undefined) fs.chmodSync(temporary, mode);
      fs.renameSync(temporary, place);
    } catch (error) {
      fs.rmSync(temporary, { force: true });
      throw error;
    }
  });
}

/** Writes a file that somebody asked for: whole, or into a pipe or device, /dev/stdout for one. @throws FileError */
export function writeOutput(path: string, contents: string | Uint8Array): void {
  naming(path, 'written', () => {
    const printed = printedTo(path);
    if (printed !== undefined || isSpecial(path)) fs.writeFileSync(printed ?? path, contents);
    else writeWhole(path, contents);
  });
}

/** The descriptor of stdout or stderr where a path leads to the file that it is: one in its place would hide what else is printed. */
const printedTo = (path: string): number | undefined => {
  const file = fs.statSync(path, { throwIfNoEntry: false });
  return [1, 2].find((descriptor) => {
    const { dev, ino } = valueOr(null, () => fs.fstatSync(descriptor)) ?? {}; // it may be closed
    return file?.isFile() && file.dev === dev && file.ino === ino;
  });
};

/** Requires that `writeOutput` can write this file, and leaves nothing behind. @throws FileError */
export function requireWritable(path: string): void {
  naming(path, 'written', () => {
    if (fs.existsSync(path)) fs.accessSync(path, fs.constants.W_OK);
    if (isSpecial(path) || printedTo(path) !== undefined) return;
    if (isFolder(path)) throw new Error('it is a folder');
    tryFolder(dirname(placeOf(path)));
  });
}

/** Requires that files can be written into this folder, once `makeFolder` has made it. @throws FileError */
export function requireFolder(path: string): void {
  naming(path, 'written to', () => {
    let there = resolve(path);
    while (!fs.existsSync(there)) there = dirname(there);
    if (!isFolder(there)) throw new Error(`${there} is no folder`);
    tryFolder(there);
  });
}

/** Makes a folder, and those above it, where they are missing. @throws FileError */
export function makeFolder(path: string, mode = 0o777): void {
  // With `recursive`, Node.js's own mkdir never returns below /proc.
  const above = dirname(path);
  if (!fs.existsSync(above)) makeFolder(above, mode);
  naming(path, 'made', () => {
    try {
      fs.mkdirSync(path, { mode });
    } catch (error) {
      if (!isFolder(path)) throw error;
    }
  });
}

/** Only trying tells: a file system may be read-only, or take no files at all. */
function tryFolder(folder: string): void {
  const temporary = join(folder, temporaryName());
  fs.writeFileSync(temporary, '', { flag: 'wx' });
  fs.rmSync(temporary);
}

/** Where a file lies that may be a link to another. */
const placeOf = (path: string): string => (fs.existsSync(path) ? fs.realpathSync(path) : path);

const isFolder = (path: string): boolean =>
  fs.statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;

function isSpecial(path: string): boolean {
  const stats = fs.statSync(path, { throwIfNoEntry: false });
  return stats !== undefined && !stats.isFile() && !stats.isDirectory();
}

/** Every error names the file that the caller named, and says that it cannot be `done`. */
export function naming<T>(path: string, done: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw error instanceof FileError ? error : new FileError(path, done, error);
  }
}

const warned = new Set<string>();

/** Warns on stderr, once in this process, of something that costs time but changes no result. */
export function warnOnce(code: string, message: string): void {
  if (warned.has(message)) return;
  warned.add(message);
  process.emitWarning(message, { code });
}
