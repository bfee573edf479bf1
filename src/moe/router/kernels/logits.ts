/**
 * Logits: the products of tokens' rows with the router's rows of experts, on the tensor cores, in f32. A row's elements are cut
 * into parts, and parts into groups; a part is summed by itself, then the parts of a group in their order, then the groups. So whether a
 * warp has a part or a whole group, and however many tokens there are, a token's logits have the same bits.
 */
import { device, kernel, pointer, registers } from '../../../lang/index.js';
import { columnsOf, type LogitsTile, type RouterShape, rowsOf, threadsOf } from './shape.js';

/** Constants of the kernel and its parts. */
function logitsKit({ hidden, experts, weights }: RouterShape, tile: LogitsTile) {
  const { parts, groups, partWarps, octets, depth } = tile;
  const wide = weights === 'f32';
  return {
    ...{ EXPERTS: experts, LAST: experts - 1, TILES: Math.ceil(experts / columnsOf(tile)) },
    ...{ ROWS: rowsOf(tile), COLUMNS: columnsOf(tile), OCTETS: octets, SUMS: 4 * octets },
    ...{ PARTS: parts, PART_WARPS: partWarps, GROUPS: groups, GROUP_WARPS: partWarps / groups },
    SHARED: threadsOf(tile) * 4 * octets,
    ...{ UNITS: hidden / 8, PIECES: Math.ceil(hidden / 32), DEPTH: depth },
    ...{ WIDE: wide ? 2 : 1, THREE: wide, TERMS: wide ? 3 : 1 },
  };
}

export function logitsKernel(shape: RouterShape, tile: LogitsTile) {
  const kit = logitsKit(shape, tile);
  return kernel(
    {
      name: 'router_logits',
      maxThreads: threadsOf(tile),
      params: {
        /** [token][element] */
        x: pointer('bf16'),
        /** [expert][element] */
        weights: pointer(shape.weights),
        /** [token][expert] */
        logits: pointer('f32'),
        tokens: 'u32',
      },
      using: { ...kit, multiplyPart: multiplyPart(shape, kit) },
    },
    (g, { x, weights, logits, tokens }, u) => {
      // It waits for nothing: it is no programmatic launch (router/index.ts), so it begins when all before it has ended.
      g.releaseNext();
      const shared = g.shared('f32', u.SHARED);
      const tiles = ((tokens + u.ROWS - 1) / u.ROWS) * u.TILES;
      for (let at = g.blockIdx.x; at < tiles; at += g.gridDim.x) {
        const token = (at / u.TILES) * u.ROWS + (g.warpId / u.PART_WARPS) * 16;
        const expert = (at % u.TILES) * u.COLUMNS;
        const total = g.registers('f32', u.SUMS);
        if (token < tokens) {
          for (let n = g.u32(0); n < u.PARTS / u.PART_WARPS; n += 1) {
            const part = (g.warpId % u.PART_WARPS) * (u.PARTS / u.PART_WARPS) + n;
            const sums = g.registers('v16', u.OCTETS, g.pack('u32', [0, 0, 0, 0]));
            u.multiplyPart({ x, weights, token, tokens, expert, part, sums });
            for (const i of g.unroll(u.SUMS)) total[i]! += g.lane(sums[(i - (i % 4)) / 4]!, 'f32', i % 4);
          }
        }
        for (const i of g.unroll(u.SUMS)) g.store(shared.at(i * g.blockDim.x + g.threadIdx.x), total[i]!);
        g.barrier();
        if (g.warpId % u.PART_WARPS === 0) {
          for (const i of g.unroll(u.SUMS)) {
            let sum = g.f32(0);
            for (const group of g.unroll(u.GROUPS)) {
              let some = g.f32(0);
              for (const w of g.unroll(u.GROUP_WARPS))
                some += g.load(
                  shared.at(i * g.blockDim.x + g.threadIdx.x + (group * u.GROUP_WARPS + w) * 32),
                );
              sum += some;
            }
            const t = token + g.laneId / 4 + (i % 4 < 2 ? 0 : 8);
            const e = expert + 2 * (i - (i % 4)) + 2 * (g.laneId % 4) + (i % 2);
            if (t < tokens && e < u.EXPERTS) g.store(logits.at(t * u.EXPERTS + e), sum);
          }
        }
        g.barrier();
      }
    },
  );
}

