/**
 * Sums of parts, added up: where a GEMM has fewer units than the GPU has multiprocessors, several blocks share a unit's inputs, and
 * this kernel behind it makes rows of what they leave. It adds parts in their order, so that every run gives the same. Biases come last.
 */
import { device, kernel, list, pointer, registers } from '../../../../lang/index.js';
import { rowFormats } from '../../../layer/index.js';
import { plannedOf } from '../gemm/kit.js';
import type { GemmShape } from '../gemm/shape.js';
import { gate } from './store.js';

/** Elements of a row that a lane makes. */
const laneElements = 16;

/** Adds the biases of a lane's elements; where rows are gated, those of gates and of what they scale. */
const addBiases = ({ gated, outputs }: GemmShape) =>
  device(
    {
      params: { bias: pointer('v16'), expert: 'u32', element: 'u32', sums: registers('f32') },
      using: { HALVES: gated ? 2 : 1, OUTPUTS: outputs },
    },
    (g, { bias, expert, element, sums }, u) => {
      for (const n of g.unroll(2 * u.HALVES)) {
        const column = (expert * u.HALVES + (n - (n % 2)) / 2) * u.OUTPUTS + element;
        const eight = g.load(bias.at(column / 8 + (n % 2)));
        for (const e of g.unroll(8)) sums[8 * n + e]! += g.f32(g.lane(eight, 'bf16', e));
      }
    },
  );

export function addPartsKernel(shape: GemmShape, parts: number, threads: number) {
  const { gated, dtype, experts, outputs, bias } = shape;
  const rounds = dtype === 'e4m3' && gated;
  return kernel(
    {
      name: `experts_${gated ? 'gate_up' : 'down'}_parts_${dtype}`,
      maxThreads: threads,
      params: {
        ...plannedOf(shape),
        /** [row][part][column] */
        sums: pointer('v16'),
        /** [expert][out] of bf16. */
        bias: list(pointer('v16'), bias ? 1 : 0),
        to: pointer('v16'),
        toScales: list(pointer('f32'), rounds ? 1 : 0),
      },
      using: {
        ...{ ALL: shape.rows === 'all', EXPERTS: experts, OUTPUTS: outputs, PARTS: parts, GATED: gated },
        ...{ HALVES: gated ? 2 : 1, ROUNDS: rounds, WARPS: threads / 32, LANES: outputs / laneElements },
        ...{ addBiases: addBiases(shape), gate: gate({ shape }), narrow: rowFormats.e4m3.rounding.narrow },
      },
    },
    (g, p, u) => {
      g.awaitPrevious();
      g.releaseNext();
      // As many blocks for each expert, if there are enough.
      const sharers = g.max(g.gridDim.x / u.EXPERTS, g.u32(1));
      const own = g.blockIdx.x % sharers;
      for (let expert = g.blockIdx.x / sharers; expert < u.EXPERTS; expert += g.gridDim.x / sharers) {
        let begin = g.u32(0);
        let rows = g.u32(0);
        if (u.ALL) rows = p.count[0]!;
        else {
          begin = g.load(p.offsets[0]!.at(expert));
          rows = g.load(p.counts[0]!.at(expert));
        }
        for (let first = own * u.WARPS + g.warpId; first * 32 < rows * u.LANES; first += sharers * u.WARPS) {
          const i = first * 32 + g.laneId;
          const row = begin + i / u.LANES;
          const element = (i % u.LANES) * 16;
          const sums = g.registers('f32', u.HALVES * 16);
          if (i < rows * u.LANES) {
            for (let part = g.u32(0); part < u.PARTS; part += 1) {
              for (const n of g.unroll(u.HALVES * 4)) {
                const column = element + ((n - (n % 4)) / 4) * u.OUTPUTS + (n % 4) * 4;
                const four = g.load(
                  p.sums.at(((row * u.PARTS + part) * (u.HALVES * u.OUTPUTS) + column) / 4),
                );
                for (const e of g.unroll(4)) sums[4 * n + e]! += g.lane(four, 'f32', e);
              }
            }
            if (p.bias.length > 0) u.addBiases({ bias: p.bias[0]!, expert, element, sums });
          }
          const made = g.registers('f32', 16);
          if (u.GATED) u.gate({ sums, made });
          else for (const n of g.unroll(16)) made[n] = sums[n]!;
          const at = (row * u.OUTPUTS + element) / 16;
          if (u.ROUNDS) {
            const scale = u.narrow({ values: made }); // all lanes of the warp take part
            if (i < rows * u.LANES) {
              g.store(p.to.at(at), g.pack('e4m3', made));
              if (g.laneId % 8 === 0) g.store(p.toScales[0]!.at(at / 8), g.bits('f32', scale));
            }
          } else if (i < rows * u.LANES) {
            for (const half of g.unroll(2)) {
              const eight = g.registers('f32', 8);
              for (const n of g.unroll(8)) eight[n] = made[8 * half + n]!;
              g.store(p.to.at(2 * at + half), g.pack('bf16', eight));
            }
          }
        }
      }
    },
  );
}
