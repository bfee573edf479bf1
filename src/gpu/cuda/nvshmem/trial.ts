/** A process of its own, for `heddle doctor`: one rank comes up in NVSHMEM on the first GPU, and parts. */
import { readdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { messageOf, valueOr } from '../../../base/errors.js';
import { CudaDevice } from '../device.js';
import { countGpus } from '../gpu.js';
import { nvshmemHeaders } from './headers.js';
import { NvshmemHeap } from './heap.js';
import { nvshmem } from './library.js';

export interface NvshmemTrial {
  /** '3.4.5'; null where the library was refused. */
  readonly version: string | null;
  /** False where there is no GPU to try it on. */
  readonly cameUp: boolean;
  /** Transports between machines that lie beside the library: 'ibrc'. */
  readonly plugins: readonly string[];
  /** Why Heddle cannot use NVSHMEM; null if it can. */
  readonly refusal: string | null;
}

let version: string | null = null;
let cameUp = false;
let plugins: string[] = [];
let refusal: string | null = null;
try {
  const library = nvshmem();
  version = library.version.join('.');
  plugins = readdirSync(dirname(library.path)).flatMap(
    (file) => /^nvshmem_transport_(\w+)\.so\.\d+$/.exec(file)?.[1] ?? [],
  );
  nvshmemHeaders();
  cameUp = await comesUp();
} catch (error) {
  refusal = messageOf(error);
}
process.stdout.write(`\n${JSON.stringify({ version, cameUp, plugins, refusal } satisfies NvshmemTrial)}\n`);

async function comesUp(): Promise<boolean> {
  if (valueOr(0, countGpus) === 0) return false;
  const device = CudaDevice.open(0);
  device.joinNvshmem(NvshmemHeap.uniqueId(), 0, 1, new AbortController().signal);
  device.allocateSymmetric(4096, 'trial');
  await device.dispose();
  return true;
}
