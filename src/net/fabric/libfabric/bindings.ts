import { UnavailableError } from '../../../base/errors.js';
import {
  type Address,
  functionAt,
  type Library,
  type NativeFunction,
  openLibrary,
  probe,
  readAddress,
  readString,
  type Signature,
  setEnvironment,
  view,
} from '../../../base/native/index.js';
import { FabricError } from './errors.js';
import { listNics } from './nics.js';
import { fitQueues } from './queues.js';

/**
 * libfabric as it is declared in its headers, for 64-bit Linux: the few exported functions, the offsets of the
 * fields that Heddle reads or writes, and how to reach the rest, which its headers define as inline functions
 * over tables of function pointers. libfabric only ever appends to its structures, so offsets hold for newer ones.
 */

export const remedy =
  'Install libfabric 1.9 or newer (Debian and Ubuntu: apt-get install libfabric1; Fedora: dnf install libfabric)';

/** Offsets of structure fields, in bytes. */
export const info = {
  next: 0,
  caps: 8,
  mode: 16,
  tx: 72,
  ep: 88,
  domain: 96,
  fabric: 104,
  bytes: 120,
} as const;
export const txAttr = { opFlags: 16, bytes: 80 } as const;
export const epAttr = { type: 0, maxMsgSize: 16, bytes: 96 } as const;
export const domainAttr = {
  name: 8,
  threading: 16,
  controlProgress: 20,
  dataProgress: 24,
  resourceMgmt: 28,
  mrMode: 36,
  cqDataSize: 48,
  bytes: 192,
} as const;
export const fabricAttr = { provName: 16, bytes: 32 } as const;

const post = ['address', 'address', 'u64'] as const;
/** Parent, attributes, out, context. */
const open = ['i32', 'address', 'address', 'buffer', 'address'] as const;

/** The inline functions: where an object keeps the pointer to a table, where the table keeps the function, and the function's types. */
const methods = {
  fi_close: [16, 8, ['i32', 'address']],
  fi_ep_bind: [16, 16, ['i32', ...post]],
  fi_control: [16, 24, ['i32', 'address', 'i32', 'address']],
  fi_domain: [24, 8, open],
  fi_av_open: [24, 8, open],
  fi_cq_open: [24, 16, open],
  fi_endpoint: [24, 24, open],
  fi_mr_reg: [32, 8, ['i32', 'address', 'address', 'u64', 'u64', 'u64', 'u64', 'u64', 'buffer', 'address']],
  fi_mr_regattr: [32, 24, ['i32', 'address', 'buffer', 'u64', 'buffer']],
  fi_av_insert: [24, 8, ['i32', 'address', 'buffer', 'u64', 'buffer', 'u64', 'address']],
  fi_av_remove: [24, 32, ['i32', 'address', 'buffer', 'u64', 'u64']],
  fi_cq_read: [24, 8, ['i64', ...post]],
  fi_cq_readerr: [24, 24, ['i64', ...post]],
  fi_setname: [32, 8, ['i32', 'address', 'buffer', 'u64']],
  fi_getname: [32, 16, ['i32', 'address', 'buffer', 'buffer']],
  fi_writemsg: [48, 48, ['i64', ...post]],
} as const satisfies Readonly<Record<string, readonly [table: number, slot: number, Signature]>>;
type Methods = typeof methods;

export const mr = { desc: 24, key: 32 } as const;

/** Flags and constants. All flags used on the hot path lie below 2^31. */
export const FI = {
  MSG: 1n << 1n,
  RMA: 1n << 2n,
  HMEM: 1n << 47n,
  READ: 1 << 8,
  WRITE: 1 << 9,
  RECV: 1 << 10,
  SEND: 1 << 11,
  REMOTE_WRITE: 1 << 13,
  REMOTE_CQ_DATA: 1 << 17,
  COMPLETION: 1 << 24,
  DELIVERY_COMPLETE: 1 << 28,
  MR_LOCAL: 1 << 2,
  MR_VIRT_ADDR: 1 << 4,
  MR_ALLOCATED: 1 << 5,
  MR_PROV_KEY: 1 << 6,
  MR_HMEM: 1 << 10,
  MR_DMABUF: 1n << 40n,
  HMEM_CUDA: 1,
  EP_RDM: 3,
  THREAD_DOMAIN: 3,
  PROGRESS_MANUAL: 2,
  RM_ENABLED: 2,
  CQ_FORMAT_DATA: 3,
  ENABLE: 6,
  TRANSMIT: 1 << 11,
} as const;

/** A 64-bit number as two halves: hot code writes them without ever making a BigInt. */
export interface U64 {
  readonly low: number;
  readonly high: number;
}

/** The most bytes of what a provider calls an endpoint's address. */
export const maxAddressBytes = 512;

