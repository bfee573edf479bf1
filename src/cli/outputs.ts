/** Files and folders that a command will write. Work takes minutes: one that cannot be written is refused before. */
import { ArgumentError, FileError } from '../base/errors.js';
import { requireFolder, requireWritable } from '../base/files/index.js';

export const requireOutputFile = (option: string, file: string | undefined): void =>
  refusing(option, file, 'a file', requireWritable);

export const requireOutputFolder = (option: string, folder: string | undefined): void =>
  refusing(option, folder, 'a folder', requireFolder);

function refusing(
  option: string,
  path: string | undefined,
  what: string,
  require: (path: string) => void,
): void {
  if (path === undefined) return;
  if (path === '') throw new ArgumentError(option, path, `the path of ${what}`);
  try {
    require(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    throw new ArgumentError(option, path, `${what} that can be written (${error.reason})`);
  }
}
