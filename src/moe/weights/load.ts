/** Tensors from files into memory of a GPU: the file is read in chunks, one while the one before is on its way to the GPU. */
import type { Device, Stream } from '../../gpu/index.js';
import { bitsOf, type Dtype, dtypes, toF32 } from '../layer/index.js';
import { bytesOf, emptyTensor, type OwnedTensor, type Tensor } from '../rounds/tensor.js';
import type { Located } from './folder.js';

/** A tensor to be made of stored ones: each, in this order, behind the one before. */
export interface Wanted {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Of this type, or BF16 for a tensor of f32, which has every value of it. */
  readonly parts: readonly Located[];
}

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

/** Bytes of a file, and where they go. */
interface Chunk {
  readonly from: Located;
  /** In the stored tensor. */
  readonly offset: number;
  readonly bytes: number;
  readonly to: number;
  readonly widen: boolean;
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
  const free = (): void => {
    for (const tensor of owned.splice(0)) tensor.free();
  };
  try {
    const tensors: Record<string, Tensor> = {};
    const chunks: Chunk[] = [];
    for (const [name, { dtype, shape, parts }] of Object.entries(wanted) as [string, Wanted][]) {
      const tensor = emptyTensor(device, dtype, shape, `${name} of a model`);
      owned.push(tensor);
      tensors[name] = { data: tensor.data, dtype, shape, bytes: tensor.bytes };
      chunks.push(...chunksOf(parts, dtype, tensor.data));
    }
    // As they lie in the files, which disks like.
    chunks.sort(
      (a, b) =>
        compare(a.from.file.path, b.from.file.path) ||
        a.from.tensor.at + a.offset - (b.from.tensor.at + b.offset),
    );
    try {
      await copyIn(chunks, stream, onProgress);
    } finally {
      await stream.synchronize();
    }
    return { ...(tensors as { [K in keyof W]: Tensor }), free };
  } catch (error) {
    free();
    throw error;
  }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

function chunksOf(parts: readonly Located[], dtype: Dtype, data: number): Chunk[] {
  let to = data;
  return parts.flatMap((from) => {
    const widen = dtype === 'f32' && from.tensor.dtype === 'BF16';
    const chunks: Chunk[] = [];
    for (let offset = 0; offset < from.tensor.bytes; offset += chunkBytes) {
      const bytes = Math.min(chunkBytes, from.tensor.bytes - offset);
      chunks.push({ from, offset, bytes, to, widen });
      to += widen ? bytes * (dtypes.f32.size / dtypes.bf16.size) : bytes;
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
    if (chunk !== undefined) await chunk.from.file.read(chunk.from.tensor, chunk.offset, into(i));
  };
  let coming = read(0);
  try {
    let done = 0;
    for (const [i, { bytes, to, widen }] of chunks.entries()) {
      await coming;
      coming = read(i + 1);
      stream.copyIn(to, widen ? bytesOf(toF32('bf16', bitsOf('bf16', into(i)))) : into(i));
      done += bytes;
      onProgress({ bytes: done, of });
    }
  } finally {
    // The files are closed behind this.
    await Promise.allSettled([coming]);
  }
}
