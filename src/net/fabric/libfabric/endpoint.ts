import { type Address, addressOf, allocate, type NativeMemory } from '../../../base/native/index.js';
import {
  check,
  closeObject,
  FI,
  info,
  libfabric,
  maxAddressBytes,
  method,
  mr,
  readU64,
  struct,
  type U64,
} from './bindings.js';
import { FabricError } from './errors.js';
import type { Chosen, FabricDevice } from './provider.js';
import { ShmNames } from './shm-names.js';

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

export type Post = (endpoint: Address, message: Address, flags: number) => number;
/** An endpoint with an address vector of its own. The functions that the hot path calls are resolved once, here. */
export class Endpoint {
  readonly endpoint: Address;
  readonly writeMessage: Post;
  readonly #vector: Address;

  /** `name` is the address of the endpoint; null lets the provider choose one. */
  constructor(domain: Address, queue: Address, description: Address, name: string | null) {
    // A zeroed fi_av_attr is FI_AV_UNSPEC: the provider picks its kind; the addresses it hands out are opaque here.
    this.#vector = withZeroed(64, (attributes) => open(domain, 'fi_av_open', attributes.address));
    this.endpoint = open(domain, 'fi_endpoint', description);
    const bind = method(this.endpoint, 'fi_ep_bind');
    check('fi_ep_bind of the completion queue', bind(this.endpoint, queue, FI.TRANSMIT | FI.RECV));
    check('fi_ep_bind of the address vector', bind(this.endpoint, this.#vector, 0));
    if (name !== null) setName(this.endpoint, name);
    check('fi_enable', method(this.endpoint, 'fi_control')(this.endpoint, FI.ENABLE, 0));
    this.writeMessage = method(this.endpoint, 'fi_writemsg');
  }

  /** Makes a peer's endpoint known; returns libfabric's handle for it. */
  insert(address: Uint8Array): U64 {
    const out = new Uint32Array(2);
    // The provider reads as far as its kind of address goes, or to a NUL: never beyond these bytes.
    const whole = new Uint8Array(maxAddressBytes + 1);
    whole.set(address);
    const inserted = method(this.#vector, 'fi_av_insert')(this.#vector, whole, 1, out, 0, 0);
    check('fi_av_insert', inserted);
    if (inserted !== 1)
      throw new FabricError('fi_av_insert', 22, 'the provider does not understand the address');
    return { low: out[0]!, high: out[1]! };
  }

  /** Forgets a peer's endpoint; libfabric drops its connection. */
  remove(peer: U64): void {
    method(this.#vector, 'fi_av_remove')(this.#vector, Uint32Array.of(peer.low, peer.high), 1, 0);
  }

  /** After this the provider touches no memory for it any more. */
  close(): void {
    closeObject(this.endpoint);
    closeObject(this.#vector);
  }
}

/** One NIC of an engine: fabric → domain → completion queue → the endpoint that peers write to. */
export class Rail {
  readonly device: FabricDevice;
  /** The endpoint's own address as the provider writes it. */
  readonly address: Uint8Array;
  readonly main: Endpoint;
  readonly queue: Address;
  readonly readQueue: (queue: Address, entries: Address, count: number) => number;
  /** Where `readQueue` puts its entries. */
  readonly entries: NativeMemory;
  readonly #readErrorOf: (queue: Address, entry: Address, flags: number) => number;
  readonly #errorEntry: NativeMemory;
  readonly #fabric: Address;
  readonly #domain: Address;
  readonly #description: Address;
  /** Of its endpoints over shm. */
  readonly #names: ShmNames | null;
  #nextKey = 1;

  /** Takes over `description`. */
  constructor({ device, info: description }: Chosen) {
    this.device = device;
    this.#description = description;
    const root = struct(description, info.bytes);
    this.#fabric = make('fi_fabric', (out) => libfabric().fi_fabric(readU64(root, info.fabric), out, 0));
    this.#domain = open(this.#fabric, 'fi_domain', description);
    this.queue = withZeroed(64, (attributes) => {
      const fields = new DataView(attributes.buffer);
      fields.setBigUint64(0, BigInt(completionQueueEntries), true);
      fields.setUint32(16, FI.CQ_FORMAT_DATA, true);
      return open(this.#domain, 'fi_cq_open', attributes.address);
    });
    this.#names = device.provider === 'shm' ? ShmNames.claim() : null;
    this.main = this.#endpoint();
    this.address = ownAddress(this.main.endpoint);
    this.readQueue = method(this.queue, 'fi_cq_read');
    this.#readErrorOf = method(this.queue, 'fi_cq_readerr');
    this.entries = allocate(completionBatch * completionWords * 4);
    this.#errorEntry = allocate(128);
  }

  /**
   * The endpoint to reach one peer from. For most providers that is the main one. shm (seen in 1.17 and its
   * successors) reports the acknowledgements of an endpoint strictly in order, whoever they come from, so that
   * one silent peer would hold up the completions of all others for ever: there, each peer gets an endpoint.
   */
  endpointForPeer(): Endpoint {
    return this.device.provider === 'shm' ? this.#endpoint() : this.main;
  }

  #endpoint(): Endpoint {
    return new Endpoint(this.#domain, this.queue, this.#description, this.#names?.next() ?? null);
  }

  /** Registers memory for reading by local operations and writing by peers. */
  register(memory: LocalMemory): Registration {
    const { address, bytes, reach } = memory;
    const key = this.#nextKey++;
    const out = new BigUint64Array(1);
    // Some providers carry a write by messages of their own.
    const access = FI.SEND | FI.RECV | FI.READ | FI.WRITE | FI.REMOTE_WRITE;
    if (reach.kind === 'host') {
      const registerHost = method(this.#domain, 'fi_mr_reg');
      check('fi_mr_reg', registerHost(this.#domain, address, bytes, access, 0, key, 0, out, 0));
    } else {
      check('fi_mr_regattr', this.#registerGpu({ ...memory, reach }, { access, key }, out));
    }
    const object = Number(out[0]);
    const fields = struct(object, mr.key + 8);
    return {
      object,
      descriptor: readU64(fields, mr.desc),
      key: { low: fields.getUint32(mr.key, true), high: fields.getUint32(mr.key + 4, true) },
      base: this.device.addressing === 'virtual' ? address : 0,
    };
  }

  deregister(registration: Registration): void {
    closeObject(registration.object);
  }

  /** Takes one failed operation off the queue: its context and its error number. */
  readError(): { context: U64; code: number } | null {
    const entry = new DataView(this.#errorEntry.buffer);
    for (let offset = 0; offset < 80; offset += 8) entry.setBigUint64(offset, 0n);
    if (this.#readErrorOf(this.queue, this.#errorEntry.address, 0) < 1) return null;
    return {
      context: { low: entry.getUint32(0, true), high: entry.getUint32(4, true) },
      code: Math.abs(entry.getInt32(56, true)),
    };
  }

  /** Closes the rest, once its endpoints are closed and nothing is registered any more. */
  close(): void {
    for (const object of [this.queue, this.#domain, this.#fabric]) closeObject(object);
    libfabric().fi_freeinfo(this.#description);
    this.entries.free();
    this.#errorEntry.free();
    this.#names?.release();
  }

  #registerGpu(
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
    const regattr = method(this.#domain, 'fi_mr_regattr');
    return regattr(this.#domain, attributes, reach.kind === 'dmabuf' ? FI.MR_DMABUF : 0n, out);
  }
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
