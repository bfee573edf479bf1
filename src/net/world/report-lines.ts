/** Ranks in processes that tell what they find as lines of their standard output. */
import { Writable } from 'node:stream';
import { HeddleError, show } from '../../base/errors.js';
import { Launch, type LaunchOptions } from './launch.js';

/** The report on a line; null for what programs and libraries print beside. @throws HeddleError for the beginning of a report. */
export function reportIn(line: string): object | null {
  if (!line.startsWith('{')) return null;
  try {
    return JSON.parse(line) as object;
  } catch (error) {
    throw new HeddleError('HEDDLE_RANK_FAILED', `a rank's report is no JSON: ${show(line)}`, {
      cause: error,
    });
  }
}

/**
 * Starts ranks and hears what they report; what they say on stderr is shown. Resolves when all have ended well.
 * @throws HeddleError where one has not, or has reported what cannot be read. `what`: what failed then.
 */
export async function launchReporting(
  what: string,
  options: Omit<LaunchOptions, 'stdout' | 'stderr' | 'prefix'>,
  onReport: (report: object) => void,
): Promise<void> {
  let rest = '';
  let unread: unknown;
  const hear = (line: string): void => {
    try {
      const report = reportIn(line);
      if (report !== null) onReport(report);
    } catch (error) {
      unread ??= error;
    }
  };
  const stdout = new Writable({
    write(chunk: Buffer, _, done) {
      const lines = (rest + chunk.toString('utf8')).split('\n');
      rest = lines.pop()!;
      lines.forEach(hear);
      done();
    },
  });
  const launch = await Launch.start({ ...options, stdout, stderr: process.stderr, prefix: false });
  let stopped: NodeJS.Signals | undefined;
  const stop = (signal: NodeJS.Signals): void => {
    stopped = signal;
    launch.signal(signal);
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
  const { exitCode, firstFailure } = await launch.finished;
  process.off('SIGINT', stop).off('SIGTERM', stop);
  // The ranks have ended. Nothing failed: this process ends as it was told to.
  if (stopped !== undefined) process.kill(process.pid, stopped);
  if (exitCode === 0 && unread !== undefined) throw unread;
  if (exitCode === 0) return;
  throw new HeddleError(
    'HEDDLE_RANK_FAILED',
    `rank ${firstFailure?.rank ?? '?'} of ${what} ended with exit code ${exitCode}; its message is above`,
  );
}
