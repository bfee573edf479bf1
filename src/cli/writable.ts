/** Files that a command will write. */
import { closeSync, openSync } from 'node:fs';
import { ArgumentError } from '../errors/index.js';

/** Measuring takes minutes: a file that cannot be written is noticed before. */
export function requireWritable(option: string, file: string | undefined): void {
  if (file === undefined) return;
  try {
    closeSync(openSync(file, 'a'));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ArgumentError(option, file, `a file that can be written (${why})`);
  }
}
