/** cuBLAS, for the GEMMs of experts: what the library that everybody has makes of them. bf16, sums in f32. */
import { DisposedError, UnavailableError } from '../../base/errors.js';
import * as native from '../../base/native/index.js';
import type { CudaDevice } from './device.js';
import { createOut, forgetCurrentContext } from './driver.js';
import { CudaError } from './errors.js';
import type { CudaStream } from './stream.js';

const candidates = ['libcublas.so.13', 'libcublas.so.12'] as const;
const remedy = 'Install cuBLAS: pip install nvidia-cublas, and put its lib folder on LD_LIBRARY_PATH';

// cuBLAS's own numbers.
const [transposed, asIs, bf16, sumsInF32, anyAlgorithm] = [1, 0, 14, 68, -1] as const;

// As cublas_v2.h declares them: the factors are addresses, a matrix is its address, its type and its leading dimension.
const product = ['i32', 'address', 'i32', 'i32', 'i32', 'i32', 'i32', 'address'] as const;
const matrix = ['address', 'i32', 'i32'] as const;
const strided = [...matrix, 'i64'] as const;
const matrices = ['address', 'i32', 'address'] as const;
const calls = {
  cublasGetStatusName: ['address', 'i32'],
  cublasCreate_v2: ['i32', 'address'],
  cublasDestroy_v2: ['i32', 'address'],
  cublasGetVersion_v2: ['i32', 'address', 'address'],
  cublasSetStream_v2: ['i32', 'address', 'address'],
  cublasSetWorkspace_v2: ['i32', 'address', 'address', 'u64'],
  cublasSetSmCountTarget: ['i32', 'address', 'i32'],
  cublasGemmEx: [...product, ...matrix, ...matrix, 'address', ...matrix, 'i32', 'i32'],
  cublasGemmStridedBatchedEx: [
    ...product,
    ...strided,
    ...strided,
    'address',
    ...strided,
    'i32',
    'i32',
    'i32',
  ],
} as const satisfies native.Signatures;
/** Functions that cuBLAS has since version 12.5. */
const newer = {
  cublasGemmGroupedBatchedEx: [
    ...['i32', 'address', 'address', 'address', 'address', 'address', 'address', 'address'],
    ...[...matrices, ...matrices, 'address', ...matrices, 'i32', 'address', 'i32'],
  ],
} as const satisfies native.Signatures;

const load = () => {
  const library = native.openLibrary(candidates, remedy);
  return { out: createOut(64), ...library.functions(calls), ...library.optional(newer) };
};
let loaded: ReturnType<typeof load> | undefined;

function cublas(): ReturnType<typeof load> {
  loaded ??= load();
  return loaded;
}

/** The product to make: rows [rows, inputs] times the transpose of weights [outputs, inputs]. */
export interface Product {
  readonly from: number;
  readonly weights: number;
  readonly to: number;
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
}

/** cuBLAS on one device. Calls are enqueued on streams, and can be captured in graphs. */
export class Cublas {
  readonly #device: CudaDevice;
  readonly #workspace: { readonly address: number; readonly bytes: number; free(): void };
  /** The factors of a product, alpha = 1 and beta = 0, as f32 in host memory: cuBLAS wants their address. */
  readonly #factors: native.NativeMemory;
  #handle: native.Address | null;

