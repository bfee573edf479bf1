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

/** Calls `make`, and adds a `release` to its result that undoes its steps once. A failure of `make` undoes them too. */
export function undoable<T>(
  context: Context,
  what: string,
  make: (steps: Steps) => T,
): T & { release(): void } {
  const steps = new Steps(context, what);
  try {
    return { ...make(steps), release: steps.undo };
  } catch (error) {
    steps.undo();
    throw error;
  }
}

export interface Range {
  readonly address: Address;
  readonly bytes: number;
}

/** Steps with virtual memory for one purpose, which can be undone. */
export class Steps {
  readonly #undoing: (() => void)[] = [];

  constructor(
    readonly context: Context,
    /** The purpose, in errors. */
    readonly what: string,
  ) {}

  /** Adds what undoes a step; the last is undone first. */
  add(undo: () => void): void {
    this.#undoing.push(undo);
  }

  readonly undo = (): void => {
    this.context.use();
    for (let step = this.#undoing.pop(); step !== undefined; step = this.#undoing.pop()) step();
  };

  /** Makes physical memory of the properties that stand in `out`. */
  create(bytes: number): bigint {
    const { out, cuMemCreate, cuMemRelease } = this.context.driver;
    const created = cuMemCreate(out.address + 32, bytes, out.address, 0);
    if (created !== 0) throw outOfMemory(this.context, created, 'cuMemCreate', this.what);
    const memory = out.u64[4]!;
    this.add(() => check(cuMemRelease(memory), 'cuMemRelease', this.what));
    return memory;
  }

  /** Takes addresses, on a multiple of `alignment`; 0 for any. */
  reserve(bytes: number, alignment = 0): Address {
    const { out, cuMemAddressReserve, cuMemAddressFree } = this.context.driver;
    const reserved = cuMemAddressReserve(out.address, bytes, alignment, 0, 0);
    check(reserved, 'cuMemAddressReserve', this.what);
    const address = out.number();
    this.add(() => check(cuMemAddressFree(address, bytes), 'cuMemAddressFree', this.what));
    return address;
  }

  /** Maps physical memory there. Nobody may use it yet. */
  map({ address, bytes }: Range, memory: bigint): void {
    const { cuMemMap, cuMemUnmap } = this.context.driver;
    check(cuMemMap(address, bytes, 0, memory, 0), 'cuMemMap', this.what);
    this.add(() => check(cuMemUnmap(address, bytes), 'cuMemUnmap', this.what));
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
