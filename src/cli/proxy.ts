import { openSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { ArgumentError, HeddleError, messageOf, RankLostError } from '../base/errors.js';
import { mapFile } from '../base/native/index.js';
import { NativeView } from '../gpu/index.js';
import { hybridProxyModule } from '../moe/families/index.js';
import { ProcessCircle, proxyInThread, type RunningProxy } from '../net/world/index.js';
import type { Command, FlagsOf } from './commander.js';

const define = (command: Command) =>
  command
    .requiredOption('--memory <file>', 'the memory in which kernels and networks meet')
    .option('--json', 'as without it: all that it says is JSON')
    .addHelpText(
      'after',
      `
Moves a rank's messages between hosts for kernels that another program launches; the Python package starts it, a process a rank.
Its place is that of HEDDLE_RANK, HEDDLE_WORLD and HEDDLE_ADDRESS. It reads a line of JSON (bytes, front, data, reach: of the shape's
wire; timeoutMs), says {"ready": true} when all ranks' proxies are connected, and runs until its input ends. Where a rank is lost
it says {"error": {"code", "message", "ranks"}}, and ends.

Exit code: 0; 1 when a rank was lost or something failed; 2 for a mistake in the arguments.

Example:
  $ heddle proxy --memory /proc/self/fd/7`,
    );

export const register = (command: Command) => define(command).action(proxy);

/** The line that it reads. */
interface Told {
  readonly bytes: number;
  readonly front: number;
  readonly data: unknown;
  readonly reach: readonly number[];
  readonly timeoutMs: number;
}

const say = (what: object): void => void process.stdout.write(`${JSON.stringify(what)}\n`);

async function proxy({ memory: file }: FlagsOf<typeof define>): Promise<void> {
  const lines = createInterface({ input: process.stdin });
  const line = await new Promise<string>((resolve) =>
    lines.once('line', resolve).once('close', () => resolve('')),
  );
  if (line === '') throw new ArgumentError('standard input', 'empty', 'a line of JSON');
  const { bytes, front, data, reach, timeoutMs } = JSON.parse(line) as Told;
  const { address, buffer } = mapFile(openSync(file, 'r+'), bytes);
  const raw = new Uint8Array(buffer);
  const closed = new Promise<null>((resolve) => lines.once('close', () => resolve(null)));
  let circle: ProcessCircle | undefined;
  let running: RunningProxy | undefined;
  const options = {
    ...{ ...hybridProxyModule, data, reach, timeoutMs },
    memory: {
      ...{ address, bytes, front, side: 'host', raw, host: new NativeView(raw), free: () => {} },
      nics: { kind: 'host', raw: raw.subarray(front) },
    },
  } as const;
  try {
    circle = await ProcessCircle.join();
    const lost = new Promise<never>((_, reject) => circle!.onRankLost(reject));
    const begun = proxyInThread({ wires: 'host' })(options, null).begin(circle);
    running = await Promise.race([begun, lost]);
    say({ ready: true });
    await Promise.race([closed, lost]);
  } catch (error) {
    const code = error instanceof HeddleError ? error.code : 'HEDDLE_PROXY';
    const ranks = error instanceof RankLostError ? error.ranks : [];
    say({ error: { code, message: messageOf(error), ranks } });
    process.exitCode = 1;
  }
  await running?.stop();
  await circle?.dispose();
  lines.close();
}
