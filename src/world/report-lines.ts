/** Ranks in processes that tell what they find as lines of their standard output. */
import { Writable } from 'node:stream';
import { HeddleError } from '../errors/index.js';
import { Launch, type LaunchOptions } from './launch.js';

/**
 * Starts ranks and hears each of their lines; what they say on stderr is shown. Resolves when all have ended well.
 * @throws HeddleError where one has not. `what`: what failed then.
 */
export async function launchReporting(
  what: string,
  options: Omit<LaunchOptions, 'stdout' | 'stderr' | 'prefix'>,
  onLine: (line: string) => void,
): Promise<void> {
  let rest = '';
  const stdout = new Writable({
    write(chunk: Buffer, _, done) {
      const lines = (rest + chunk.toString('utf8')).split('\n');
      rest = lines.pop()!;
      for (const line of lines) onLine(line);
      done();
    },
  });
  const launch = await Launch.start({ ...options, stdout, stderr: process.stderr, prefix: () => '' });
  const stop = (signal: NodeJS.Signals): void => launch.signal(signal);
  process.once('SIGINT', stop).once('SIGTERM', stop);
  const { exitCode, firstFailure } = await launch.finished;
  process.off('SIGINT', stop).off('SIGTERM', stop);
  if (exitCode === 0) return;
  throw new HeddleError(
    'HEDDLE_RANK_FAILED',
    `rank ${firstFailure?.rank ?? '?'} of ${what} ended with exit code ${exitCode}; its message is above`,
  );
}
