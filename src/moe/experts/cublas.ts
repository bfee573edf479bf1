/** What every MLP by cuBLAS begins with. */

import { ArgumentError } from '../../base/errors.js';
import { Cublas, CudaDevice, type CudaStream } from '../../gpu/cuda/index.js';
import type { Device } from '../../gpu/index.js';

/** `sms`: for how many multiprocessors it chooses kernels; null for all. */
export function cublasOn(device: Device, sms: number | null = null): Cublas {
  if (!(device instanceof CudaDevice))
    throw new ArgumentError('gemm', 'cublas', `'heddle' on a ${device.description}`);
  return new Cublas(device, sms);
}

/**
 * Has everything enqueued once. cuBLAS loads a kernel at its first use, and waits for the GPU to do so: within a round that wait
 * would have no end where the GPU waits for a rank of this same thread.
 */
export async function useOnce(device: Device, enqueue: (stream: CudaStream) => void): Promise<void> {
  const stream = device.createStream();
  enqueue(stream as CudaStream);
  await stream.synchronize();
  stream.dispose();
}
