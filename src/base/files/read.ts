import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { FileError } from '../errors.js';

/**
 * All of a regular file. A pipe or a device, whose end may never come, is refused; so is what `allows` throws for.
 * @throws FileError
 */
export function readRegular(path: string, allows: (stats: Stats) => void = () => {}): Buffer {
  try {
    // A pipe would wait here for a writer.
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stats = fstatSync(file);
      if (!stats.isFile()) throw new Error('it is no regular file');
      allows(stats);
      return readFileSync(file);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw new FileError(path, 'read', error);
  }
}

/** Throws where somebody else may have decided what lies here: anybody but this user and root. */
export function requireUnshared({ uid, mode }: Pick<Stats, 'uid' | 'mode'>): void {
  // Windows knows neither users nor modes of this kind.
  if (process.geteuid === undefined) return;
  if (uid !== process.geteuid() && uid !== 0) throw new Error(`it belongs to the user ${uid}`);
  if ((mode & 0o022) !== 0)
    throw new Error(`others may write to it: its mode is ${(mode & 0o777).toString(8)}`);
}
