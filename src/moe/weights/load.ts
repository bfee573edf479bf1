/**
 * Tensors from files into memory of a GPU: the file is read in chunks, one while the one before is on its way to the GPU. What a GPU has to
 * widen comes there as it is stored.
 */
import type { Device, Stream } from '../../gpu/index.js';
import { bitsOf, type Dtype, fromUe8m0, toF32 } from '../layer/index.js';
import { bytesOf, emptyTensor, type OwnedTensor, type Tensor } from '../rounds/tensor.js';
import type { Located } from './folder.js';
import { widenMxfp4 } from './mxfp4.js';

/** Bytes of a stored tensor, from one of them on. */
export interface Part extends Located {
  readonly from: number;
  readonly bytes: number;
}

export const whole = (located: Located): Part => ({ ...located, from: 0, bytes: located.tensor.bytes });

/** A tensor to be made of stored ones: each, in this order, behind the one before. */
interface WantedParts {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Stored parts of the tensor's own type; for f32 also of BF16 and F8_E8M0. */
  readonly parts: readonly Part[];
  /** Puts the bytes of each part in another order. Default: they stay as they are. */
  readonly order?: (part: Uint8Array) => Uint8Array;
}

/** Matrices [matrices, rows, columns] of bf16, to be made of MXFP4. */
interface WantedMxfp4 {
  readonly dtype: 'bf16';
  readonly shape: readonly [matrices: number, rows: number, columns: number];
  readonly blocks: Part;
  readonly scales: Part;
  /** Rows of so many kinds come in turns: those of a kind go out behind each other. */
  readonly turns: 1 | 2;
}

export type Wanted = WantedParts | WantedMxfp4;

/** How far a call has come. */
export interface LoadProgress {
  /** Bytes that have been read and are on their way to the GPU. */
  readonly bytes: number;
  /** Bytes that the call will read in all. */
  readonly of: number;
}

/** The tensors that were loaded, and how to free them. */
export type Loaded<W> = { readonly [K in keyof W]: Tensor } & {
  /** Gives the memory of all of them back. Nothing enqueued may still use it. */
  free(): void;
};

/** Fast disks and networks are at their best with some MiB at once; two of these are all that the host holds. */
const chunkBytes = 32 * 2 ** 20;

/** Bytes of a file, where they go, and what becomes of them before. */
interface Chunk extends Part {
  readonly to: number;
  readonly change: (bytes: Uint8Array) => Uint8Array;
}

/** Allocates and fills all tensors, and waits until they are there. If that fails, it frees them. */
export async function load<W extends Readonly<Partial<Record<keyof W, Wanted>>>>(
  device: Device,
  stream: Stream,
  wanted: W,
  onProgress: (progress: LoadProgress) => void,
): Promise<Loaded<W>> {
  // A stream that captures refuses here, before anything is made: a graph would copy into memory that is free again.
  await stream.synchronize();
  const owned: OwnedTensor[] = [];
  /** Tensors that are on the GPU only until they are widened. */
  const temporary: OwnedTensor[] = [];
  const free = (): void => {
    for (const tensor of owned.splice(0)) tensor.free();
  };
  try {
    const tensors: Record<string, Tensor> = {};
    const chunks: Chunk[] = [];
    const launches: ((stream: Stream) => void)[] = [];
    const pass = (part: Part): number => {
      const tensor = emptyTensor(device, 'u8', [part.bytes], 'MXFP4 of a model');
      temporary.push(tensor);
      chunks.push(...chunksOf({ dtype: 'u8', shape: tensor.shape, parts: [part] }, tensor.data));
      return tensor.data;
    };
    for (const [name, one] of Object.entries(wanted) as [string, Wanted][]) {
      const { dtype, shape } = one;
      const tensor = emptyTensor(device, dtype, shape, `${name} of a model`);
      owned.push(tensor);
      tensors[name] = { data: tensor.data, dtype, shape, bytes: tensor.bytes };
      if ('parts' in one) chunks.push(...chunksOf(one, tensor.data));
      else {
        const [matrices, rows, columns] = one.shape;
        const stored = { blocks: pass(one.blocks), scales: pass(one.scales), turns: one.turns };
        launches.push(await widenMxfp4(device, { ...stored, to: tensor.data, matrices, rows, columns }));
      }
    }
    // As they lie in the files, which disks like.
    chunks.sort((a, b) => compare(a.file.path, b.file.path) || a.tensor.at + a.from - (b.tensor.at + b.from));
    try {
      await copyIn(chunks, stream, onProgress);
      for (const launch of launches) launch(stream);
    } finally {
      await stream.synchronize();
    }
    return { ...(tensors as { [K in keyof W]: Tensor }), free };
  } catch (error) {
    free();
    throw error;
  } finally {
    for (const tensor of temporary) tensor.free();
  }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** The stored types that become f32, which has every value of them: how many bytes come of one, and which. */
const widening: Readonly<
  Record<string, { readonly times: number; readonly change: (bytes: Uint8Array) => Uint8Array }>
> = {
  BF16: { times: 2, change: (bytes) => bytesOf(toF32('bf16', bitsOf('bf16', bytes))) },
  F8_E8M0: { times: 4, change: (bytes) => bytesOf(fromUe8m0(bytes)) },
};

function chunksOf({ dtype, parts, order }: WantedParts, data: number): Chunk[] {
  // What is put in another order comes as a whole.
  const most = order === undefined ? chunkBytes : Number.POSITIVE_INFINITY;
  let to = data;
  return parts.flatMap((part) => {
    const widened = dtype === 'f32' ? widening[part.tensor.dtype] : undefined;
    const change = order ?? widened?.change ?? ((bytes: Uint8Array) => bytes);
    const chunks: Chunk[] = [];
    for (let done = 0; done < part.bytes; done += most) {
      const bytes = Math.min(most, part.bytes - done);
      chunks.push({ ...part, from: part.from + done, bytes, to, change });
      to += bytes * (widened?.times ?? 1);
    }
    return chunks;
  });
}

async function copyIn(
  chunks: readonly Chunk[],
  stream: Stream,
  onProgress: (progress: LoadProgress) => void,
): Promise<void> {
  const of = chunks.reduce((sum, { bytes }) => sum + bytes, 0);
  const most = chunks.reduce((longest, { bytes }) => Math.max(longest, bytes), 0);
  const buffers = [new Uint8Array(most), new Uint8Array(most)] as const;
  const into = (i: number): Uint8Array => buffers[i % 2 === 0 ? 0 : 1].subarray(0, chunks[i]!.bytes);
  const read = async (i: number): Promise<void> => {
    const chunk = chunks[i];
    if (chunk !== undefined) await chunk.file.read(chunk.tensor, chunk.from, into(i));
  };
  let coming = read(0);
  try {
    let done = 0;
    for (const [i, { bytes, to, change }] of chunks.entries()) {
      await coming;
      coming = read(i + 1);
      stream.copyIn(to, change(into(i)));
      done += bytes;
      onProgress({ bytes: done, of });
    }
  } finally {
    // The files are closed behind this.
    await Promise.allSettled([coming]);
  }
}
