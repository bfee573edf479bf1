import koffi from 'koffi';
import { ArgumentError, DisposedError, requireInteger, UnavailableError } from '../errors.js';
import { functionOfC } from './library.js';
import type { Address } from './types.js';

/** Node.js 20 aborts the process on an external ArrayBuffer of 4 GiB, so views end just below. */
export const maxViewBytes = 2 ** 32 - 1;

/**
 * `bytes` of raw memory at `address` as an ArrayBuffer, without a copy. Nothing keeps that memory alive: a view
 * used after its memory was freed reads or corrupts whatever lives there then. Atomics work on it.
 */
export function view(address: Address, bytes: number): ArrayBuffer {
  requireAddress('address', address);
  requireInteger('bytes', bytes, 0, maxViewBytes);
  return koffi.view(address, bytes);
}

/** The NUL-terminated string at `address`; null for a null pointer. */
export function readString(address: Address): string | null {
  return address === 0 ? null : koffi.decode.string(address);
}

/** The pointer stored at `address`. */
export function readAddress(address: Address): Address {
  return Number(koffi.decode(requireAddress('address', address), 'uintptr_t'));
}

/**
 * Where the memory of a typed array or buffer lies. It stays there as long as the buffer is reachable: the
 * caller must keep a reference for as long as C uses the address.
 */
export function addressOf(buffer: ArrayBufferView | ArrayBufferLike): Address {
  const bytes = ArrayBuffer.isView(buffer) ? buffer : new Uint8Array(buffer);
  return Number(koffi.address(bytes));
}

/** Page-aligned, zeroed memory outside the JavaScript heap. */
export interface NativeMemory {
  readonly address: Address;
  readonly bytes: number;
  /** A zero-copy view of all of it. Refuses after `free()`. */
  readonly buffer: ArrayBuffer;
  /** Gives the memory back; harmless when repeated. Views made earlier must not be used after it. */
  free(): void;
  /** Gives it back when nobody can reach `buffer` or a typed array on it any more: safe with views in others' hands. */
  release(): void;
}

const aligned_alloc = functionOfC('aligned_alloc', ['address', 'u64', 'u64']);
const memset = functionOfC('memset', ['address', 'address', 'i32', 'u64']);
const free = functionOfC('free', ['void', 'address']);

const unreachable = new FinalizationRegistry<Address>(free);

/** Allocates zeroed memory that no garbage collector moves or frees; `free()` it. */
export function allocate(bytes: number, alignment = 4096): NativeMemory {
  requireInteger('bytes', bytes, 1, maxViewBytes);
  requireInteger('alignment', alignment, 16, 2 ** 30);
  // aligned_alloc wants a multiple of the alignment.
  const rounded = Math.ceil(bytes / alignment) * alignment;
  const address = aligned_alloc(alignment, rounded);
  if (address === 0) {
    throw new UnavailableError(
      `${bytes} bytes of memory could not be allocated`,
      'Free memory or ask for less',
    );
  }
  memset(address, 0, rounded);
  let buffer: ArrayBuffer | null = view(address, bytes);
  return {
    address,
    bytes,
    get buffer() {
      if (buffer === null) throw new DisposedError('this native memory');
      return buffer;
    },
    free() {
      if (buffer === null) return;
      buffer = null;
      free(address);
    },
    release() {
      if (buffer === null) return;
      unreachable.register(buffer, address);
      buffer = null;
    },
  };
}

const mmap = functionOfC('mmap', ['address', 'address', 'u64', 'i32', 'i32', 'i32', 'i64']);

/** The first `bytes` of an open file, which all processes that map it share. It stays mapped as long as this process lives. */
export function mapFile(file: number, bytes: number): Pick<NativeMemory, 'address' | 'buffer'> {
  requireInteger('bytes', bytes, 1, maxViewBytes);
  const [readAndWrite, shared] = [3, 1];
  const address = mmap(0, bytes, readAndWrite, shared, file, 0);
  // Of a failure all bits are set.
  if (Number(address) > 2 ** 63)
    throw new UnavailableError(`${bytes} bytes of a file could not be mapped`, 'Bring one that is as long');
  return { address, buffer: view(address, bytes) };
}

function requireAddress(argument: string, address: unknown): Address {
  if (typeof address !== 'number' || !Number.isSafeInteger(address) || address <= 0) {
    throw new ArgumentError(argument, address, 'a non-null address as a plain number');
  }
  return address;
}