  /**
   * `sms`: for how many multiprocessors it chooses kernels; null for all.
   * @throws UnavailableError where there is no cuBLAS.
   */
  constructor(device: CudaDevice, sms: number | null = null) {
    const { out, cublasCreate_v2, cublasSetSmCountTarget } = cublas();
    this.#device = device;
    device.makeCurrent();
    check(cublasCreate_v2(out.address), 'cublasCreate');
    this.#handle = out.number();
    if (sms !== null) check(cublasSetSmCountTarget(this.#handle, sms), 'cublasSetSmCountTarget');
    forgetCurrentContext();
    // A workspace that lives as long as the handle: captured graphs use it, and cuBLAS may free one that it made itself.
    this.#workspace = device.allocate(64 * 2 ** 20, 'the workspace of cuBLAS');
    this.#factors = native.allocate(16);
    new Float32Array(this.#factors.buffer).set([1, 0]);
  }

  /** The version of cuBLAS as a number: 130001 for 13.0.1. */
  get version(): number {
    const { out, cublasGetVersion_v2 } = cublas();
    check(cublasGetVersion_v2(this.#enter(), out.address), 'cublasGetVersion');
    return out.i32[0]!;
  }

  get canGroup(): boolean {
    return cublas().cublasGemmGroupedBatchedEx !== null;
  }

  multiply({ from, weights, to, rows, inputs, outputs }: Product, stream: CudaStream): void {
    if (rows === 0) return;
    const handle = this.#enter(stream);
    const { address } = this.#factors;
    const result = cublas().cublasGemmEx(
      ...[handle, transposed, asIs, outputs, rows, inputs, address],
      ...[weights, bf16, inputs, from, bf16, inputs, address + 4],
      ...[to, bf16, outputs, sumsInF32, anyAlgorithm],
    );
    this.#leave(result, 'cublasGemmEx');
  }

  /** `count` products of equal size, each behind the one before. */
  strided({ from, weights, to, rows, inputs, outputs }: Product, count: number, stream: CudaStream): void {
    if (rows === 0 || count === 0) return;
    const handle = this.#enter(stream);
    const { address } = this.#factors;
    const result = cublas().cublasGemmStridedBatchedEx(
      ...[handle, transposed, asIs, outputs, rows, inputs, address],
      ...[weights, bf16, inputs, inputs * outputs, from, bf16, inputs, inputs * rows, address + 4],
      ...[to, bf16, outputs, outputs * rows, count, sumsInF32, anyAlgorithm],
    );
    this.#leave(result, 'cublasGemmStridedBatchedEx');
  }

  /** Products of any sizes as one call. */
  grouped(products: readonly Product[]): GroupedProducts {
    const { cublasGemmGroupedBatchedEx: call } = cublas();
    if (call === null)
      throw new UnavailableError(
        'This cuBLAS has no cublasGemmGroupedBatchedEx',
        "Install cuBLAS 12.5 or newer, or take Heddle's own kernels: gemm: 'heddle'",
      );
    const some = products.filter(({ rows }) => rows > 0);
    const count = some.length;
    const pointers = this.#device.allocate(Math.max(16, 24 * count), 'addresses of grouped products');
    const addresses = BigUint64Array.from(
      [...some.map(({ weights }) => weights), ...some.map(({ from }) => from), ...some.map(({ to }) => to)],
      BigInt,
    );
    // Arrays of the host, which cuBLAS reads at every call.
    const host = native.allocate(Math.max(16, 4 * 12 * count));
    const words = new Int32Array(host.buffer);
    const column = (index: number, values: readonly number[]): native.Address => {
      words.set(values, index * count);
      return host.address + 4 * index * count;
    };
    const same = (index: number, value: number) => column(index, Array<number>(count).fill(value));
    const rows = some.map((product) => product.rows);
    const inputs = some.map((product) => product.inputs);
    const outputs = some.map((product) => product.outputs);
    const one = new Int32Array(Float32Array.of(1).buffer)[0]!;
    const shapes = [same(0, transposed), same(1, asIs), column(2, outputs), column(3, rows)] as const;
    const sizes = [...shapes, column(4, inputs), same(5, one)] as const;
    const [ofWeights, ofRows, ofMade] = [column(6, inputs), column(7, inputs), column(8, outputs)];
    const [zeros, ones] = [same(9, 0), same(10, 1)];
    return {
      place: (stream) => stream.copyIn(pointers.address, new Uint8Array(addresses.buffer)),
      run: (stream) => {
        if (count === 0) return;
        const result = call(
          ...[this.#enter(stream), ...sizes, pointers.address, bf16, ofWeights],
          ...[pointers.address + 8 * count, bf16, ofRows, zeros],
          ...[pointers.address + 16 * count, bf16, ofMade, count, ones, sumsInF32],
        );
        this.#leave(result, 'cublasGemmGroupedBatchedEx');
      },
      free: () => {
        pointers.free();
        host.free();
      },
    };
  }

  /** Frees it; its streams must be done. */
  dispose(): void {
    if (this.#handle === null) return;
    const handle = this.#enter();
    this.#handle = null;
    this.#workspace.free();
    this.#factors.free();
    this.#leave(cublas().cublasDestroy_v2(handle), 'cublasDestroy');
  }

  #enter(stream?: CudaStream): native.Address {
    if (this.#handle === null) throw new DisposedError('this Cublas');
    this.#device.makeCurrent();
    if (stream === undefined) return this.#handle;
    const { cublasSetStream_v2, cublasSetWorkspace_v2 } = cublas();
    check(cublasSetStream_v2(this.#handle, stream.handle), 'cublasSetStream');
    // Setting a stream takes the workspace away.
    const { address, bytes } = this.#workspace;
    check(cublasSetWorkspace_v2(this.#handle, address, bytes), 'cublasSetWorkspace');
    return this.#handle;
  }

  #leave(result: number, call: string): void {
    forgetCurrentContext();
    check(result, call);
  }
}

export interface GroupedProducts {
  /** Brings their addresses to the device; once, before the first run. */
  place(stream: CudaStream): void;
  run(stream: CudaStream): void;
  free(): void;
}

function check(result: number, call: string): void {
  if (result === 0) return;
  const name = native.readString(cublas().cublasGetStatusName(result));
  throw new CudaError(call, result, name ?? `cublasStatus ${result}`, '');
}
