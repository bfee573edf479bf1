/**
 * All ranks on a machine lack what the machine lacks. So a rank hands that to its launcher, which says it once, and without a
 * stack: the mistake is not in the program.
 */
import { writeSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { UnavailableError } from '../../base/errors.js';

/** The process that reads what its children lack. Processes that they start in turn have the variable too, but another parent. */
const VARIABLE = 'HEDDLE_LAUNCHER';
/** Where they write it. */
const DESCRIPTOR = 3;
/** As the commands of Heddle end then. */
export const EXIT_LACKING = 2;

/** For the environment of a child whose fourth stream is a pipe. */
export const listening = (): NodeJS.ProcessEnv => ({ [VARIABLE]: String(process.pid) });

let telling = false;

/**
 * In a rank: an UnavailableError that nobody catches goes to the launcher, where there is one, and ends the process.
 * With DEBUG set it ends as any error does, with its stack.
 */
export function tellLauncher(): void {
  if (telling || process.env[VARIABLE] !== String(process.ppid)) return;
  telling = true;
  // A world in etcd outlives its launcher. Then nobody reads what its ranks say, and that must end none of them.
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  if (process.env.DEBUG) return;
  process.on('uncaughtExceptionMonitor', (error) => {
    if (!(error instanceof UnavailableError)) return;
    if (process.listenerCount('uncaughtException') > 0) return; // the program has an answer of its own
    try {
      writeSync(DESCRIPTOR, `${error.message} (${error.code})`);
    } catch {
      return; // the launcher is gone: Node.js says it
    }
    process.exit(EXIT_LACKING);
  });
}

/** How long what it said may still be on its way when a child has ended. */
const LATE_MS = 500;

/** Listens to a child. The function that comes back, called when the child has ended, resolves with what it lacked: '' for nothing. */
export function hearLack(pipe: Readable): (exitCode: number | null) => Promise<string> {
  let said = '';
  pipe.setEncoding('utf8').on('data', (part: string) => {
    said += part;
  });
  const closed = new Promise((resolve) => pipe.once('close', resolve));
  return async (exitCode) => {
    if (exitCode !== EXIT_LACKING) return '';
    const late = setTimeout(() => pipe.destroy(), LATE_MS);
    await closed;
    clearTimeout(late);
    return said;
  };
}
