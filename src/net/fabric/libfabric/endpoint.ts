import { type Address, addressOf, allocate, type NativeMemory } from '../../../base/native/index.js';
import {
  check,
  closeObject,
  errno,
  FI,
  info,
  libfabric,
  maxAddressBytes,
  method,
  mr,
  readU64,
  strerror,
  struct,
  type U64,
} from './bindings.js';
import { FabricError } from './errors.js';
import type { Chosen } from './provider.js';
import { shortage } from './queues.js';
import { claimShmNames, keepingSignals } from './shm-names.js';

/** A registered piece of memory on one rail. */
export interface Registration {
  readonly object: Address;
  /** The descriptor that libfabric wants beside a local address in this memory. */
  readonly descriptor: Address;
  /** The data that a peer needs to write here. */
  readonly key: U64;
  /** The base to which a peer adds its offset: the memory's address, or 0 where the provider counts from the start. */
  readonly base: number;
}

/** How registered memory is reached: as host memory, by the provider's own GPU support, or as a dmabuf. */
export type Reach =
  | { readonly kind: 'host' }
  | { readonly kind: 'cuda'; readonly ordinal: number }
  | { readonly kind: 'dmabuf'; readonly ordinal: number; readonly fd: number; readonly offset: number };

/** A piece of this process's memory, and how it is reached. */
export interface LocalMemory {
  readonly address: Address;
  readonly bytes: number;
  readonly reach: Reach;
}

/** Entries of one fi_cq_read: enough to drain a burst, few enough to stay in the nearest cache. */
export const completionBatch = 64;
/** Words of 32 bits in a struct fi_cq_data_entry. */
export const completionWords = 10;
const completionQueueEntries = 8192;
/** IBV_WC_LOC_QP_OP_ERR: what soft-RoCE says where it has no route, since its link has fallen. A peer that does not answer is another error. */
const localQueueError = 2;

export type Post = (endpoint: Address, message: Address, flags: number) => number;
export type Endpoint = ReturnType<typeof openEndpoint>;

/**
 * An endpoint with an address vector of its own, called `name`; null lets the provider choose an address. The functions that the hot path calls are
 * resolved once, here.
 */
function openEndpoint(
  domain: Address,
  queue: Address,
  { device, info: description }: Chosen,
  name: string | null,
) {
  // A zeroed fi_av_attr is FI_AV_UNSPEC: the provider picks its kind; the addresses it hands out are opaque here.
  const vector = withZeroed(64, (attributes) => open(domain, 'fi_av_open', attributes.address));
  const endpoint = open(domain, 'fi_endpoint', description);
  const bind = method(endpoint, 'fi_ep_bind');
  check('fi_ep_bind of the completion queue', bind(endpoint, queue, FI.TRANSMIT | FI.RECV));
  check('fi_ep_bind of the address vector', bind(endpoint, vector, 0));
  if (name !== null) setName(endpoint, name);
  const enabled = method(endpoint, 'fi_control')(endpoint, FI.ENABLE, 0);
  if (enabled < 0)
    throw new FabricError('fi_enable', -enabled, `${strerror(enabled)}${shortage(device.device)}`);

  /** Makes a peer's endpoint known; returns libfabric's handle for it. */
  function insert(address: Uint8Array): U64 {
    const out = new Uint32Array(2);
    // The provider reads as far as its kind of address goes, or to a NUL: never beyond these bytes.
    const whole = new Uint8Array(maxAddressBytes + 1);
    whole.set(address);
    const inserted = method(vector, 'fi_av_insert')(vector, whole, 1, out, 0, 0);
    check('fi_av_insert', inserted);
    if (inserted !== 1)
      throw new FabricError('fi_av_insert', 22, 'the provider does not understand the address');
    return { low: out[0]!, high: out[1]! };
  }

  function remove(peer: U64): void {
    method(vector, 'fi_av_remove')(vector, Uint32Array.of(peer.low, peer.high), 1, 0);
  }

  /** After this the provider touches no memory for it any more. */
  function close(): void {
    closeObject(endpoint);
    closeObject(vector);
  }

  const writeMessage: Post = method(endpoint, 'fi_writemsg');
  return { endpoint, writeMessage, insert, remove, close };
}

export type Rail = ReturnType<typeof openRail>;

