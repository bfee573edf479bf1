/** The cost of the experts' GEMMs: measured cells, and a roofline fitted to them. */
import type { MoeModel } from '../../moe/layer/index.js';
import tables from './gemms.json' with { type: 'json' };
import { leastSquares } from './linear.js';

/** GEMMs of one library and format. Rows are the same for every expert. */
interface GemmTable {
  readonly name: string;
  readonly format: 'fp8' | 'bf16';
  readonly bytes: number;
  readonly gpu: 'h200';
  readonly src: string;
  /** Experts, rows of each, µs of gate and up (n 4096, k 7168), µs of down (n 7168, k 2048). */
  readonly cells: readonly (readonly [number, number, number, number])[];
}

/** DeepGEMM with the faster of its own choice and the best of a few; cuBLAS in its fastest form. */
export const gemmTables = tables as unknown as readonly GemmTable[];

type GemmWork = ReturnType<typeof gemmWork>;

/** The work of both GEMMs: of `experts` that are read, and `rows` of all of them together. */
export function gemmWork(
  { hidden, inner }: Pick<MoeModel, 'hidden' | 'inner'>,
  bytes: number,
  experts: number,
  rows: number,
) {
  const weights = 3 * hidden * inner;
  return { weightBytes: experts * weights * bytes, flops: 2 * rows * weights };
}

export type GemmFit = Readonly<ReturnType<typeof fitGemms>>;

/** A launch of each GEMM takes no less. µs. */
const launches = 2 * 3;

/** µs, from reading weights and from multiplying, and of both. */
function roofline(bandwidth: number, rate: number, { weightBytes, flops }: GemmWork) {
  const memory = launches + weightBytes / (bandwidth * 1e3);
  const compute = launches + flops / (rate * 1e6);
  return { memory, compute, time: (memory ** 4 + compute ** 4) ** (1 / 4) };
}

/** `bandwidth`: GB/s at which weights come, at best; `rate`: TFLOP/s; `scatter`: standard deviation of the logarithm of measured ÷ fitted. */
export function fitGemms(table: GemmTable) {
  const deepseek = { hidden: 7168, inner: 2048 };
  const off = ([bandwidth, rate]: readonly number[]): number[] =>
    table.cells.map(([experts, rows, gateUp, down]) => {
      const work = gemmWork(deepseek, table.bytes, experts, experts * rows);
      return Math.log((gateUp + down) / roofline(Math.exp(bandwidth!), Math.exp(rate!), work).time);
    });
  const { at } = leastSquares(off, [Math.log(4000), Math.log(500)]);
  const [bandwidth, rate] = at.map(Math.exp) as [number, number];
  const squares = off(at).reduce((sum, one) => sum + one ** 2, 0);
  const scatter = Math.sqrt(squares / (table.cells.length - at.length));
  return { ...table, bandwidth, rate, scatter, of: (work: GemmWork) => roofline(bandwidth, rate, work) };
}
