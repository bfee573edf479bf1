/** NCCL, for the benchmark's baselines: what the same exchange costs with the library that everybody has. */
import { DisposedError } from '../../base/errors.js';
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
  ncclCommAbort: ['i32', 'address'],
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

/** One rank's end of an NCCL communicator. Its calls are enqueued on streams, and can be captured in graphs. */
export class NcclCommunicator {
  readonly rank: number;
  readonly ranks: number;
  readonly #device: CudaDevice;
  #handle: Address | null;

  private constructor(device: CudaDevice, rank: number, ranks: number, handle: Address) {
    this.#device = device;
    this.rank = rank;
    this.ranks = ranks;
    this.#handle = handle;
  }

  /** One communicator among the devices of this process; rank = place in the list. */
  static local(devices: readonly CudaDevice[]): readonly NcclCommunicator[] {
    const id = ncclUniqueId();
    const { ncclCommInitRank } = nccl();
    // A communicator is written when the group ends, so each needs a place of its own until then.
    const handles = createOut(8 * Math.max(devices.length, 8));
    ncclGroup(() => {
      devices.forEach((device, rank) => {
        device.makeCurrent();
        const made = ncclCommInitRank(handles.address + 8 * rank, devices.length, { bytes: id }, rank);
        check(made, 'ncclCommInitRank', `rank ${rank} of ${devices.length} on ${device.description}`);
      });
    });
    return devices.map(
      (device, rank) => new NcclCommunicator(device, rank, devices.length, handles.number(rank)),
    );
  }

  /**
   * This process's rank of a communicator among `ranks` processes. Blocks the thread until all have called it: let
   * them meet (exchange `id`) just before.
   */
  static join(device: CudaDevice, id: Uint8Array, rank: number, ranks: number): NcclCommunicator {
    const { out, ncclCommInitRank } = nccl();
    device.makeCurrent();
    try {
      const made = ncclCommInitRank(out.address, ranks, { bytes: id }, rank);
      check(made, 'ncclCommInitRank', `rank ${rank} of ${ranks} on ${device.description}`);
      return new NcclCommunicator(device, rank, ranks, out.number());
    } finally {
      forgetCurrentContext();
    }
  }

  send(from: number, bytes: number, peer: number, stream: CudaStream): void {
    const doing = `to rank ${peer}`;
    this.#enqueue('ncclSend', (call, handle) => call(from, bytes, uint8, peer, handle, stream.handle), doing);
  }

  recv(to: number, bytes: number, peer: number, stream: CudaStream): void {
    const doing = `from rank ${peer}`;
    this.#enqueue('ncclRecv', (call, handle) => call(to, bytes, uint8, peer, handle, stream.handle), doing);
  }

  /** Every rank's `bytes` bytes at `from` end up one after another at every rank's `to`. */
  allGather(from: number, to: number, bytes: number, stream: CudaStream): void {
    this.#enqueue('ncclAllGather', (call, handle) => call(from, to, bytes, uint8, handle, stream.handle));
  }

  /** Rank r receives at `to` the sum over all ranks of the r-th part, `count` values, of their `from`. */
  reduceScatter(from: number, to: number, count: number, type: NcclType, stream: CudaStream): void {
    this.#enqueue('ncclReduceScatter', (call, handle) =>
      call(from, to, count, types[type], sum, handle, stream.handle),
    );
  }

  /** Frees it; its streams must be done. For a communicator whose other ranks are gone, use `abort`. */
  destroy(): void {
    this.#end('ncclCommDestroy');
  }

  /** Frees it without the other ranks; enqueued operations fail. */
  abort(): void {
    this.#end('ncclCommAbort');
  }

  #enqueue<Name extends 'ncclSend' | 'ncclRecv' | 'ncclAllGather' | 'ncclReduceScatter'>(
    name: Name,
    enqueue: (call: ReturnType<typeof load>[Name], handle: Address) => number,
    doing = '',
  ): void {
    if (this.#handle === null) throw new DisposedError('this NCCL communicator');
    this.#device.makeCurrent();
    check(enqueue(nccl()[name], this.#handle), name, doing);
    forgetCurrentContext();
  }

  #end(call: 'ncclCommDestroy' | 'ncclCommAbort'): void {
    const handle = this.#handle;
    if (handle === null) return;
    this.#handle = null;
    this.#device.makeCurrent();
    try {
      check(nccl()[call](handle), call);
    } finally {
      forgetCurrentContext();
    }
  }
}
