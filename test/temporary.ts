import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';

/** Makes a folder that is gone after all tests of the file, or with `onTestFinished` after one test. */
export function temporaryFolder(then: (end: () => void) => void = afterAll): string {
  const folder = mkdtempSync(join(tmpdir(), 'heddle-'));
  then(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
