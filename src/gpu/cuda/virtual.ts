/** CUDA's virtual memory: physical memory, and addresses at which it is mapped. Each step leaves the one that undoes it. */
import type { Address } from '../../base/native/index.js';
import { type Context, check, failure } from './driver.js';
import { CUDA_ERROR_OUT_OF_MEMORY, type CudaError } from './errors.js';
import { formatBytes, type Gpu } from './gpu.js';

/** CUmemLocationType. */
const locationDevice = 1;
const locationHostNode = 3;
/** CUmemAccess_flags. */
const readWrite = 3;

/** A GPU, or the host's node that is nearest to one: where physical memory lies, or who may use a mapping. */
export type Location = readonly [kind: number, id: number];
export const onGpu = ({ ordinal }: Gpu): Location => [locationDevice, ordinal];
export const onHost = ({ hostNode }: Gpu): Location => [locationHostNode, hostNode];

/** Steps that undo others, to be taken last first. */
export type Undo = (() => void)[];

/** Calls `make`, and adds a `release` to its result that undoes its steps once. A failure of `make` undoes them too. */
export function undoable<T>(context: Context, make: (undo: Undo) => T): T & { release(): void } {
  const undo: Undo = [];
  const release = (): void => {
    context.use();
    for (let step = undo.pop(); step !== undefined; step = undo.pop()) step();
  };
  try {
    return { ...make(undo), release };
  } catch (error) {
    release();
    throw error;
  }
}

/** Writes the properties of memory that can be shared in these ways to `out`: CUmemAllocationProp, 32 bytes. */
export function writeProperties(
  { driver: { out } }: Context,
  [kind, id]: Location,
  { rdma = false, handleTypes = 0 }: { readonly rdma?: boolean; readonly handleTypes?: number } = {},
): void {
  const pinned = 1;
  out.bytes.fill(0);
  out.i32.set([pinned, handleTypes, kind, id]);
  // Lets a NIC reach the memory too, for windows that a fabric writes into.
  out.bytes[25] = rdma ? 1 : 0;
}

/** The piece in which memory of the properties that stand in `out` comes: the least, or that for speed. */
export function granularity({ driver }: Context, which: 'least' | 'recommended', what: string): number {
  const { out, cuMemGetAllocationGranularity } = driver;
  const got = cuMemGetAllocationGranularity(out.address + 32, out.address, which === 'least' ? 0 : 1);
  check(got, 'cuMemGetAllocationGranularity', what);
  return out.number(4);
}

/** Makes physical memory of the properties that stand in `out`. */
export function create(context: Context, bytes: number, what: string, undo: Undo): bigint {
  const { out, cuMemCreate, cuMemRelease } = context.driver;
  const created = cuMemCreate(out.address + 32, bytes, out.address, 0);
  if (created !== 0) throw outOfMemory(context, created, 'cuMemCreate', what);
  const memory = out.u64[4]!;
  undo.push(() => check(cuMemRelease(memory), 'cuMemRelease', what));
  return memory;
}

/** Takes addresses, on a multiple of `alignment`; 0 for any. */
export function reserve(
  context: Context,
  bytes: number,
  alignment: number,
  what: string,
  undo: Undo,
): Address {
  const { out, cuMemAddressReserve, cuMemAddressFree } = context.driver;
  check(cuMemAddressReserve(out.address, bytes, alignment, 0, 0), 'cuMemAddressReserve', what);
  const address = out.number();
  undo.push(() => check(cuMemAddressFree(address, bytes), 'cuMemAddressFree', what));
  return address;
}

export interface Range {
  readonly address: Address;
  readonly bytes: number;
}

/** Maps physical memory there. Nobody may use it yet. */
export function mapAt(
  { driver }: Context,
  { address, bytes }: Range,
  memory: bigint,
  what: string,
  undo: Undo,
): void {
  check(driver.cuMemMap(address, bytes, 0, memory, 0), 'cuMemMap', what);
  undo.push(() => check(driver.cuMemUnmap(address, bytes), 'cuMemUnmap', what));
}

/** Lets these read and write a mapping. The access of others stays as it is. */
export function grant(
  { driver: { out, cuMemSetAccess } }: Context,
  { address, bytes }: Range,
  locations: readonly Location[],
  doing: string,
): void {
  // CUmemAccessDesc, as 32-bit words.
  out.i32.set(locations.flatMap(([kind, id]) => [kind, id, readWrite]));
  check(cuMemSetAccess(address, bytes, out.address, locations.length), 'cuMemSetAccess', doing);
}

/** The error of a failed allocation: what was asked for, what for, and what the GPU has. */
export function outOfMemory(context: Context, result: number, call: string, what: string): CudaError {
  if (result !== CUDA_ERROR_OUT_OF_MEMORY) return failure(call, result, what);
  const { out, cuMemGetInfo } = context.driver;
  const known = cuMemGetInfo(out.address, out.address + 8) === 0;
  const left = known
    ? `, of which ${formatBytes(out.number(0))} of ${formatBytes(out.number(1))} are free`
    : '';
  return failure(call, result, `${what}${left}`);
}

/** 'allocating 1.5 GiB for the receive window on GPU 2' */
export function describe(bytes: number, purpose: string, gpu: Gpu): string {
  return `allocating ${formatBytes(bytes)} (${bytes} bytes) for the ${purpose} on GPU ${gpu.ordinal}`;
}
