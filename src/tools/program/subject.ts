/** A CUDA program as the subject of a check: each schedule runs the whole program once. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import { ArgumentError, HeddleError } from '../../base/errors.js';
import type { SimMachine } from '../../gpu/sim/index.js';
import { type CheckSubject, WrongResult } from '../../verify/check/index.js';
import { Kernels } from './kernels.js';
import { libraryFolder } from './library.js';
import { Patience } from './patience.js';
import { sharedRoom } from './room.js';
import { serve } from './serve.js';
import { Session } from './session.js';

/** So much of what a program has printed goes into the finding where it fails. */
const mostShown = 4000;

/** `show` gets what the first run prints. */
export function programSubject(
  [program = '', ...args]: readonly string[],
  gpus: number,
  show: NodeJS.WritableStream,
): CheckSubject {
  if (program.includes('/') && !existsSync(program))
    throw new ArgumentError('program', program, 'a program that is there');
  const library = libraryFolder();
  const kernels = new Kernels(program);
  let runs = 0;

  async function run(machine: SimMachine): Promise<void> {
    const isFirst = runs++ === 0;
    const room = sharedRoom();
    machine.moveInto(room);
    const session = new Session(machine, kernels);
    const server = await serve(session, room);
    const { LD_LIBRARY_PATH } = process.env;
    const child = spawn(program, args, {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        HEDDLE_PROGRAM: server.address,
        LD_LIBRARY_PATH: [library, LD_LIBRARY_PATH].filter(Boolean).join(':'),
      },
    });
    if (child.pid !== undefined) session.patience = new Patience(child.pid);
    /** Ends what the program has started, too. */
    const kill = (): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {}
    };
    process.once('exit', kill);
    let printed = '';
    for (const output of [child.stdout, child.stderr])
      output.on('data', (text: Buffer) => {
        printed = (printed + text.toString()).slice(-mostShown);
        if (isFirst) show.write(text);
      });
    try {
      const status = await new Promise<string | null>((resolve, reject) => {
        child.once('error', reject);
        child.once('exit', () => setImmediate(kill));
        child.once('close', (code, signal) => resolve(code === 0 ? null : (signal ?? `exit code ${code}`)));
      });
      // Work that a program leaves behind as it fails is not looked at.
      if (status === null) await session.end();
      if (isFirst)
        for (const [call, times] of session.refused)
          show.write(`heddle: not simulated: ${call}, ${times === 1 ? 'once' : `${times} times`}\n`);
      if (session.error !== null) throw session.error;
      if (status !== null) {
        const why = session.invalid === null ? '' : ` (${session.invalid})`;
        throw new WrongResult(`the program ended with ${status}${why}\n${printed}`);
      }
      if (machine.statistics.launches > 0) return;
      const why = server.isCalled()
        ? 'has launched no kernel'
        : 'has not called CUDA’s shared runtime: build it with nvcc -cudart shared';
      throw new HeddleError('HEDDLE_CHECK', `${program} ${why}`);
    } finally {
      process.off('exit', kill);
      kill();
      server.close();
      session.close();
      for (let rank = 0; rank < gpus; rank++) await machine.device(rank).dispose();
      room.close();
    }
  }

  const name = basename(program);
  const print = (line: string): void => {
    if (runs === 1) show.write(`${line}\n`);
  };
  return {
    ...{ name, kernels: kernels.launched, sources: kernels.sources },
    configurations: [{ name, ranks: gpus, waitsOutside: true, print, run }],
  };
}
