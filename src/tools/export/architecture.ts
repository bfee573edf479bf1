import { ArgumentError } from '../../base/errors.js';

/** An architecture of CUDA: what kernels are compiled for, and the GPUs that run what comes of it. */
export interface Architecture {
  /** CUDA's: 'sm_90a'. */
  readonly name: string;
  readonly image: 'cubin' | 'ptx';
  readonly capability: readonly [major: number, minor: number];
  /** Compute capabilities, as 10 · major + minor. */
  readonly gpus: readonly [oldest: number, newest: number];
}

/**
 * The architecture of a name. A cubin of 'sm_100a' runs on 10.0 alone, of 'sm_100f' or 'sm_100' on 10.0 to 10.9, of 'sm_86' on 8.6 to 8.9;
 * PTX of 'compute_90' on 9.0 and later.
 */
export function architectureNamed(argument: string, name: string): Architecture {
  const [, code, digits, minor, letter] = /^(sm|compute)_(\d+(\d))([af]?)$/.exec(name) ?? [];
  if (digits === undefined)
    throw new ArgumentError(argument, name, 'architectures like sm_90a or compute_90, or none');
  const oldest = Number(digits);
  const major = (oldest - Number(minor)) / 10;
  const image = code === 'sm' ? 'cubin' : 'ptx';
  const ofMajor = letter === 'f' || image === 'cubin' ? 10 * major + 9 : latest;
  return {
    ...{ name, image, capability: [major, Number(minor)] },
    gpus: [oldest, letter === 'a' ? oldest : ofMajor],
  };
}

const latest = 9999;

/** Sorts architectures as a host tries them: those for fewer GPUs first, then the newer ones. */
export const byPreference = (
  { gpus: [a, upToA] }: Architecture,
  { gpus: [b, upToB] }: Architecture,
): number => upToA - a - (upToB - b) || b - a;
