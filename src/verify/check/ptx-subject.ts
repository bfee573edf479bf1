/** Kernels of others as a subject: a file of PTX, and a program that says how they are launched. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { ArgumentError, FileError } from '../../base/errors.js';
import type { SimMachine } from '../../gpu/sim/index.js';
import { type PtxProgram, ptx } from '../../lang/index.js';
import { importModule, ranBy, requireLaunch } from './own-module.js';
import { type CheckConfiguration, type CheckSubject, requireConfiguration } from './subject.js';

/** The default export of a host's module: the ways to run the kernels. */
export type PtxHost = (kernels: PtxProgram) => readonly CheckConfiguration[];

export async function ptxSubject(ptxFile: string, hostFile: string): Promise<CheckSubject> {
  const host = await importHost(hostFile);
  const program = ptx(readText(ptxFile), basename(ptxFile));
  const configurations: unknown = await ranBy(hostFile, () => host(program));
  if (!Array.isArray(configurations))
    throw new ArgumentError(`what ${hostFile} gives`, configurations, 'a list of configurations');
  return {
    name: basename(ptxFile, '.ptx'),
    kernels: program.kernels,
    configurations: configurations.map(thatLaunches),
  };
}

function thatLaunches(configuration: CheckConfiguration): CheckConfiguration {
  requireConfiguration('configuration', configuration);
  const run = async (machine: SimMachine): Promise<void> => {
    await configuration.run(machine);
    requireLaunch(machine);
  };
  return { ...configuration, run };
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new FileError(path, 'read', error);
  }
}

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
