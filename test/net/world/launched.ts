import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Launch, type LaunchOptions } from '../../../src/net/world/index.js';

/** The end of ranks that were launched, and what they said. */
export async function launched(options: Omit<LaunchOptions, 'stdout' | 'stderr'>) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = Promise.all([text(stdout), text(stderr)]);
  const { finished } = await Launch.start({ ...options, stdout, stderr });
  const result = await finished;
  stdout.end();
  stderr.end();
  const [out, errors] = await said;
  return { ...result, out, errors };
}
