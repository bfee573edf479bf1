/** CUDA programs on the simulated machine: as the subject of a check, each of whose schedules runs the whole program, or just once. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { basename } from 'node:path';
import { ArgumentError, HeddleError } from '../../base/errors.js';
import { SimMachine } from '../../gpu/sim/index.js';
import { type CheckSubject, WrongResult } from '../../verify/check/index.js';
import { Kernels } from './kernels.js';
import { libraryFolder } from './library.js';
import { Patience } from './patience.js';
import { sharedRoom } from './room.js';
import { serve } from './serve.js';
import { Session } from './session.js';

/** So much of what a program has printed goes into the finding where it fails. */
const mostShown = 4000;

/** The folder of the libraries that it will load. */
function prepare([program = '']: readonly string[]): string {
  if (program.includes('/') && !existsSync(program))
    throw new ArgumentError('program', program, 'a program that is there');
  return libraryFolder();
}

/** Runs the program on the machine, to its end. `show` gets what it prints; without it the program shares the input and output of this process. */
async function runOn(
  machine: SimMachine,
  kernels: Kernels,
  [program = '', ...args]: readonly string[],
  library: string,
  show: ((text: Buffer) => void) | null,
) {
  const room = sharedRoom();
  machine.moveInto(room);
  const session = new Session(machine, kernels);
  const server = await serve(session, room);
  const { LD_LIBRARY_PATH } = process.env;
  const child = spawn(program, args, {
    detached: true,
    stdio: show === null ? 'inherit' : ['ignore', 'pipe', 'pipe'],
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
  child.once('exit', () => setImmediate(kill));
  for (const output of [child.stdout, child.stderr]) output?.on('data', (text: Buffer) => show?.(text));
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
    // Work that a program leaves behind as it fails is not looked at.
    if (code === 0) await session.end();
    return { code, signal, session, hasCalled: server.isCalled() };
  } finally {
    process.off('exit', kill);
    kill();
    server.close();
    session.close();
    for (let rank = 0; rank < machine.ranks; rank++) await machine.device(rank).dispose();
    room.close();
  }
}

function tellRefused({ refused }: Session, output: NodeJS.WritableStream): void {
  for (const [call, times] of refused)
    output.write(`heddle: not simulated: ${call}, ${times === 1 ? 'once' : `${times} times`}\n`);
}

/** `show` gets what the first run prints. */
export function programSubject(
  command: readonly string[],
  gpus: number,
  show: NodeJS.WritableStream,
): CheckSubject {
  const library = prepare(command);
  const [program = ''] = command;
  const kernels = new Kernels(program);
  let runs = 0;

  async function run(machine: SimMachine): Promise<void> {
    const isFirst = runs++ === 0;
    let printed = '';
    const { code, signal, session, hasCalled } = await runOn(machine, kernels, command, library, (text) => {
      printed = (printed + text.toString()).slice(-mostShown);
      if (isFirst) show.write(text);
    });
    if (isFirst) tellRefused(session, show);
    if (session.error !== null) throw session.error;
    if (code !== 0) {
      const why = session.invalid === null ? '' : ` (${session.invalid})`;
      throw new WrongResult(`the program ended with ${signal ?? `exit code ${code}`}${why}\n${printed}`);
    }
    if (machine.statistics.launches > 0) return;
    const why = hasCalled
      ? 'has launched no kernel'
      : 'has not called CUDA’s shared runtime: build it with nvcc -cudart shared';
    throw new HeddleError('HEDDLE_CHECK', `${program} ${why}`);
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

/** Runs the program once, without a detector, and gives its exit code. */
export async function runProgram(command: readonly string[], gpus: number): Promise<number> {
  const library = prepare(command);
  const machine = SimMachine.create({ ranks: gpus });
  const { code, signal, session } = await runOn(machine, new Kernels(command[0]!), command, library, null);
  tellRefused(session, process.stderr);
  if (session.error !== null) throw session.error;
  return code ?? 128 + constants.signals[signal!];
}