/**
 * A warp: the sums of 16 tokens and some experts over one part of the elements, pieces of 32 that are `parts` apart. A lane loads
 * 8 elements that follow each other, of two tokens and of an expert in every eight. The tensor cores want other elements in a
 * lane, but the same of both; in which order they add up elements does not matter.
 */
const multiplyPart = ({ weights: dtype }: RouterShape, kit: ReturnType<typeof logitsKit>) =>
  device(
    {
      params: {
        ...{ x: pointer('bf16'), weights: pointer(dtype), token: 'u32', tokens: 'u32', expert: 'u32' },
        ...{ part: 'u32', sums: registers('v16') },
      },
      using: kit,
    },
    (g, { x, weights, token, tokens, expert, part, sums }, u) => {
      for (let first = part; first < u.PIECES; first += u.PARTS * u.DEPTH) {
        // Behind the last element all is zero.
        const rows = g.registers('v16', 2 * u.DEPTH, g.pack('u32', [0, 0, 0, 0]));
        const by = g.registers('v16', u.DEPTH * u.OCTETS * u.WIDE, g.pack('u32', [0, 0, 0, 0]));
        for (const d of g.unroll(u.DEPTH)) {
          const i = (first + d * u.PARTS) * 4 + (g.laneId % 4);
          if (i < u.UNITS) {
            for (const h of g.unroll(2)) {
              // Tokens and experts that there are not: the last one again, whose sums are not kept.
              const row = g.min(token + g.laneId / 4 + 8 * h, tokens - 1);
              rows[2 * d + h] = g.load(x.as('v16').at(row * u.UNITS + i));
            }
            for (const o of g.unroll(u.OCTETS)) {
              const row = g.min(expert + 8 * o + g.laneId / 4, g.u32(u.LAST));
              for (const w of g.unroll(u.WIDE))
                by[(d * u.OCTETS + o) * u.WIDE + w] = g.load(
                  weights.as('v16').at((row * u.UNITS + i) * u.WIDE + w),
                );
            }
          }
        }
        for (const d of g.unroll(u.DEPTH)) {
          for (const o of g.unroll(u.OCTETS)) {
            const terms = g.registers('v16', u.TERMS);
            if (u.THREE) {
              // A weight of f32 is the sum of three of bf16, each what rounding leaves of it.
              const left = g.registers('f32', 8);
              for (const i of g.unroll(8))
                left[i] = g.lane(by[(d * u.OCTETS + o) * 2 + (i - (i % 4)) / 4]!, 'f32', i % 4);
              for (const term of g.unroll(3)) {
                terms[term] = g.pack('bf16', left);
                for (const i of g.unroll(8)) {
                  const rest = left[i]! - g.f32(g.lane(terms[term]!, 'bf16', i));
                  // Of an infinity, and of a NaN, nothing is left.
                  left[i] = g.select((g.bits('u32', rest) & 0x7f800000) === 0x7f800000, g.f32(0), rest);
                }
              }
            } else {
              terms[0] = by[d * u.OCTETS + o]!;
            }
            for (const term of g.unroll(u.TERMS)) {
              for (const half of g.unroll(2)) {
                const upper = rows[2 * d]!;
                const lower = rows[2 * d + 1]!;
                const pairs = g.pack('u32', [
                  g.lane(upper, 'u32', 2 * half),
                  g.lane(lower, 'u32', 2 * half),
                  g.lane(upper, 'u32', 2 * half + 1),
                  g.lane(lower, 'u32', 2 * half + 1),
                ]);
                sums[o] = g.warp.mma(pairs, terms[term]!, half, sums[o]!);
              }
            }
          }
        }
      }
    },
  );
