/** Kernels of others as a subject: a file of PTX, and a program that says how they are launched. */
import { existsSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { ArgumentError } from '../../base/errors.js';
import { naming, writeOutput } from '../../base/files/index.js';
import { refusedIn, type SimMachine } from '../../gpu/sim/index.js';
import { PtxError, type PtxParameter, type PtxProgram, ptx, sourceName } from '../../lang/ptx/index.js';
import { firstHost } from './first-host.js';
import { importModule, ranBy, requireLaunch } from './own-module.js';
import { type CheckConfiguration, type CheckSubject, requireConfiguration } from './subject.js';

/** The default export of a host's module: the ways to run the kernels. */
export type PtxHost = (kernels: PtxProgram) => readonly CheckConfiguration[];

/** `first`: where there is no host, one is written to begin with. */
export async function ptxSubject(ptxFile: string, hostFile: string, first = false): Promise<CheckSubject> {
  const program = programOf(ptxFile);
  if (first && !existsSync(hostFile) && hostFile.endsWith('.ts')) {
    writeOutput(
      hostFile,
      firstHost(program, (name) => entryOf(program, name).parameters),
    );
    throw new ArgumentError(
      'host',
      hostFile,
      'a module that launches the kernels. There was none, so one has been written there to begin with: look at its guesses, then say the same again. If the name is a slip, delete the file',
    );
  }
  const host = await importHost(hostFile);
  const configurations: unknown = await ranBy(hostFile, () => host(program));
  if (!Array.isArray(configurations))
    throw new ArgumentError(`what ${hostFile} gives`, configurations, 'a list of configurations');
  return {
    name: basename(ptxFile.split(',')[0]!, '.ptx'),
    kernels: program.kernels,
    configurations: configurations.map(thatLaunches),
    sources: [...program.module.sources.values(), ptxFile],
  };
}

/** A kernel of a file, its parameters in their order, and what the simulated machine would refuse. */
interface PtxEntry {
  readonly name: string;
  /** In C++. */
  readonly source: string;
  readonly parameters: readonly Pick<PtxParameter, 'name' | 'bytes' | 'type'>[];
  readonly refused: readonly string[];
}

export interface PtxContents {
  readonly entries: readonly PtxEntry[];
  readonly seconds: number;
}

export function ptxContents(file: string): PtxContents {
  const started = performance.now();
  const program = programOf(file);
  const seconds = Math.round(performance.now() - started) / 1000;
  return { entries: program.kernels.map((name) => entryOf(program, name)), seconds };
}

function entryOf(program: PtxProgram, name: string): PtxEntry {
  const source = sourceName(name);
  try {
    const kernel = program.kernel(name);
    const parameters = kernel.params.map(({ name, bytes, type }) => ({ name, bytes, type }));
    return { name, source, parameters, refused: refusedIn(kernel).map(({ message }) => message) };
  } catch (error) {
    if (!(error instanceof PtxError)) throw error;
    return { name, source, parameters: [], refused: [error.message] };
  }
}

function thatLaunches(configuration: CheckConfiguration): CheckConfiguration {
  requireConfiguration('configuration', configuration);
  const run = async (machine: SimMachine): Promise<void> => {
    await configuration.run(machine);
    requireLaunch(machine);
  };
  return { ...configuration, run };
}

/** The program of one file, or of several with commas between them. */
const programOf = (files: string): PtxProgram =>
  ptx(files.split(',').map((file) => ({ file: basename(file), text: readText(file) })));

const readText = (path: string): string => naming(path, 'read', () => readFileSync(path, 'utf8'));

async function importHost(path: string): Promise<PtxHost> {
  readText(path);
  const module = await importModule(path);
  const host = module.default;
  if (typeof host === 'function') return host as PtxHost;
  throw new ArgumentError(
    'host',
    path,
    'a module whose default export is a function of the kernels, which gives configurations',
  );
}
