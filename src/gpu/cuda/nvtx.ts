/** NVTX hands ranges on to the profiler that runs the process, and to nobody without one. */
import { UnavailableError } from '../../base/errors.js';
import { openLibrary } from '../../base/native/index.js';
import { findListener, type RangeListener } from '../index.js';
import { libraryCandidates } from './compilers.js';

/** CUDA 12.9 and later bring the first, those before it the second. */
const sonames = ['libnvtx3interop.so.1', 'libnvToolsExt.so.1'];

const remedy =
  'Put the folder of NVTX on LD_LIBRARY_PATH, set HEDDLE_NVTX to the path of the library, or unset it';

/**
 * `asked`: 1, or the path of a library.
 * @throws UnavailableError where it is asked for and not there.
 */
export function openNvtx(asked = ''): RangeListener | null {
  if (asked === '' || asked === '0') return null;
  const library = openLibrary(asked === '1' ? libraryCandidates(sonames) : [asked], remedy);
  const calls = { nvtxRangePushA: ['i32', 'string'], nvtxRangePop: ['i32'] } as const;
  const { nvtxRangePushA, nvtxRangePop } = library.optional(calls);
  if (nvtxRangePushA === null || nvtxRangePop === null)
    throw new UnavailableError(`${library.name} has no ranges of NVTX`, remedy);
  return { enter: (name) => nvtxRangePushA(name), leave: () => nvtxRangePop() };
}

/** @throws UnavailableError where `HEDDLE_NVTX` names a library that has no ranges. */
export const nvtxAskedFor = () => openNvtx(process.env.HEDDLE_NVTX);

findListener(nvtxAskedFor);
