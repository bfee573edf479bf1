/** Where and with what a run was measured. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf, UnavailableError, valueOr } from '../../base/errors.js';
import { findCompiler, listGpus } from '../../gpu/cuda/index.js';
import { ncclVersion, ncclVersionNumber } from './nccl-library.js';

const root = join(import.meta.dirname, '../../..');

function version(): string {
  const text = readFileSync(join(root, 'package.json'), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

/** The commit that this code comes from: $HEDDLE_COMMIT, else what git says of the folder that it lies in. */
function commit(): string | null {
  if (process.env.HEDDLE_COMMIT) return process.env.HEDDLE_COMMIT;
  const git = (...args: string[]): string =>
    execFileSync('git', ['-C', root, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  return valueOr(null, () =>
    // A package installed somewhere inside another project is not that project's commit.
    git('rev-parse', '--show-prefix') === '' ? git('rev-parse', '--short=12', 'HEAD') : null,
  );
}

/** NCCL's version, or why it cannot be used. */
export function ncclHere(): { readonly version: string | null; readonly reason: string } {
  try {
    return { version: ncclVersion(ncclVersionNumber()), reason: '' };
  } catch (error) {
    return { version: null, reason: messageOf(error) };
  }
}

function driverVersion(): string | null {
  const text = valueOr('', () => readFileSync('/proc/driver/nvidia/version', 'utf8'));
  return /\b\d{3}\.\d+(\.\d+)?\b/.exec(text)?.[0] ?? null;
}

/**
 * @throws UnavailableError that says what measuring so many ranks would need here. `otherwise`: what else would help.
 */
export function requireGpus(ranks: number, otherwise = ''): void {
  const gpus =
    ranks === 1 ? 'an NVIDIA GPU' : `${ranks} NVIDIA GPUs of one machine with peer access (NVLink)`;
  const needs = `Measuring ${ranks === 1 ? 'one rank' : `${ranks} ranks`} needs ${gpus} with a driver, and NVRTC or nvcc`;
  const remedy = `\`heddle doctor\` says what is missing; --ep chooses how many ranks${otherwise}`;
  let here: number;
  try {
    here = listGpus().length;
  } catch (error) {
    if (!(error instanceof UnavailableError)) throw error;
    throw new UnavailableError(`${needs}; this machine has no usable GPU`, remedy, { cause: error });
  }
  if (here < ranks) {
    const count = here === 0 ? 'none' : here === 1 ? 'one' : String(here);
    throw new UnavailableError(`${needs}; this machine has ${count}`, remedy);
  }
}

/** When, by what and where a run was measured: the head of its report. */
export async function provenance(kind: 'cuda' | 'sim', ranks: number, nccl: string | null = null) {
  const real = kind === 'cuda';
  const compiler = real ? await findCompiler().catch(() => null) : null;
  const gpus = real ? listGpus().map(({ name }) => name) : new Array<string>(ranks).fill('simulated GPU');
  return {
    date: new Date().toISOString(),
    version: version(),
    commit: commit(),
    machine: {
      gpus: gpus.slice(0, ranks),
      driver: real ? driverVersion() : null,
      compiler: compiler && `${compiler.kind} ${compiler.version}`,
      nccl,
      node: process.versions.node,
    },
  };
}
