/**
 * Tensors: typed, shaped views of device memory. A tensor owns nothing and copies nothing; it is an address and how
 * to read it, in DLPack's terms, so that any framework's pointer can become one and any tensor can be handed to a
 * framework.
 */

import { ArgumentError, requireInteger, requireObject, requireText } from '../../base/errors.js';
import { type Device, requireDevice, requireStream, type Stream } from '../../gpu/index.js';
import {
  type Bits,
  bitsArray,
  bitsOf,
  type DlpackType,
  type Dtype,
  dtypes,
  fromF32,
  isFloat,
  requireDtype,
  toF32,
} from '../layer/index.js';

/** A typed, shaped view of device memory. */
export interface Tensor {
  /** Device address of element [0, 0, …]. */
  readonly data: number;
  /** The type of each element. */
  readonly dtype: Dtype;
  /** Lengths of the dimensions, outermost first. */
  readonly shape: readonly number[];
  /** Elements (not bytes) from one index to the next in each dimension. Absent: row-major without gaps. */
  readonly strides?: readonly number[];
  /** Bytes from the first element to the end of the last. */
  readonly bytes: number;
}

/** A tensor with memory of its own. */
export interface OwnedTensor extends Tensor {
  /** Gives its memory back. Views of it must not be used after that. */
  free(): void;
}

/** Values that can become a tensor: numbers, or elements already stored as the dtype is (`Bits`). */
export type TensorData = readonly number[] | Float64Array | Bits;

/**
 * Calls memory at a device address a tensor. The memory may come from anywhere in the process; it must stay valid
 * for as long as the tensor is used.
 */
export function wrap(
  data: number,
  dtype: Dtype,
  shape: readonly number[],
  strides?: readonly number[],
): Tensor {
  const bytes = requireView('', data, dtype, shape, strides);
  return { data, dtype, shape, ...(strides === undefined ? {} : { strides }), bytes };
}

/** Requires what a tensor is made of; returns its bytes. `within` is what an error writes before the part's name. */
function requireView(
  within: string,
  data: number,
  dtype: Dtype,
  shape: readonly number[],
  strides: readonly number[] | undefined,
): number {
  requireInteger(`${within}data`, data, 0, mostBytes);
  requireDtype(`${within}dtype`, dtype);
  requireLengths(`${within}shape`, shape);
  const { size } = dtypes[dtype];
  if (data % size !== 0) {
    throw new ArgumentError(`${within}data`, data, `a multiple of ${size}, the size of ${dtype}`);
  }
  if (strides !== undefined) {
    requireLengths(`${within}strides`, strides);
    if (strides.length !== shape.length) {
      throw new ArgumentError(`${within}strides`, strides, `as long as the shape, ${shape.length}`);
    }
  }
  const empty = elements(shape) === 0;
  const last = shape.reduce((offset, length, i) => offset + (length - 1) * (strides?.[i] ?? 0), 0);
  const bytes = size * (strides === undefined ? elements(shape) : empty ? 0 : last + 1);
  if (bytes > mostBytes) {
    throw new ArgumentError(`${within}shape`, `[${shape.join(', ')}]`, `of at most 2^48 bytes`);
  }
  return bytes;
}

/** Device addresses stay below this. */
const mostBytes = 2 ** 48;

function requireLengths(argument: string, lengths: readonly number[]): void {
  if (!Array.isArray(lengths)) throw new ArgumentError(argument, lengths, 'an array of integers');
  // By index: a hole is no length either.
  for (let i = 0; i < lengths.length; i++) requireInteger(`${argument}[${i}]`, lengths[i], 0, 2 ** 40);
}

/** Requires a tensor as `wrap` makes it. */
export function requireTensor(argument: string, tensor: Tensor): void {
  requireObject(argument, tensor, 'a tensor');
  const bytes = requireView(`${argument}.`, tensor.data, tensor.dtype, tensor.shape, tensor.strides);
  if (tensor.bytes !== bytes) {
    throw new ArgumentError(`${argument}.bytes`, tensor.bytes, `${bytes}, the bytes of ${describe(tensor)}`);
  }
}

/** Uninitialised memory of its own. `purpose` appears in errors and in the simulator's findings. */
export function emptyTensor(
  device: Device,
  dtype: Dtype,
  shape: readonly number[],
  purpose?: string,
): OwnedTensor {
  requireDevice('device', device);
  const view = wrap(0, dtype, shape); // checks the arguments before anything is allocated
  const { bytes } = view;
  const called = requireText('purpose', purpose ?? `a tensor of ${describe(view)}`);
  const memory = device.allocate(Math.max(bytes, 16), called); // a rank without tokens still has an address
  return { ...wrap(memory.address, dtype, shape), free: () => memory.free() };
}

