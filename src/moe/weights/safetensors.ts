/**
 * Files of the format safetensors: eight bytes that say how long the header is, the header in JSON, and behind it the bytes of
 * tensors. A file comes from somebody else, so every number of it is checked before it is used.
 *
 * Files are read by position, never mapped: where a mapped file is cut, by a download that begins anew for one, the system kills the
 * process that touches what is gone. A read of it is an error.
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { FileError, show, WeightsError } from '../../base/errors.js';

/** A tensor as a file has it. */
export interface StoredTensor {
  readonly name: string;
  /** Its type as the format writes it: 'F8_E4M3', 'BF16', 'F32' … A newer writer may have types that are not known here. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Where its first byte lies, from the beginning of the file. */
  readonly at: number;
  readonly bytes: number;
}

/** The most bytes that the format allows a header. */
const mostHeaderBytes = 100_000_000;

/** Bits of an element. */
const bits: ReadonlyMap<string, number> = new Map([
  ...(['F4'] as const).map((name) => [name, 4] as const),
  ...(['F6_E2M3', 'F6_E3M2'] as const).map((name) => [name, 6] as const),
  ...(['BOOL', 'U8', 'I8', 'F8_E4M3', 'F8_E5M2', 'F8_E8M0'] as const).map((name) => [name, 8] as const),
  ...(['U16', 'I16', 'F16', 'BF16'] as const).map((name) => [name, 16] as const),
  ...(['U32', 'I32', 'F32'] as const).map((name) => [name, 32] as const),
  ...(['U64', 'I64', 'F64', 'C64'] as const).map((name) => [name, 64] as const),
]);

const again = 'download the file again';

/** A file that is open, and its tensors by name. */
export class TensorFile {
  readonly #handle: FileHandle;

  private constructor(
    readonly path: string,
    readonly tensors: ReadonlyMap<string, StoredTensor>,
    handle: FileHandle,
  ) {
    this.#handle = handle;
  }

  /** Reads and checks the header. */
  static async open(path: string): Promise<TensorFile> {
    const { handle, bytes } = await openRegular(path);
    try {
      if (bytes < 8)
        throw new WeightsError(path, null, `it has ${bytes} bytes: it is no safetensors file`, again);
      const length = Buffer.alloc(8);
      await readInto(handle, path, 0, length);
      const header = length.readBigUInt64LE();
      if (header > mostHeaderBytes)
        throw new WeightsError(
          path,
          null,
          `its first 8 bytes say that its header has ${header} bytes, and a safetensors file has at most ${mostHeaderBytes}`,
          'look at it: where large files are stored apart, a short text may lie in its place; download the file itself',
        );
      const behind = bytes - 8 - Number(header);
      if (behind < 0) {
        const wrong = `its header has ${header} bytes, and the file ${bytes} in all: it was cut`;
        throw new WeightsError(path, null, wrong, again);
      }
      const text = Buffer.alloc(Number(header));
      await readInto(handle, path, 8, text);
      return new TensorFile(path, parseHeader(path, text, behind), handle);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** Fills `into` with the tensor's bytes from `from` on. */
  read(tensor: StoredTensor, from: number, into: Uint8Array): Promise<void> {
    return readInto(this.#handle, this.path, tensor.at + from, into);
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

/**
 * The tensors that a header names. `behind`: how many bytes the file has behind the header. The format wants the tensors to fill them
 * without gaps, so a file that was cut short is noticed here.
 */
export function parseHeader(
  path: string,
  header: Uint8Array,
  behind: number,
): ReadonlyMap<string, StoredTensor> {
  const tensors = Object.entries(parseObject(path, 'its header', header))
    .filter(([name]) => name !== '__metadata__')
    .map(([name, entry]) => storedTensor(path, name, entry, 8 + header.length));
  const inOrder = tensors.toSorted((a, b) => a.at - b.at || a.bytes - b.bytes);
  let end = 8 + header.length;
  for (const { name, at, bytes } of inOrder) {
    if (at !== end) {
      const wrong =
        at < end ? 'begins inside another tensor' : `begins ${at - end} bytes behind the one before`;
      throw new WeightsError(path, name, `it ${wrong}`, again);
    }
    end += bytes;
  }
  const has = 8 + header.length + behind;
  if (end !== has)
    throw new WeightsError(path, null, `its tensors end at byte ${end}, and the file has ${has}`, again);
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

function storedTensor(path: string, name: string, entry: unknown, start: number): StoredTensor {
  const refuse = (wrong: string) => new WeightsError(path, name, wrong, again);
  if (!isObject(entry)) throw refuse('its entry in the header is no object');
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string') throw refuse('its dtype is no text');
  if (!isCounts(shape)) throw refuse('its shape is no list of lengths');
  if (!isCounts(offsets) || offsets.length !== 2)
    throw refuse('its data_offsets are no two numbers of bytes');
  const [from, to] = offsets as [number, number];
  if (from > to) throw refuse(`its data_offsets, ${from} and ${to}, end before they begin`);
  const size = bits.get(dtype);
  // Of a type that is not known here only the place is checked: nothing takes such a tensor.
  const bytes = size === undefined ? to - from : shape.reduce((n, length) => n * length, size) / 8;
  if (bytes !== to - from)
    throw refuse(`its data_offsets hold ${to - from} bytes, and ${shown({ dtype, shape })} has ${bytes}`);
  return { name, dtype, shape, at: start + from, bytes };
}

/** What a tensor is, for a message: both come from the file, where a type may be any text, and lengths very many. */
export function shown({ dtype, shape }: Pick<StoredTensor, 'dtype' | 'shape'>): string {
  const most = 8;
  const type = /^\w{1,20}$/.test(dtype) ? dtype : show(dtype);
  return `${type} [${shape.slice(0, most).join(', ')}${shape.length > most ? ', …' : ''}]`;
}

/** The object that bytes are in JSON. `what` begins the error: 'its header'. */
export function parseObject(
  path: string,
  what: string,
  bytes: Uint8Array,
): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch (error) {
    throw new WeightsError(path, null, `${what} is no JSON`, again, { cause: error });
  }
  if (!isObject(value)) throw new WeightsError(path, null, `${what} is JSON, but no object`, again);
  return value;
}

/** Whether a value of JSON is an object: its members are then all its own. */
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isCounts = (value: unknown): value is readonly number[] =>
  Array.isArray(value) && value.every((count) => Number.isSafeInteger(count) && count >= 0);

/** A pipe, whose writer may never come, is not waited for. */
export async function openRegular(
  path: string,
): Promise<{ readonly handle: FileHandle; readonly bytes: number }> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const stats = await handle.stat();
    if (!stats.isFile()) throw new Error('it is no regular file');
    return { handle, bytes: stats.size };
  } catch (error) {
    await handle?.close();
    throw new FileError(path, 'read', error);
  }
}

/** Fills `into` from a place of a file on. */
export async function readInto(
  handle: FileHandle,
  path: string,
  at: number,
  into: Uint8Array,
): Promise<void> {
  let done = 0;
  while (done < into.length) {
    let bytesRead: number;
    try {
      ({ bytesRead } = await handle.read(into, done, into.length - done, at + done));
    } catch (error) {
      throw new FileError(path, 'read', error);
    }
    if (bytesRead === 0)
      throw new WeightsError(path, null, `it ends at byte ${at + done}: it was cut while it was read`, again);
    done += bytesRead;
  }
}
