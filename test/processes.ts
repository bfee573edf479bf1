/** Processes that tests start: what they print, what they say, and whether they run. */
import type { ChildProcess } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { Writable } from 'node:stream';

/** Collects lines; can wait for one. */
export class Lines extends Writable {
  readonly lines: string[] = [];
  #rest = '';
  #wake = () => {};

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    const parts = (this.#rest + chunk.toString()).split('\n');
    this.#rest = parts.pop()!;
    this.lines.push(...parts);
    this.#wake();
    done();
  }

  async atLeast(n: number, pattern: RegExp): Promise<string[]> {
    for (;;) {
      const found = this.lines.filter((line) => pattern.test(line));
      if (found.length >= n) return found;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** A zombie, which waits only for its parent, runs no more. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const stat = `/proc/${pid}/stat`;
  if (!existsSync('/proc/self/stat')) return true;
  try {
    return !/^\d+ \(.*\) [ZX]/s.test(readFileSync(stat, 'utf8'));
  } catch {
    return false;
  }
}

/** The next message of a process; undefined if it ends instead. */
export function heard<Said>(member: ChildProcess): Promise<Said | undefined> {
  return new Promise((resolve) => {
    const ended = () => resolve(undefined);
    member.once('exit', ended);
    member.once('message', (said: Said) => {
      member.off('exit', ended);
      resolve(said);
    });
  });
}

/** Makes sure that a process is gone. */
export async function end(member: ChildProcess): Promise<void> {
  if (member.pid === undefined || !isThere(member)) return;
  const gone = new Promise((resolve) => member.once('exit', resolve));
  member.kill('SIGKILL');
  await gone;
}

export const isThere = ({ exitCode, signalCode }: ChildProcess) => exitCode === null && signalCode === null;
