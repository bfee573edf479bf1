import { spawnSync } from 'node:child_process';
import { importing } from './thread.js';

/**
 * Runs a module as a process of its own: `new URL('./trial.js', import.meta.url)`. What it prints last is the answer; a
 * crash, an exit or silence costs only that process.
 */
export function runApart(
  module: URL,
  timeoutMs: number,
): { readonly ok: true; readonly line: string } | { readonly ok: false; readonly reason: string } {
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', importing(module)], {
    encoding: 'utf8',
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    // Preloaded loaders of the parent have no business in the child.
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  if (child.error) return { ok: false, reason: `the process of the trial failed: ${child.error.message}` };
  const last = (text: string): string => text.trim().split('\n').at(-1) ?? '';
  if (child.status === 0) return { ok: true, line: last(child.stdout) };
  const end = child.signal ?? `exit code ${child.status}`;
  return { ok: false, reason: `it ended the process of the trial with ${end}: ${last(child.stderr)}` };
}
