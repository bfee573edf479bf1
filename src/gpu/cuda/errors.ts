import { HeddleError } from '../../base/errors.js';

/** Results from 700 on that leave the context usable: wrong launches and peer access that is as it was. */
const recoverable: ReadonlySet<number> = new Set([701, 704, 705, 708, 711, 712, 713]);

/** A call into CUDA (the driver, NVRTC, NCCL) that did not succeed. */
export class CudaError extends HeddleError {
  constructor(
    /** The function that failed: `cuMemCreate`. */
    readonly call: string,
    /** The result as a number: 2. */
    readonly result: number,
    /** The result's name: `CUDA_ERROR_OUT_OF_MEMORY`. */
    readonly resultName: string,
    /** The operation that failed, and the remedy. */
    detail: string,
  ) {
    super(
      'HEDDLE_CUDA',
      `${call} failed with ${resultName} (${result})${detail === '' ? '' : `: ${detail}`}`,
    );
  }

  /** Whether every later call of this process on that GPU will fail the same way. */
  get contextLost(): boolean {
    return (
      this.call.startsWith('cu') && this.result >= 700 && this.result < 720 && !recoverable.has(this.result)
    );
  }
}

/** Results that Heddle itself tells apart. */
export const CUDA_ERROR_OUT_OF_MEMORY = 2;
export const CUDA_ERROR_NOT_READY = 600;
export const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704;

/** After one of these every later call of the process on that GPU fails too. */
const lost =
  'the GPU state of this process is lost: end the process and start it again. `heddle check` runs the same ' +
  'kernels with every access checked; compute-sanitizer does it on the GPU';

export const remedies: Readonly<Record<number, string>> = {
  2: 'the GPU has no room left; lower the tokens or payload sizes, or end other programs that use it',
  34: 'a stub of libcuda was loaded in place of the driver; remove the toolkit’s stubs from LD_LIBRARY_PATH',
  36: 'the driver is older than this call; update the NVIDIA driver',
  46: 'the GPU is in exclusive use by another process (see `nvidia-smi -q -d COMPUTE`)',
  100: 'no GPU is visible; see CUDA_VISIBLE_DEVICES and `nvidia-smi`',
  101: 'there is no such GPU; see CUDA_VISIBLE_DEVICES and `nvidia-smi`',
  200: 'the compiled kernel is no image that this driver can load; update the driver to the compiler’s version',
  201: 'no CUDA context is current, or it was destroyed by other code of this process',
  209: 'the compiled kernel does not suit this GPU; delete the kernel cache ($HEDDLE_CACHE or ~/.cache/heddle)',
  214: 'the GPU reported an uncorrectable memory error; see `nvidia-smi -q -d ECC`',
  217: 'these two GPUs cannot address each other; see the peer access table of `heddle doctor`',
  220: 'NVLink reported an uncorrectable error; see `nvidia-smi nvlink -e`',
  218: 'the compiler is newer than the driver; update the driver or use the driver’s CUDA version',
  222: 'the compiler is newer than the driver; update the driver or use the driver’s CUDA version',
  304: 'the operating system refused; see `dmesg` for the driver’s message',
  700: `a kernel accessed an address that is not mapped; ${lost}`,
  701: 'the launch needs more registers, threads or shared memory than the GPU has; lower the block size',
  702: 'a kernel ran longer than the display’s watchdog allows; use a GPU without a display',
  710: `a device-side assertion failed; ${lost}`,
  715: `a kernel met an illegal instruction; ${lost}`,
  716: `a kernel made a misaligned access; ${lost}`,
  719: `a kernel failed; ${lost}`,
  800: 'the driver does not permit it here (a container or a virtual machine may withhold it)',
  801: 'this GPU or driver does not support it',
  802: 'the NVSwitch fabric is not ready; start the fabric manager (`systemctl start nvidia-fabricmanager`)',
  803: 'the kernel module and libcuda.so.1 differ in version; reboot, or match the container’s driver libraries',
  804: 'the forward-compatibility package does not support this GPU; use the driver’s own libcuda',
  901: 'an earlier operation made the capture invalid; the error before this one says which',
  904: 'another stream joined the capture and was not joined back; let the captured stream wait for it',
  905: 'captured work depends on work outside the capture; record and wait for events inside it',
  906: 'the legacy default stream was used while a capture was under way',
  907: 'the event was recorded inside a capture; it can be waited for on captured streams only',
};
