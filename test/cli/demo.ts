import { vi } from 'vitest';
import { heddle } from '../../src/cli/program.js';

/** Runs `heddle demo`; what it printed. */
export async function demo(...options: string[]) {
  const said = { out: '', err: '' };
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    said.out += text;
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    said.err += text;
    return true;
  });
  return { code: await heddle(['demo', ...options]), ...said };
}
