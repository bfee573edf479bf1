import { spawnSync } from 'node:child_process';

/** Runs a program that sees a /dev/shm of so many MiB, as in a container: in a mount namespace of its own. */
export const inContainer = (size: number, ...program: readonly string[]) =>
  spawnSync(
    'unshare',
    [
      '--mount',
      // A user without rights is root in a namespace of users.
      ...(process.getuid?.() === 0 ? [] : ['--map-root-user']),
      ...['sh', '-c', `mount -t tmpfs -o size=${size}m tmpfs /dev/shm && exec "$@"`, 'sh'],
      ...program,
    ],
    { encoding: 'utf8' },
  );

/** Why there can be none here; null where there can. */
export function whyNoContainer(): string | null {
  const { status, stderr, error } = inContainer(1, 'true');
  return status === 0 ? null : (error?.message ?? stderr.trim());
}