type Wanted = readonly [dtype: Dtype, shape: readonly number[], purpose: string];

/** Allocates tensors by name. Where memory for one cannot be had, none is left. */
export function emptyTensors<W extends Readonly<Partial<Record<keyof W, Wanted>>>>(
  device: Device,
  wanted: W,
): { readonly [Name in keyof W]: OwnedTensor } {
  const made: Record<string, OwnedTensor> = {};
  try {
    for (const [name, one] of Object.entries(wanted as Record<string, Wanted>))
      made[name] = emptyTensor(device, ...one);
    return made as { [Name in keyof W]: OwnedTensor };
  } catch (error) {
    for (const tensor of Object.values(made)) tensor.free();
    throw error;
  }
}

/**
 * A tensor filled from the host, in order on `stream`.
 *
 * Numbers, `Float32Array` and `Float64Array` are values: they are rounded to a float dtype, and must be integers
 * in range for an integer dtype. A `Uint16Array` for bf16 or f16, and a `Uint8Array` for e4m3, are the stored bits.
 */
export function tensorFrom(
  device: Device,
  stream: Stream,
  data: TensorData,
  dtype: Dtype,
  of?: readonly number[],
  purpose?: string,
): OwnedTensor {
  requireStream('stream', stream);
  requireDtype('dtype', dtype);
  const bits = toBits(data, dtype);
  const shape = of ?? [bits.length];
  wrap(0, dtype, shape); // checks the shape
  if (bits.length !== elements(shape)) {
    const possible = `${elements(shape)} elements long, for shape [${shape.join(', ')}]`;
    throw new ArgumentError('data', data, possible);
  }
  const tensor = emptyTensor(device, dtype, shape, purpose);
  if (bits.length > 0) stream.copyIn(tensor.data, bytesOf(bits));
  return tensor;
}

/** Overwrites a tensor without gaps from the host, in order on `stream`; `data` as for `tensorFrom`. */
export function write(tensor: Tensor, stream: Stream, data: TensorData): void {
  requireTensor('tensor', tensor);
  requireStream('stream', stream);
  if (!isContiguous(tensor)) throw new ArgumentError('tensor', describe(tensor), 'contiguous to be written');
  const bits = toBits(data, tensor.dtype);
  if (bits.length !== elements(tensor.shape)) {
    throw new ArgumentError('data', data, `${elements(tensor.shape)} elements long, as ${describe(tensor)}`);
  }
  if (bits.length > 0) stream.copyIn(tensor.data, bytesOf(bits));
}

/**
 * The elements of a tensor as values, row-major, once everything before it on `stream` is done: a `Float32Array`
 * for every float dtype, the stored integers for the rest.
 */
export async function read(tensor: Tensor, stream: Stream): Promise<Bits> {
  const bits = await readBits(tensor, stream);
  return isFloat(tensor.dtype) ? toF32(tensor.dtype, bits) : bits;
}

/** The elements of a tensor as they are stored, row-major; for comparing bit by bit. */
export async function readBits(tensor: Tensor, stream: Stream): Promise<Bits> {
  requireTensor('tensor', tensor);
  requireStream('stream', stream);
  const { size } = dtypes[tensor.dtype];
  if (elements(tensor.shape) * size > mostReadBytes) {
    const possible = `of at most ${mostReadBytes / 2 ** 30} GiB to be read`;
    throw new ArgumentError('tensor', describe(tensor), possible);
  }
  if (tensor.bytes === 0) return bitsArray(tensor.dtype, 0);
  const stored = bitsOf(tensor.dtype, await stream.copyOut(tensor.data, tensor.bytes));
  if (isContiguous(tensor)) return stored;
  const gathered = bitsArray(tensor.dtype, elements(tensor.shape));
  const { shape, strides = [] } = tensor;
  for (let i = 0; i < gathered.length; i++) {
    let rest = i;
    let offset = 0;
    for (let dim = shape.length - 1; dim >= 0; dim--) {
      offset += (rest % shape[dim]!) * strides[dim]!;
      rest = Math.floor(rest / shape[dim]!);
    }
    gathered[i] = stored[offset]!;
  }
  return gathered;
}

/** The length that one typed array can hold at most; a view whose elements lie on top of each other may have more. */
const mostReadBytes = 2 ** 32;

/** How many elements a shape has. The empty shape is a scalar: one. */
export function elements(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1);
}

/** Whether a tensor's elements lie row-major without gaps, which is what kernels take. */
export function isContiguous(tensor: Pick<Tensor, 'shape' | 'strides'>): boolean {
  if (tensor.strides === undefined || elements(tensor.shape) === 0) return true;
  const dense = denseStrides(tensor.shape);
  // The stride of a dimension of length 1 is never used.
  return tensor.shape.every((length, i) => length === 1 || tensor.strides?.[i] === dense[i]);
}

