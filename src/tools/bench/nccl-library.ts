/** NCCL, for the benchmark's baselines: what the same exchange costs with the library that everybody has. */
import {
  type Address,
  byValue,
  openLibrary,
  readString,
  type Signatures,
  setEnvironment,
} from '../../base/native/index.js';
import {
  type CudaDevice,
  CudaError,
  type CudaStream,
  createOut,
  forgetCurrentContext,
} from '../../gpu/cuda/index.js';

export const ncclCandidates = ['libnccl.so.2'] as const;
const ncclUniqueIdBytes = 128;

/** The types that NCCL adds up in a reduce-scatter, by its own numbers for the types. */
const types = { f16: 6, f32: 7, bf16: 9 } as const;
type NcclType = keyof typeof types;
const uint8 = 1;
const sum = 0;

/** As nccl.h declares them. */
const calls = {
  ncclGetVersion: ['i32', 'address'],
  ncclGetUniqueId: ['i32', 'address'],
  ncclCommInitRank: ['i32', 'address', 'i32', byValue(ncclUniqueIdBytes), 'i32'],
  ncclCommDestroy: ['i32', 'address'],
  ncclGroupStart: ['i32'],
  ncclGroupEnd: ['i32'],
  // Buffer, count, type, peer, communicator, stream.
  ncclSend: ['i32', 'address', 'u64', 'i32', 'i32', 'address', 'address'],
  ncclRecv: ['i32', 'address', 'u64', 'i32', 'i32', 'address', 'address'],
  // From, to, count, type, communicator, stream; the second takes an operation behind the type.
  ncclAllGather: ['i32', 'address', 'address', 'u64', 'i32', 'address', 'address'],
  ncclReduceScatter: ['i32', 'address', 'address', 'u64', 'i32', 'i32', 'address', 'address'],
  ncclGetErrorString: ['address', 'i32'],
  ncclGetLastError: ['address', 'address'],
} as const satisfies Signatures;

let loaded: ReturnType<typeof load> | undefined;

function nccl(): ReturnType<typeof load> {
  loaded ??= load();
  return loaded;
}

function load() {
  // NVLink multicast (NVLS) can take a machine's GPUs out of service when a program that uses it is killed; the
  // comparison is with NCCL's ordinary NVLink paths.
  setEnvironment('NCCL_NVLS_ENABLE', '0', true);
  const library = openLibrary(
    ncclCandidates,
    'Install NCCL: pip install nvidia-nccl-cu13, and put its lib folder on LD_LIBRARY_PATH',
  );
  return { out: createOut(256), ...library.functions(calls) };
}

function check(result: number, call: string, doing = ''): void {
  if (result === 0) return;
  const { ncclGetErrorString, ncclGetLastError } = nccl();
  const name = readString(ncclGetErrorString(result)) ?? `ncclResult ${result}`;
  const last = readString(ncclGetLastError(0)) ?? '';
  throw new CudaError(call, result, name, [doing, last].filter(Boolean).join('; '));
}

/** NCCL's version as a number: 22807 for 2.28.7. */
export function ncclVersionNumber(): number {
  const { out, ncclGetVersion } = nccl();
  check(ncclGetVersion(out.address), 'ncclGetVersion');
  return out.i32[0]!;
}

/** 22807 → '2.28.7'. */
export function ncclVersion(number: number): string {
  return `${Math.floor(number / 10_000)}.${Math.floor((number % 10_000) / 100)}.${number % 100}`;
}

/** Made by one rank, given to all: what brings the ranks of one communicator together. */
export function ncclUniqueId(): Uint8Array {
  const { out, ncclGetUniqueId } = nccl();
  check(ncclGetUniqueId(out.address), 'ncclGetUniqueId');
  return out.bytes.slice(0, ncclUniqueIdBytes);
}

/**
 * Enqueues the calls made by `body` as one operation. Sends and receives that depend on each other, and calls for
 * several devices of one process, belong into one group.
 */
export function ncclGroup(body: () => void): void {
  const { ncclGroupStart, ncclGroupEnd } = nccl();
  check(ncclGroupStart(), 'ncclGroupStart');
  let ended = 0;
  try {
    body();
  } finally {
    ended = ncclGroupEnd();
    forgetCurrentContext();
  }
  check(ended, 'ncclGroupEnd');
}

export type NcclCommunicator = ReturnType<typeof communicator>;

/** One rank's end of an NCCL communicator. Its calls are enqueued on streams, and can be captured in graphs. */
function communicator(device: CudaDevice, rank: number, handle: Address) {
  const on = (name: keyof typeof calls, call: () => number, doing = ''): void => {
    device.makeCurrent();
    try {
      check(call(), name, doing);
    } finally {
      forgetCurrentContext();
    }
  };
  const { ncclSend, ncclRecv, ncclAllGather, ncclReduceScatter, ncclCommDestroy } = nccl();
  return {
    rank,
    send: (from: number, bytes: number, peer: number, { handle: stream }: CudaStream) =>
      on('ncclSend', () => ncclSend(from, bytes, uint8, peer, handle, stream), `to rank ${peer}`),
    recv: (to: number, bytes: number, peer: number, { handle: stream }: CudaStream) =>
      on('ncclRecv', () => ncclRecv(to, bytes, uint8, peer, handle, stream), `from rank ${peer}`),
    /** Every rank's `bytes` bytes at `from` end up one after another at every rank's `to`. */
    allGather: (from: number, to: number, bytes: number, { handle: stream }: CudaStream) =>
      on('ncclAllGather', () => ncclAllGather(from, to, bytes, uint8, handle, stream)),
    /** Rank r receives at `to` the sum over all ranks of the r-th part, `count` values, of their `from`. */
    reduceScatter: (
      from: number,
      to: number,
      count: number,
      type: NcclType,
      { handle: stream }: CudaStream,
    ) => on('ncclReduceScatter', () => ncclReduceScatter(from, to, count, types[type], sum, handle, stream)),
    /** Frees it; its streams must be done. */
    destroy: () => on('ncclCommDestroy', () => ncclCommDestroy(handle)),
  };
}

interface NcclRank {
  readonly device: CudaDevice;
  readonly rank: number;
}

/**
 * The communicators of this process's ranks, among `ranks` in all, which `id` brings together. Blocks the thread until all processes
 * have called it: let them meet just before.
 */
export function ncclAmong(
  here: readonly NcclRank[],
  id: Uint8Array = ncclUniqueId(),
  ranks = here.length,
): readonly NcclCommunicator[] {
  const { ncclCommInitRank } = nccl();
  // A communicator is written when the group ends, so each needs a place of its own until then.
  const handles = createOut(8 * Math.max(here.length, 8));
  ncclGroup(() => {
    for (const [i, { device, rank }] of here.entries()) {
      device.makeCurrent();
      const made = ncclCommInitRank(handles.address + 8 * i, ranks, { bytes: id }, rank);
      check(made, 'ncclCommInitRank', `rank ${rank} of ${ranks} on ${device.description}`);
    }
  });
  return here.map(({ device, rank }, i) => communicator(device, rank, handles.number(i)));
}
