/** A rank's part in NVSHMEM: the symmetric heap, and the kernels that put through it. */
import { UnavailableError } from '../../../base/errors.js';
import { type Address, addressOf } from '../../../base/native/index.js';
import { forgetCurrentContext } from '../driver.js';
import { CudaError } from '../errors.js';
import { attributes, blankUniqueId } from './attributes.js';
import { type NvshmemLibrary, nvshmem } from './library.js';

/** The flag of the first call by which ranks come together with a unique id. */
const byUniqueId = 8;
/**
 * NVSHMEM reports this state once it is initialised. Lower numbers are the states before, higher ones other ways to
 * be initialised.
 */
const initialised = 2;
const teamWorld = 0;
/** The variable of modules that call NVSHMEM which `nvshmemx_cumodule_init` fills in. */
export const nvshmemState = 'nvshmemi_device_state_d';

/** The id by which this process came in, to which NVSHMEM keeps a pointer. It can come in once. */
let cameBy: Uint8Array | null = null;

export class NvshmemHeap {
  readonly version: string;
  readonly #library: NvshmemLibrary;
  /** Aborted when a rank is lost: from then on no call may wait for all ranks. */
  readonly #lost: AbortSignal;

  /** The id that one rank makes and all are given. */
  static uniqueId(): Uint8Array {
    const id = blankUniqueId();
    const { nvshmemx_get_uniqueid } = nvshmem().calls;
    check(nvshmemx_get_uniqueid(id), 'nvshmemx_get_uniqueid', 'making the id by which ranks find each other');
    return id;
  }

  /**
   * Blocks the thread until all ranks have called it: let them meet just before. The rank's context is the current one.
   * @throws UnavailableError where it does not come up.
   */
  static join(id: Uint8Array, rank: number, ranks: number, lost: AbortSignal): NvshmemHeap {
    if (cameBy !== null)
      throw new UnavailableError(
        'This process has been in NVSHMEM before, which it can once',
        'Start a process for each world that uses NVSHMEM',
      );
    const library = nvshmem();
    const { nvshmemx_hostlib_init_attr, nvshmemx_init_status } = library.calls;
    cameBy = Uint8Array.from(id);
    const result = nvshmemx_hostlib_init_attr(byUniqueId, attributes(addressOf(cameBy), rank, ranks));
    forgetCurrentContext();
    // The initialising call returns 0 for some errors too; only the status tells.
    const status = nvshmemx_init_status();
    if (result !== 0 || status < initialised)
      throw new UnavailableError(
        `NVSHMEM did not start on rank ${rank} of ${ranks} (result ${result}, status ${status})`,
        'Set NVSHMEM_DEBUG=INFO to see why; `heddle doctor` tries it by itself',
      );
    return new NvshmemHeap(library, lost);
  }

  private constructor(library: NvshmemLibrary, lost: AbortSignal) {
    this.#library = library;
    this.#lost = lost;
    this.version = library.version.join('.');
  }

  /** Memory at the same place of every rank's heap: all of them call it, with the same size. */
  allocate(bytes: number, purpose: string): Address {
    const address = this.#library.calls.nvshmem_malloc(bytes);
    forgetCurrentContext();
    if (address !== 0) return address;
    throw new UnavailableError(
      `NVSHMEM’s heap has no room for the ${bytes} bytes of the ${purpose}`,
      'Set NVSHMEM_SYMMETRIC_SIZE to more: 4G',
    );
  }

  /** Frees memory of the heap. All ranks call it, in the same order. */
  free(address: Address): void {
    this.#library.calls.nvshmem_free(address);
    forgetCurrentContext();
  }

  /** Prepares a module whose kernel calls NVSHMEM. Without it the kernel's accesses fault. */
  enter(module: Address, kernel: string): void {
    const { nvshmemx_cumodule_init } = this.#library.calls;
    check(nvshmemx_cumodule_init(module), 'nvshmemx_cumodule_init', `loading the kernel ${kernel}`);
    forgetCurrentContext();
  }

  /** Takes a module out of NVSHMEM, before it is unloaded. */
  leave(module: Address): void {
    this.#library.calls.nvshmemx_cumodule_finalize(module);
    forgetCurrentContext();
  }

  /** NVSHMEM's own exchange: `bytes` of every rank's `from` to every rank's `to`, both in the heap. */
  alltoall(to: Address, from: Address, bytes: number, stream: Address): void {
    const result = this.#library.calls.nvshmemx_alltoallmem_on_stream(teamWorld, to, from, bytes, stream);
    check(result, 'nvshmemx_alltoallmem_on_stream', 'the exchange of NVSHMEM');
    forgetCurrentContext();
  }

  /**
   * Whether a rank was lost. NVSHMEM ends by calls that wait for all ranks, and would wait for the lost one for ever, so Heddle does not end it.
   * Nor does it free the modules and the GPU's context, which NVSHMEM still uses. The end of the process frees all.
   */
  get stranded(): boolean {
    return this.#lost.aborted;
  }

  /**
   * The end, for which all ranks have met. Where CUDA has failed, the library may end the process by itself, with exit
   * code 255.
   */
  end(): void {
    this.#library.calls.nvshmemx_hostlib_finalize();
    forgetCurrentContext();
  }
}

function check(result: number, call: string, doing: string): void {
  if (result !== 0) throw new CudaError(call, result, `NVSHMEM’s error ${result}`, doing);
}