/** One NIC of an engine: fabric → domain → completion queue → the endpoint that peers write to. Takes over `description`. */
export function openRail(chosen: Chosen) {
  const { device, info: description } = chosen;
  const root = struct(description, info.bytes);
  const fabric = make('fi_fabric', (out) => libfabric().fi_fabric(readU64(root, info.fabric), out, 0));
  const domain = open(fabric, 'fi_domain', description);
  const queue = withZeroed(64, (attributes) => {
    const fields = new DataView(attributes.buffer);
    fields.setBigUint64(0, BigInt(completionQueueEntries), true);
    fields.setUint32(16, FI.CQ_FORMAT_DATA, true);
    return open(domain, 'fi_cq_open', attributes.address);
  });
  const names = device.provider === 'shm' ? claimShmNames() : null;
  const openNext = (): Endpoint => openEndpoint(domain, queue, chosen, names?.next() ?? null);
  const endpoint = names === null ? openNext : () => keepingSignals(openNext);
  const main = endpoint();
  const readErrorOf = method(queue, 'fi_cq_readerr');
  /** `readQueue` puts its entries here. */
  const entries = allocate(completionBatch * completionWords * 4);
  const errorEntry = allocate(128);
  const verbs = device.provider === 'verbs;ofi_rxm';
  let nextKey = 1;

  /**
   * The endpoint to reach one peer from. For most providers that is the main one. shm (seen in 1.17 and its
   * successors) reports the acknowledgements of an endpoint strictly in order, whoever they come from, so that
   * one silent peer would hold up the completions of all others for ever: there, each peer gets an endpoint.
   */
  function endpointForPeer(): Endpoint {
    return device.provider === 'shm' ? endpoint() : main;
  }

  function register(memory: LocalMemory): Registration {
    const { address, bytes, reach } = memory;
    const key = nextKey++;
    const out = new BigUint64Array(1);
    // Some providers carry a write by messages of their own.
    const access = FI.SEND | FI.RECV | FI.READ | FI.WRITE | FI.REMOTE_WRITE;
    if (reach.kind === 'host') {
      const registerHost = method(domain, 'fi_mr_reg');
      check('fi_mr_reg', registerHost(domain, address, bytes, access, 0, key, 0, out, 0));
    } else {
      check('fi_mr_regattr', registerGpu({ ...memory, reach }, { access, key }, out));
    }
    const object = Number(out[0]);
    const fields = struct(object, mr.key + 8);
    return {
      object,
      descriptor: readU64(fields, mr.desc),
      key: { low: fields.getUint32(mr.key, true), high: fields.getUint32(mr.key + 4, true) },
      base: device.addressing === 'virtual' ? address : 0,
    };
  }

  /** Takes one failed operation off the queue: its context and its error number, NETDOWN where a verbs device says that it is its own fault. */
  function readError(): { context: U64; code: number } | null {
    const entry = new DataView(errorEntry.buffer);
    for (let offset = 0; offset < 80; offset += 8) entry.setBigUint64(offset, 0n);
    if (readErrorOf(queue, errorEntry.address, 0) < 1) return null;
    return {
      context: { low: entry.getUint32(0, true), high: entry.getUint32(4, true) },
      code:
        verbs && entry.getInt32(60, true) === localQueueError
          ? errno.NETDOWN
          : Math.abs(entry.getInt32(56, true)),
    };
  }

  /** Closes the rest, once its endpoints are closed and nothing is registered any more. */
  function close(): void {
    for (const object of [queue, domain, fabric]) closeObject(object);
    libfabric().fi_freeinfo(description);
    entries.free();
    errorEntry.free();
    names?.release();
  }

  function registerGpu(
    { address, bytes, reach }: LocalMemory & { readonly reach: Exclude<Reach, { kind: 'host' }> },
    { access, key }: { readonly access: number; readonly key: number },
    out: BigUint64Array,
  ): number {
    // struct fi_mr_attr, and behind it what its first field points to.
    const attributes = new DataView(new ArrayBuffer(160));
    const piece = 128;
    if (reach.kind === 'cuda') {
      // struct iovec
      attributes.setBigUint64(piece, BigInt(address), true);
      attributes.setBigUint64(piece + 8, BigInt(bytes), true);
    } else {
      // struct fi_mr_dmabuf { int fd; uint64_t offset; size_t len; void *base_addr; }
      attributes.setInt32(piece, reach.fd, true);
      attributes.setBigUint64(piece + 8, BigInt(reach.offset), true);
      attributes.setBigUint64(piece + 16, BigInt(bytes), true);
      attributes.setBigUint64(piece + 24, BigInt(address - reach.offset), true);
    }
    attributes.setBigUint64(0, BigInt(addressOf(attributes) + piece), true);
    attributes.setBigUint64(8, 1n, true);
    attributes.setBigUint64(16, BigInt(access), true);
    attributes.setBigUint64(32, BigInt(key), true);
    attributes.setUint32(64, FI.HMEM_CUDA, true);
    attributes.setInt32(72, reach.ordinal, true);
    const regattr = method(domain, 'fi_mr_regattr');
    return regattr(domain, attributes, reach.kind === 'dmabuf' ? FI.MR_DMABUF : 0n, out);
  }

  return {
    ...{ device, verbs, main, queue, entries, endpointForPeer, register, readError, close },
    /** The endpoint's own address as the provider writes it. */
    address: ownAddress(main.endpoint),
    readQueue: method(queue, 'fi_cq_read'),
    deregister: ({ object }: Registration) => void closeObject(object),
  };
}

function withZeroed<T>(bytes: number, use: (memory: NativeMemory) => T): T {
  const memory = allocate(bytes);
  try {
    return use(memory);
  } finally {
    memory.free();
  }
}

function make(call: string, create: (out: BigUint64Array) => number): Address {
  const out = new BigUint64Array(1);
  check(call, create(out));
  return Number(out[0]);
}

function open(
  parent: Address,
  name: 'fi_domain' | 'fi_av_open' | 'fi_cq_open' | 'fi_endpoint',
  attributes: Address,
): Address {
  return make(name, (out) => method(parent, name)(parent, attributes, out, 0));
}

function setName(endpoint: Address, name: string): void {
  const text = Buffer.from(`${name}\0`);
  check('fi_setname', method(endpoint, 'fi_setname')(endpoint, text, text.length));
}

function ownAddress(endpoint: Address): Uint8Array {
  const out = new Uint8Array(maxAddressBytes);
  const length = BigUint64Array.of(BigInt(maxAddressBytes));
  check('fi_getname', method(endpoint, 'fi_getname')(endpoint, out, length));
  return out.slice(0, Number(length[0]));
}
