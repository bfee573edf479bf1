/** Kernels of one's own: a module that exports them, and ways to run them. */
import { statSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import {
  ArgumentError,
  FileError,
  HeddleError,
  messageOf,
  requireFunction,
  requireObject,
  valueOr,
} from '../../base/errors.js';
import type { Stream } from '../../gpu/index.js';
import { SimMachine } from '../../gpu/sim/index.js';
import type { Kernel } from '../../lang/index.js';
import { World } from '../../net/world/index.js';
import { type CheckConfiguration, type CheckSubject, requireConfiguration } from './subject.js';

/** The simulated machine that a program of one's own runs on. */
export type OwnMachine = Pick<CheckConfiguration, 'ranks' | 'residentBlocks'>;

/** The round that `heddle bench ./mine.ts` times: all ranks enqueue it equally often, on streams that it names. */
export interface TimedRound {
  enqueue(stream: Stream): void;
  /** Bytes that this rank moves in it, to be shown as GB/s. */
  readonly bytes?: number;
}

/** A configuration that runs on GPUs as well. */
export type TimedConfiguration = CheckConfiguration & {
  program(world: World): Promise<TimedRound> | Promise<void>;
};

/**
 * A way to run kernels of one's own: `program` is that of every rank. It runs several rounds back to back, and throws
 * `WrongResult` where what comes out is not what it should be. `heddle check` runs what a module exports of these, and `heddle bench`
 * times the `TimedRound` that the program of one returns.
 */
export function configuration(
  name: string,
  machine: OwnMachine,
  program: (world: World) => Promise<TimedRound> | Promise<void>,
): TimedConfiguration {
  requireFunction('program', program);
  return { ...programOfRanks(name, machine, program), program };
}

/** A configuration whose every rank runs `program`. */
export function programOfRanks(
  name: string,
  machine: OwnMachine,
  program: (world: World, sim: SimMachine) => Promise<unknown>,
): CheckConfiguration {
  requireObject('machine', machine, 'an object: { ranks: 2 }');
  const made: CheckConfiguration = {
    ...machine,
    name,
    run: async (sim: SimMachine) => {
      requireOwn(sim);
      await World.local({ ranks: machine.ranks, device: 'sim', sim }, (world) => program(world, sim));
      requireLaunch(sim);
    },
  };
  requireConfiguration('configuration', made);
  return made;
}

/** A program and the command that runs it must be of one installation: machines of two have nothing in common. */
function requireOwn(sim: SimMachine): void {
  if (sim instanceof SimMachine) return;
  const here = fileURLToPath(heddleItself);
  throw new HeddleError(
    'HEDDLE_CHECK',
    `the program imports heddle from ${here}, which is another copy than the command's: run the one of that folder`,
  );
}

/** Without a launch every check would pass. */
export function requireLaunch({ statistics }: SimMachine): void {
  if (statistics.launches > 0) return;
  throw new HeddleError(
    'HEDDLE_CHECK',
    'no kernel has run: the program launches none, or ends before they do (await stream.synchronize())',
  );
}

/**
 * Loads a module of one's own: JavaScript, or TypeScript as it is. Exports may be single things, or lists of them.
 * @throws ArgumentError where it exports neither a kernel nor a configuration.
 */
export async function loadOwnModule(path: string) {
  // A thing may have several names: its own and `default`.
  const exports = [...new Set(Object.values(await importModule(path)).flat())];
  const kernels = exports.filter(isKernel);
  const configurations = exports.filter(isConfiguration);
  if (kernels.length + configurations.length === 0)
    throw new ArgumentError(
      'module',
      path,
      "a module that exports kernels, or what configuration of 'heddle/check' makes",
    );
  const name = basename(path).replace(/\.m?[jt]s$/, '');
  const names = kernels.map((kernel) => kernel.name);
  const subject: CheckSubject = { name, kernels: names.length === 0 ? [name] : names, configurations };
  return { kernels, subject };
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;
const isKernel = (value: unknown): value is Kernel =>
  isRecord(value) &&
  typeof value.name === 'string' &&
  isRecord(value.params) &&
  typeof value.ir === 'function';
const isConfiguration = (value: unknown): value is CheckConfiguration =>
  isRecord(value) &&
  typeof value.name === 'string' &&
  Number.isInteger(value.ranks) &&
  typeof value.run === 'function';

/** Run from source, something else takes the types out. */
let loadsTypeScript = import.meta.url.endsWith('.ts');

const isFile = (path: string): boolean => valueOr(false, () => statSync(path).isFile());

export async function importModule(path: string): Promise<Readonly<Record<string, unknown>>> {
  if (!isFile(path)) throw new FileError(path, 'read', new Error('there is no such file'));
  if (!loadsTypeScript && /\.m?ts$/.test(path)) {
    const { loadTypeScript } = await import('./typescript.js');
    loadTypeScript();
    loadsTypeScript = true;
  }
  return ranBy(path, () => import(pathToFileURL(resolve(path)).href));
}

/** The result of a module's own code. An error that it throws is a mistake of the module's, so the error names the module and the place. */
export async function ranBy<T>(path: string, run: () => T | Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof HeddleError) throw error;
    const message = `${path} cannot be loaded: ${messageOf(error).trim()}${placeOf(error)}`;
    throw new HeddleError('HEDDLE_FILE', message, { cause: error });
  }
}

const heddleItself = new URL('../../', import.meta.url).href;

/** The first place on the stack that is neither Heddle's nor Node.js's; or nothing. */
function placeOf(error: unknown): string {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  for (const [, place] of stack.matchAll(/(?:^|[ (])(file:\/\/\S+:\d+)\)?$/gm))
    if (!place!.startsWith(heddleItself)) return ` (${place!.replace('file://', '')})`;
  return '';
}
