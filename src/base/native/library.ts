import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import koffi, { type LibraryHandle } from 'koffi';
import { messageOf, UnavailableError, valueOr } from '../errors.js';
import {
  type Address,
  koffiType,
  type NativeFunction,
  type NativeFunctions,
  type Signature,
  type Signatures,
} from './types.js';

/** A shared library that is open for the life of the process. */
export interface Library {
  /** The candidate name under which it was found. */
  readonly name: string;
  /** The file that was mapped, if the system tells; otherwise `name`. */
  readonly path: string;
  /** Declares exported functions by name. Their TypeScript types follow from their C types. */
  functions<const T extends Signatures>(signatures: T): NativeFunctions<T>;
  /** Binds functions that not every version of the library exports: null where it does not. */
  optional<const T extends Signatures>(
    signatures: T,
  ): { readonly [Name in keyof T]: NativeFunction<T[Name]> | null };
  /** The address of an exported symbol. */
  addressOf(symbol: string): Address;
}

/**
 * Opens the first of `candidates` that loads. `null` stands for the process itself (the C library).
 * @throws UnavailableError naming every candidate and why each did not load, then `remedy`.
 */
export function openLibrary(candidates: readonly string[] | null, remedy: string): Library {
  if (candidates === null) return wrap('the C library', koffi.load(null));
  const reasons: string[] = [];
  for (const name of candidates) {
    try {
      return openOne(name);
    } catch (error) {
      reasons.push(`${name}: ${messageOf(error)}`);
    }
  }
  throw new UnavailableError(`No library could be opened (${reasons.join('; ')})`, remedy);
}

/** @throws an error that says why it does not load. */
export function openOne(name: string): Library {
  let handle: LibraryHandle;
  try {
    handle = koffi.load(name);
  } catch (error) {
    throw new Error(messageOf(error).replace('Failed to load shared library: ', ''));
  }
  keepMapped(name);
  return wrap(name, handle);
}

const [RTLD_LAZY, RTLD_NODELETE] = [0x1, 0x1000] as const;

/**
 * koffi closes the libraries of a thread that ends, and the last thread to close a library unmaps it. But the process
 * may still call into it: libfabric leaves signal handlers and allocator hooks behind. So the library stays mapped.
 */
function keepMapped(name: string): void {
  if (process.platform !== 'linux') return;
  koffi.load(null).func('dlopen', 'void *', ['str', 'int'])(name, RTLD_LAZY | RTLD_NODELETE);
}

/** A function of the C library, declared at its first call. */
export function functionOfC<const S extends Signature>(name: string, signature: S): NativeFunction<S> {
  let declared: ((...args: readonly unknown[]) => unknown) | undefined;
  return ((...args: readonly unknown[]) => {
    declared ??= openLibrary(null, '').functions({ [name]: signature })[name] as never;
    return declared(...args);
  }) as NativeFunction<S>;
}

/** Makes a callable of a function pointer, such as an entry of a C function table. */
export function functionAt<const S extends Signature>(
  address: Address,
  [result, ...parameters]: S,
): NativeFunction<S> {
  const prototype = koffi.proto(koffiType(result), parameters.map(koffiType));
  return koffi.decode(address, prototype) as NativeFunction<S>;
}

/** The C library's `errno` as the last foreign call of this thread left it. */
export function errno(): number {
  return koffi.errno();
}

// koffi unloads a library when its last reference is collected, but it cannot see the function pointers that C
// hands out (functionAt): so what was opened stays open.
const opened: LibraryHandle[] = [];

function wrap(name: string, handle: LibraryHandle): Library {
  opened.push(handle);
  const declared = (name: string, [result, ...parameters]: Signature) =>
    handle.func(name, koffiType(result), parameters.map(koffiType));
  const exports = (name: string): boolean => valueOr(false, () => Boolean(handle.symbol(name)));
  return {
    name,
    path: mappedPath(name),
    functions: (signatures) => mapped(signatures, declared) as never,
    optional: (signatures) =>
      mapped(signatures, (name, signature) => (exports(name) ? declared(name, signature) : null)) as never,
    addressOf: (symbol) => Number(handle.symbol(symbol)),
  };
}

const mapped = (signatures: Signatures, make: (name: string, signature: Signature) => unknown) =>
  Object.fromEntries(Object.entries(signatures).map(([name, given]) => [name, make(name, given)]));

/**
 * Sets a variable where libraries read it, in the C environment: a thread's `process.env` is only a copy. A variable set
 * already stays, unless `overwrite`.
 */
export function setEnvironment(name: string, value: string, overwrite: boolean): void {
  setenv(name, value, overwrite ? 1 : 0);
}

const setenv = functionOfC('setenv', ['i32', 'string', 'string', 'i32']);

/** `libx.so.1` is usually a link to `libx.so.1.2.3`; the kernel's map of this process names the real file. */
function mappedPath(name: string): string {
  const wanted = basename(name).replace(/\.so\b.*/, '.so');
  // Where it is not Linux, the name is all there is.
  for (const line of valueOr('', () => readFileSync('/proc/self/maps', 'utf8')).split('\n')) {
    const path = line.slice(line.indexOf('/'));
    if (line.includes('/') && basename(path).startsWith(wanted)) return path;
  }
  return name;
}
