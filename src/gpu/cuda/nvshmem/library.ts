/** NVSHMEM's host library, opened at run time. */
import { type Library, openLibrary, setEnvironment } from '../../../base/native/index.js';
import { createOut } from '../driver.js';
import { requireKnownVersion, type Version } from './attributes.js';

export const nvshmemCandidates = ['libnvshmem_host.so.3'] as const;
export const nvshmemRemedy = 'pip install nvidia-nvshmem-cu13, and put its lib folder on LD_LIBRARY_PATH';
/** A program that says whether it comes up. */
export const nvshmemTrial = new URL('./trial.js', import.meta.url);

/** The variables that the library reads; all but the first may be set otherwise. */
const environment: Readonly<Record<string, string>> = {
  // NVLink multicast can take a machine's GPUs out of service when a program that uses it is killed.
  NVSHMEM_DISABLE_NVLS: '1',
  NVSHMEM_DISABLE_NCCL: '1',
  NVSHMEM_DISABLE_MNNVL: '1',
  // Ranks of one machine: they meet on loopback, and no NIC is asked for.
  NVSHMEM_REMOTE_TRANSPORT: 'none',
  NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME: 'lo',
  // Switches off a thread that serves NICs. If a rank was lost, that thread would still look at memory that is being
  // freed.
  NVSHMEM_DISABLE_LOCAL_ONLY_PROXY: '1',
};

export type NvshmemLibrary = ReturnType<typeof open>;

let opened: NvshmemLibrary | undefined;

/**
 * The library; opens it at the first call.
 * @throws UnavailableError where there is none, or one of a version that is not known.
 */
export function nvshmem(): NvshmemLibrary {
  opened ??= open();
  return opened;
}

function open() {
  for (const [name, value] of Object.entries(environment))
    setEnvironment(name, value, name === 'NVSHMEM_DISABLE_NVLS');
  const library = openLibrary(nvshmemCandidates, nvshmemRemedy);
  const version = versionOf(library);
  requireKnownVersion(version);
  return { path: library.path, version, calls: callsOf(library) };
}

function versionOf(library: Library): Version {
  const out = createOut(64);
  library
    .functions({ nvshmemx_vendor_get_version_info: ['void', 'address', 'address', 'address'] })
    .nvshmemx_vendor_get_version_info(out.address, out.address + 4, out.address + 8);
  return [out.i32[0]!, out.i32[1]!, out.i32[2]!];
}

const callsOf = (library: Library) =>
  library.functions({
    nvshmemx_get_uniqueid: ['i32', 'buffer'],
    nvshmemx_hostlib_init_attr: ['i32', 'u32', 'buffer'],
    nvshmemx_init_status: ['i32'],
    nvshmemx_hostlib_finalize: ['void'],
    nvshmem_malloc: ['address', 'u64'],
    nvshmem_free: ['void', 'address'],
    nvshmemx_cumodule_init: ['i32', 'address'],
    nvshmemx_cumodule_finalize: ['i32', 'address'],
    // Team, to, from, bytes, stream.
    nvshmemx_alltoallmem_on_stream: ['i32', 'i32', 'address', 'address', 'u64', 'address'],
  });