/** Whether a tensor can stand for rows of a payload of this type: `u8` is opaque. */
export const isOfType = (tensor: Tensor, dtype: Dtype): boolean => dtype === 'u8' || tensor.dtype === dtype;

/** How long a dimension must be: exactly, or from the least to the most. */
type Length = number | readonly [least: number, most: number];

/** Requires a tensor of one of these types, of this shape (`why`), without gaps, where vectors of 16 bytes can read it. */
export function requireVectors(
  argument: string,
  tensor: Tensor,
  types: readonly Dtype[],
  shape: readonly Length[],
  why = '',
): void {
  requireTensor(argument, tensor);
  const fits = shape.every((length, i) => {
    const [least, most] = typeof length === 'number' ? [length, length] : length;
    return tensor.shape[i]! >= least && tensor.shape[i]! <= most;
  });
  if (
    !types.includes(tensor.dtype) ||
    tensor.shape.length !== shape.length ||
    !fits ||
    !isContiguous(tensor)
  ) {
    const lengths = shape.map((length) => {
      if (typeof length === 'number') return length;
      return length[1] === Infinity ? `${length[0]} or more` : `at most ${length[1]}`;
    });
    const possible = `${types.join(' or ')} [${lengths.join(', ')}]${why && `, ${why}`}, contiguous`;
    throw new ArgumentError(argument, describe(tensor), possible);
  }
  if (tensor.data % 16 !== 0 || (tensor.data === 0 && tensor.bytes > 0))
    throw new ArgumentError(`${argument}.data`, tensor.data, 'a device address, a multiple of 16');
}

/** The strides of a row-major tensor without gaps, in elements. */
function denseStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let stride = 1;
  for (let dim = shape.length - 1; dim >= 0; dim--) {
    strides[dim] = stride;
    stride *= shape[dim]!;
  }
  return strides;
}

/** The fields of DLPack's DLTensor, except the device. */
export interface DlpackView {
  readonly data: number;
  readonly ndim: number;
  readonly dtype: DlpackType;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly byteOffset: 0;
}

/** A tensor in DLPack's words, strides always written out. */
export function dlpack(tensor: Tensor): DlpackView {
  requireTensor('tensor', tensor);
  return {
    data: tensor.data,
    ndim: tensor.shape.length,
    dtype: dtypes[tensor.dtype].dlpack,
    shape: tensor.shape,
    strides: tensor.strides ?? denseStrides(tensor.shape),
    byteOffset: 0,
  };
}

/** For people: `bf16 [8, 7168]`, with strides where it has gaps. */
export function describe(tensor: Pick<Tensor, 'dtype' | 'shape' | 'strides'>): string {
  requireObject('tensor', tensor, 'a tensor');
  requireDtype('tensor.dtype', tensor.dtype);
  requireLengths('tensor.shape', tensor.shape);
  if (tensor.strides !== undefined) requireLengths('tensor.strides', tensor.strides);
  const strides = isContiguous(tensor) ? '' : ` with strides [${tensor.strides?.join(', ')}]`;
  return `${tensor.dtype} [${tensor.shape.join(', ')}]${strides}`;
}

const integerRange = { u8: [0, 255], i32: [-(2 ** 31), 2 ** 31 - 1], u32: [0, 2 ** 32 - 1] } as const;

function toBits(data: TensorData, dtype: Dtype): Bits {
  if (data instanceof dtypes[dtype].storage) return data;
  const areValues = Array.isArray(data) || data instanceof Float32Array || data instanceof Float64Array;
  if (!areValues) {
    throw new ArgumentError('data', data, `numbers or a ${dtypes[dtype].storage.name}, for ${dtype}`);
  }
  if (isFloat(dtype)) {
    if (Array.isArray(data)) requireNumbers(data);
    return fromF32(dtype, Float32Array.from(data));
  }
  const [min, max] = integerRange[dtype];
  for (const [i, value] of data.entries()) requireInteger(`data[${i}]`, value, min, max);
  const bits = bitsArray(dtype, data.length);
  bits.set(data);
  return bits;
}

function requireNumbers(data: readonly unknown[]): void {
  const at = data.findIndex((value) => typeof value !== 'number');
  if (at !== -1) throw new ArgumentError(`data[${at}]`, data[at], 'a number');
}

/** The bytes of stored elements, without a copy. */
export function bytesOf(bits: Bits): Uint8Array {
  return new Uint8Array(bits.buffer, bits.byteOffset, bits.byteLength);
}
