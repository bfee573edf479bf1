import { existsSync, readdirSync, rmSync } from 'node:fs';

/** A process that was killed leaves the files of libfabric's shm provider, which begin with its id. */
export function removeMailboxes(pids: readonly number[]): void {
  if (!existsSync('/dev/shm')) return;
  for (const name of readdirSync('/dev/shm')) {
    if (pids.some((pid) => name.startsWith(`${pid}:`))) rmSync(`/dev/shm/${name}`, { force: true });
  }
}
