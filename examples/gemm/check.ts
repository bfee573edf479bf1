/** The five steps of docs/gemm.md under the checker: `heddle check ./examples/gemm/check.ts --seeds 2 --mutants`. */
import { configuration, WrongResult } from 'heddle/check';
import { fromF32 } from 'heddle/testing';
import { prepare, type Sizes, steps } from './index.js';

/** Small, but more steps than there are stages and, where blocks stay, more tiles than blocks. */
const sizes: readonly Sizes[] = [
  { m: 20, n: 24, k: 40 },
  { m: 128, n: 128, k: 192 },
  { m: 128, n: 128, k: 192 },
  { m: 128, n: 256, k: 384 },
  { m: 128, n: 512, k: 192 },
];

export const kernels = steps.map(({ kernel }) => kernel);

export const configurations = steps.map((gemm, i) => {
  const of = sizes[i]!;
  // The same in every schedule, so made once.
  let made: ReturnType<typeof productOf> | undefined;
  return configuration(gemm.kernel.name, { ranks: 1, residentBlocks: 1 }, async ({ device }) => {
    made ??= productOf(of);
    const stream = device.createStream();
    const [a, b, c] = (['a', 'b', 'c'] as const).map(
      (name) => device.allocate(2 * made![name].length, name).address,
    ) as [number, number, number];
    stream.copyIn(a, bytesOf(made.a));
    stream.copyIn(b, bytesOf(made.b));
    (await prepare(device, gemm, { ...of, a, b, c })).launch(stream);
    const bytes = await stream.copyOut(c, 2 * made.c.length);
    const wrong = bytesOf(made.c).findIndex((byte, at) => byte !== bytes[at]);
    if (wrong < 0) return;
    const element = wrong >> 1;
    throw new WrongResult(`row ${Math.floor(element / of.n)}, column ${element % of.n} of c is wrong`);
  });
});

/** Whole numbers, whose sums are exact in any order, and what they make; as bf16. */
function productOf({ m, n, k }: Sizes) {
  const wholeNumbers = (count: number, salt: number) =>
    Float32Array.from({ length: count }, (_, i) => ((i * 7 + salt * 13 + (i >> 5)) % 15) - 7);
  const [a, b] = [wholeNumbers(m * k, 1), wholeNumbers(n * k, 2)];
  const c = new Float32Array(m * n);
  for (let row = 0; row < m; row++)
    for (let column = 0; column < n; column++)
      for (let i = 0; i < k; i++) c[row * n + column]! += a[row * k + i]! * b[column * k + i]!;
  return { a: fromF32('bf16', a), b: fromF32('bf16', b), c: fromF32('bf16', c) };
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ReturnType<typeof fromF32>) =>
  new Uint8Array(buffer, byteOffset, byteLength);
