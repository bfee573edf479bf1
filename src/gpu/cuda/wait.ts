/** How long the host spins before it lets the event loop turn, and turns before it sleeps, in milliseconds. */
const spin = 0.01;
const turns = 4;
const sleep = 1;

/**
 * Resolves when `done` says so. Polls at once for ten microseconds (most small kernels), then between turns of
 * the event loop, then every millisecond: a long wait neither blocks the loop nor burns a core.
 */
export async function until(done: () => boolean): Promise<void> {
  const start = performance.now();
  do {
    if (done()) return;
  } while (performance.now() - start < spin);
  for (;;) {
    const waited = performance.now() - start;
    await new Promise<void>((resolve) => {
      if (waited < turns) setImmediate(resolve);
      else setTimeout(resolve, sleep);
    });
    if (done()) return;
  }
}
