import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Sizes } from './roles.js';

const run = promisify(execFile);
const source = fileURLToPath(new URL('../fabric-raw.c', import.meta.url));

/** The C program that makes the same raw libfabric calls. */
export interface Baseline {
  /** Runs one measurement: microseconds for `latency`, `post` and `scatter`, seconds for `stream`. */
  measure(
    on: { readonly provider: string; readonly device: string },
    mode: 'latency' | 'stream' | 'post' | 'scatter',
    sizes: Sizes,
  ): Promise<number>;
  remove(): Promise<void>;
}

/** Compiles it; a string says why it cannot be. */
export async function buildBaseline(): Promise<Baseline | string> {
  const folder = await mkdtemp(join(tmpdir(), 'heddle-fabric-'));
  const program = join(folder, 'fabric-raw');
  const remove = () => rm(folder, { recursive: true, force: true });
  try {
    await run('cc', ['-O2', '-o', program, source, '-lfabric']);
  } catch (error) {
    await remove();
    const reason = (error as { stderr?: string }).stderr?.split('\n')[0] || (error as Error).message;
    return `it does not compile (${reason.trim()}); it needs a C compiler and libfabric-dev`;
  }
  return {
    async measure({ provider, device }, mode, { bytes, window, count }) {
      const args = [provider, device, mode, ...[bytes, window, count].map(String)];
      const { stdout } = await run(program, args, { timeout: 300_000, killSignal: 'SIGKILL' });
      return (JSON.parse(stdout) as { result: number }).result;
    },
    remove,
  };
}
