/**
 * The five GEMMs of docs/gemm.md on a GPU, beside cuBLAS: what each makes of random matrices is compared with the host's own
 * sums, then it is timed. As a program, `node .gpu-test/test/on-gpus/gemm-steps.js`, it prints what docs/results keeps.
 */
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';
import { type Gemm, prepare, type Sizes, steps } from '../../examples/gemm/index.js';
import { UnavailableError } from '../../src/base/errors.js';
import { Cublas, type CudaDevice, type CudaStream } from '../../src/gpu/cuda/index.js';
import { bf16ToF32, type Stream } from '../../src/gpu/index.js';
import { type Measured, type Measuring, runBenchmark } from '../../src/tools/bench/index.js';
import { randomElements } from '../../src/verify/testing/index.js';

/** What one of them took. */
interface StepTime {
  /** 'cuBLAS 130001', or the kernel's. */
  readonly name: string;
  /** Of a launch, median; a simulated one takes steps. */
  readonly time: number;
}

export const teraflops = ({ m, n, k }: Sizes, microseconds: number): number =>
  (2 * m * n * k) / microseconds / 1e6;

/** @throws AssertionError where a kernel's results are wrong: then no time counts. */
export function measureSteps(sizes: Sizes, device: 'cuda' | 'sim', gemms: readonly Gemm[] = steps) {
  const { m, n, k } = sizes;
  const iterations = device === 'cuda' ? 15 : 1;
  const bench: Measured<Measuring, StepTime, { readonly iterations: number; readonly sizes: Sizes }> = {
    format: 'heddle-bench-gemm-steps/1',
    setting: () => ({ ranks: 1 }),
    members: () => ({ iterations, sizes }),
    async measure({ timing }, _, tell) {
      const { stream } = timing;
      const { device } = timing.world;
      const [left, right] = [randomElements('bf16', m * k, 1), randomElements('bf16', n * k, 2)];
      const placed = [left, right].map((bits) => {
        const { address } = device.allocate(bits.byteLength, 'an operand');
        stream.copyIn(address, new Uint8Array(bits.buffer, bits.byteOffset, bits.byteLength));
        return address;
      });
      const c = device.allocate(2 * m * n, 'a product');
      const operands = { ...sizes, a: placed[0]!, b: placed[1]!, c: c.address };
      const wanted = elementsOf(
        sizes,
        Float32Array.from(left, bf16ToF32),
        Float32Array.from(right, bf16ToF32),
      );
      const measure = async (name: string, enqueue: () => void): Promise<void> => {
        stream.fill(c.address, c.bytes, 0xff);
        enqueue();
        await compare(name, stream, c, sizes, wanted);
        const { median } = await timing.time(device.kind === 'cuda' ? 4 : 1, [enqueue]);
        tell.point({ name, time: median });
      };
      for (const gemm of gemms) {
        const launcher = await prepare(device, gemm, operands);
        await measure(gemm.kernel.ir().name, () => launcher.launch(stream));
      }
      const cublas = device.kind === 'cuda' ? openCublas(device as CudaDevice) : null;
      if (cublas === null) return;
      const product = {
        from: operands.a,
        weights: operands.b,
        to: c.address,
        rows: m,
        inputs: k,
        outputs: n,
      };
      await measure(`cuBLAS ${cublas.version}`, () => cublas.multiply(product, stream as CudaStream));
      cublas.dispose();
    },
  };
  return runBenchmark(bench, { device, iterations });
}

function openCublas(device: CudaDevice): Cublas | null {
  try {
    return new Cublas(device);
  } catch (error) {
    if (error instanceof UnavailableError) return null;
    throw error;
  }
}

interface Wanted {
  readonly row: number;
  readonly column: number;
  readonly value: number;
}

/** Elements of every row and every column of the product. */
function elementsOf({ m, n, k }: Sizes, a: Float32Array, b: Float32Array): Wanted[] {
  return Array.from({ length: Math.max(m, n) }, (_, i) => {
    // 37 has no divisor in common with sizes that are powers of two: every column has its turn.
    const [row, column] = [i % m, (37 * i) % n];
    let value = 0;
    for (let l = 0; l < k; l++) value += a[row * k + l]! * b[column * k + l]!;
    return { row, column, value };
  });
}

async function compare(
  name: string,
  stream: Stream,
  c: { readonly address: number; readonly bytes: number },
  { n, k }: Sizes,
  wanted: readonly Wanted[],
): Promise<void> {
  const bits = new Uint16Array((await stream.copyOut(c.address, c.bytes)).slice().buffer);
  for (const { row, column, value } of wanted) {
    const is = bf16ToF32(bits[row * n + column]!);
    // Half a unit of bf16's last place, and what sums in f32 lose of k products whose sizes are about 1.
    const slack = Math.abs(value) * 2 ** -8 + 2 ** -16 * k;
    assert.ok(Math.abs(is - value) <= slack, `${name}: row ${row}, column ${column} is ${is}, not ${value}`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const made = await measureSteps({ m: 4096, n: 4096, k: 4096 }, 'cuda');
  process.stdout.write(`${JSON.stringify(made, null, 2)}\n`);
}