/** Error numbers that the engine tells apart. */
export const errno = {
  AGAIN: 11,
  NODATA: 61,
  NETDOWN: 100,
  TIMEDOUT: 110,
  HOSTDOWN: 112,
  CANCELED: 125,
} as const;

const declareCalls = (library: Library) =>
  library.functions({
    // Version, node, service, flags, hints, out.
    fi_getinfo: ['i32', 'u32', 'address', 'address', 'u64', 'address', 'buffer'],
    fi_dupinfo: ['address', 'address'],
    fi_freeinfo: ['void', 'address'],
    // Attributes, out, context.
    fi_fabric: ['i32', 'address', 'buffer', 'address'],
    fi_strerror: ['address', 'i32'],
  });

interface Libfabric extends ReturnType<typeof declareCalls> {
  readonly path: string;
  /** The version of the library, as `major.minor`. */
  readonly version: string;
  /** The interface version asked of it: its own, or the newest that this binding knows. */
  readonly negotiated: number;
}

const major = 1;
/** 1.20 brought dmabuf registration, the newest thing that Heddle asks for. */
const newestMinor = 20;
const oldestMinor = 9;

let opened: Libfabric | undefined;

/** libfabric, opened once. Every process probes it in a child first: providers run code as it loads. */
export function libfabric(trusted = false): Libfabric {
  if (opened) return opened;
  // libinfinipath, which comes with Debian's libfabric, otherwise takes the process's signals for itself: a SIGTERM
  // then becomes exit code 1, or a process that hangs as it ends.
  setEnvironment('IPATH_NO_BACKTRACE', '1', false);
  // rxm keeps buffers for messages beside those of writes, and the engine's messages are short.
  setEnvironment('FI_OFI_RXM_BUFFER_SIZE', '8192', false);
  // verbs keeps memory in a cache, open to peers' writes, after it was withdrawn. EFA may not open without one, so it stays where soft-RoCE is not.
  if (listNics().some(({ detail }) => detail.startsWith('soft-RoCE')))
    setEnvironment('FI_MR_CACHE_MAX_COUNT', '0', false);
  fitQueues();
  const candidates = [process.env.HEDDLE_LIBFABRIC ?? 'libfabric.so.1'];
  if (!trusted) {
    const answer = probe(candidates, { symbol: 'fi_version', how: 'returns' });
    if (!answer.ok) throw new UnavailableError(`libfabric cannot be used (${answer.reason})`, remedy);
  }
  const library = openLibrary(candidates, remedy);
  const version = library.functions({ fi_version: ['u32'] }).fi_version();
  const [has, minor] = [version >>> 16, version & 0xffff];
  // 2.x keeps the 1.x interface for callers that ask for it.
  if (has < major || (has === major && minor < oldestMinor)) {
    throw new UnavailableError(`libfabric ${has}.${minor} at ${library.path} is too old`, remedy);
  }
  const asked = has > major ? newestMinor : Math.min(minor, newestMinor);
  opened = {
    path: library.path,
    version: `${has}.${minor}`,
    negotiated: (major << 16) | asked,
    ...declareCalls(library),
  };
  return opened;
}

/** Whether the interface that was agreed on has dmabuf registration; an older one would misread the request. */
export function knowsDmabuf(): boolean {
  return (libfabric().negotiated & 0xffff) >= 20;
}

/** libfabric's words for an error number. */
export function strerror(code: number): string {
  const words = opened && readString(opened.fi_strerror(Math.abs(code)));
  return words ?? `error ${code}`;
}

/** Throws when a libfabric call returned a negative error number. */
export function check(call: string, status: number): void {
  if (status < 0) throw new FabricError(call, -status, strerror(status));
}

const resolved = new Map<string, unknown>();

/**
 * The functions behind libfabric's inline ones. The objects of a provider share their functions, so they share the callable, too: a scatter
 * over many endpoints then calls one function from one place, which the compiler makes a direct call.
 */
export function method<Name extends keyof Methods>(
  object: Address,
  name: Name,
): NativeFunction<Methods[Name][2]> {
  const [table, slot, signature] = methods[name];
  const at = readAddress(readAddress(object + table) + slot);
  const key = `${name} ${at}`;
  if (!resolved.has(key)) resolved.set(key, functionAt(at, signature));
  return resolved.get(key) as NativeFunction<Methods[Name][2]>;
}

export function closeObject(object: Address): number {
  return method(object, 'fi_close')(object);
}

/** A structure in C memory, for set-up code. */
export function struct(address: Address, bytes: number): DataView {
  return new DataView(view(address, bytes));
}

export function readU64(fields: DataView, offset: number): number {
  return Number(fields.getBigUint64(offset, true));
}
