/**
 * Weights of MXFP4: two e2m1 a byte, the first in its lower half, and a ue8m0 for each 32. They come to shared memory as they are, and become
 * bf16 in registers, on their way to the tensor cores. All of it is exact.
 *
 * In a stage there lie, behind its rows, 32 bytes of each row of weights. Behind them come the scales of the first 32 elements, a byte for
 * each row of weights, gates before what they scale; then the scales of the other 32.
 *
 * The tensor cores may add products up in any order, if rows and weights agree on it. So lane % 4 = q has elements 16 · q to 16 · q + 15
 * of a stage, which are eight bytes of weights. Of each eight elements a lane's word has, the first and the fifth make a pair, the second and the sixth, and
 * so on: their nibbles have the same place in the halves of the word.
 */
import { constant, device, pointer, registers } from '../../../../lang/index.js';
import type { GemmKit } from './kit.js';
import { fetchRows, putRows } from './rows.js';
import { packedUnits } from './shape.js';

/** Sums come out divided by 2^32, so that larger scales are a bf16. */
const shift = 32;

/** The first vector of scales that this thread loads. */
export const findStrip = ({ u: numbers, tile }: GemmKit) =>
  device(
    {
      params: { expert: 'u32', across: 'u32' },
      returns: 'u32',
      using: { ...numbers, STRIP: tile.columns / 16, STRIPS: numbers.STEPS * packedUnits },
    },
    (g, { expert, across }, u) => {
      const within = (g.threadIdx.x % u.STRIP) * 16;
      const block = expert * u.STRIPS + g.threadIdx.x / u.STRIP;
      return (
        (block * u.WEIGHT_ROWS + across * u.MADE + (within / u.MADE) * u.OUTPUTS + (within % u.MADE)) / 16
      );
    },
  );

/** Starts the loads of a stage's weights and their scales. */
export const loadPacked = ({ inputs, tile, threads, shape, u: numbers }: GemmKit) =>
  device(
    {
      params: { stage: pointer('v16'), inputs, step: 'u32' },
      using: {
        ...{ ...numbers, VECTORS: tile.columns * packedUnits, SCALES: (tile.columns / 16) * packedUnits },
        LOADS: Math.ceil((tile.columns * packedUnits) / threads),
        APART: (threads / packedUnits / (shape.gated ? 2 : 1)) * numbers.WEIGHT_UNITS,
        STEP: (numbers.WEIGHT_ROWS / 16) * packedUnits,
      },
    },
    (g, { stage, inputs: { weights, weightScales, column, strip }, step }, u) => {
      const at = stage.at(u.ROW_UNITS + g.threadIdx.x);
      for (const i of g.unroll(u.LOADS)) {
        if (i * u.THREADS + g.threadIdx.x < u.VECTORS)
          g.async.load(at.at(i * u.THREADS), weights.at(column + i * u.APART + step * u.WEIGHT_VECTORS));
      }
      if (g.threadIdx.x < u.SCALES)
        g.async.load(at.at(u.VECTORS), weightScales[0]!.at(strip + step * u.STEP));
    },
  );

/**
 * Makes four pairs of bf16 of eight e2m1, times a scale. An e2m1 has a sign, two bits of exponent and one of mantissa: in the places of a bf16's last
 * bits of exponent and its first of mantissa they make the same number divided by 2^126, subnormal ones too.
 */
const unpack = device(
  {
    params: { word: 'u32', by: 'u32', pairs: registers('u32'), at: constant<number>() },
    using: { SIGNS: 0x80008000, REST: 0x01c001c0 },
  },
  (g, { word, by, pairs, at }, u) => {
    const rest = g.registers('u32', 4);
    rest[0] = word << 6;
    rest[1] = word << 2;
    rest[2] = word >>> 2;
    rest[3] = word >>> 6;
    for (const i of g.unroll(4))
      pairs[at + i] = g.multiplyPairs((rest[i]! & u.REST) | ((word << (12 - 4 * i)) & u.SIGNS), by);
  },
);

/** Adds the products of a stage and of `parts` times 16 rows to the sums. Branches between products would keep them from overlapping. */
const multiplyPacked = (kit: GemmKit) =>
  device(
    {
      params: { stage: pointer('v16'), parts: constant<number>(), sums: registers('v16') },
      using: {
        ...{ ...kit.u, unpack, COLUMNS: kit.tile.columns, WEIGHTS: kit.tile.columns * packedUnits },
        // A bf16 of 2^(scale − 127 + 126 − 32), once in each half of a word; infinity where the exponent has no room for it.
        ...{ EXPONENT: 126 - shift, PAIR: 0x00800080 },
      },
    },
    (g, { stage, parts, sums }, u) => {
      const row = (g.warpId / u.WARP_COLUMNS) * (16 * u.ROW_PARTS) + g.laneId / 4;
      const own = (g.warpId % u.WARP_COLUMNS) * (16 * u.COLUMN_PARTS) + g.laneId / 4;
      const quarter = g.laneId % 4;
      const words = g.registers('u64', 2 * u.COLUMN_PARTS);
      const by = g.registers('u32', 2 * u.COLUMN_PARTS);
      const weights = stage
        .at(u.ROW_UNITS)
        .as('u64')
        .at(own * 4 + quarter);
      const scales = stage
        .at(u.ROW_UNITS + u.WEIGHTS)
        .as('u8')
        .at((quarter / 2) * u.COLUMNS);
      for (const n of g.unroll(2 * u.COLUMN_PARTS)) {
        words[n] = g.load(weights.at(32 * n));
        let place = own + 8 * n;
        if (u.GATED) place = (n % 2) * u.MADE + ((own - g.laneId / 4) / 2 + 4 * (n - (n % 2)) + g.laneId / 4);
        by[n] = g.min(g.load(scales.at(place)) + u.EXPONENT, g.u32(255)) * u.PAIR;
      }
      for (const t of g.unroll(2)) {
        // Pairs of a warp's rows, as those of weights: of the first half of a lane's eight elements, and of the second.
        const a = g.registers('v16', 2 * parts);
        for (const m of g.unroll(parts)) {
          const from = stage.at((row + 16 * m) * u.U + ((2 * quarter + t) ^ (g.laneId / 4)));
          const upper = g.load(from);
          const lower = g.load(from.at(8 * u.U));
          for (const half of g.unroll(2)) {
            const four = g.registers('u32', 4);
            four[0] = (g.lane(upper, 'u32', half) & 0xffff) | (g.lane(upper, 'u32', half + 2) << 16);
            four[1] = (g.lane(lower, 'u32', half) & 0xffff) | (g.lane(lower, 'u32', half + 2) << 16);
            four[2] = (g.lane(upper, 'u32', half) >>> 16) | (g.lane(upper, 'u32', half + 2) & 0xffff0000);
            four[3] = (g.lane(lower, 'u32', half) >>> 16) | (g.lane(lower, 'u32', half + 2) & 0xffff0000);
            a[2 * m + half] = g.pack('u32', four);
          }
        }
        for (const n of g.unroll(u.COLUMN_PARTS)) {
          const pairs = g.registers('u32', 8);
          for (const half of g.unroll(2)) {
            const both = words[2 * n + half]!;
            const word = t === 0 ? g.u32(both) : g.u32(both >> 32n);
            u.unpack({ word, by: by[2 * n + half]!, pairs, at: 4 * half });
          }
          for (const part of g.unroll(2)) {
            const b = g.registers('u32', 4);
            for (const i of g.unroll(4)) b[i] = pairs[4 * ((i - (i % 2)) / 2) + 2 * part + (i % 2)]!;
            const packed = g.pack('u32', b);
            for (const m of g.unroll(parts)) {
              for (const half of g.unroll(2)) {
                const i = 2 * (m * u.COLUMN_PARTS + n) + half;
                sums[i] = g.warp.mma(a[2 * m + part]!, packed, half, sums[i]!);
              }
            }
          }
        }
      }
    },
  );

/** A tile's sums, stage after stage: each is loaded while those before are multiplied. */
export const multiplyPackedTile = (kit: GemmKit) =>
  device(
    {
      params: { stages: pointer('v16'), inputs: kit.inputs, sums: registers('v16') },
      using: {
        // There are no arrays of none.
        ...{ ...kit.u, HELD: kit.u.E4M3 ? kit.u.SOURCES : 1, UNSHIFT: 2 ** shift },
        ...{ fetchRows: fetchRows(kit), putRows: putRows(kit), loadPacked: loadPacked(kit) },
        multiplyPacked: multiplyPacked(kit),
      },
    },
    (g, { stages, inputs, sums }, u) => {
      const vectors = g.registers('v16', u.HELD);
      const scales = g.registers('f32', u.HELD);
      const { rows } = inputs;
      const held = { vectors, scales };
      for (const step of g.unroll(u.STAGES - 1)) {
        const stage = stages.at(step * u.TILE_UNITS);
        if (step < u.STEPS) {
          u.fetchRows({ stage, inputs, step, held });
          u.loadPacked({ stage, inputs, step });
          if (u.E4M3) u.putRows({ stage, rows, held });
        }
        g.async.commit();
      }
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        // This thread's loads of the stage are there; behind the barrier those of others are too, and all have multiplied the stage
        // before, whose place the next loads take.
        g.async.wait(u.STAGES - 2);
        g.barrier();
        const later = step + u.STAGES - 1;
        const next = stages.at((later % u.STAGES) * u.TILE_UNITS);
        if (later < u.STEPS) {
          u.fetchRows({ stage: next, inputs, step: later, held });
          u.loadPacked({ stage: next, inputs, step: later });
        }
        g.async.commit();
        const stage = stages.at((step % u.STAGES) * u.TILE_UNITS);
        // Of few rows those are multiplied that there are, 16 at a time.
        if (u.FEW && rows <= 16) u.multiplyPacked({ stage, parts: 1, sums });
        else if (u.FEW && u.ROW_PARTS > 2 && rows <= 32) u.multiplyPacked({ stage, parts: 2, sums });
        else u.multiplyPacked({ stage, parts: u.ROW_PARTS, sums });
        // The barrier of the next step comes before these rows are read.
        if (u.E4M3) {
          if (later < u.STEPS) u.putRows({ stage: next, rows, held });
        }
      }
      // All have multiplied the last stages: the next tile's loads may overwrite them.
      g.barrier();
      for (const i of g.unroll(sums.length)) {
        const four = g.registers('f32', 4);
        for (const e of g.unroll(4)) four[e] = g.lane(sums[i]!, 'f32', e) * u.UNSHIFT;
        sums[i] = g.pack('f32', four);
      }
    },
  );
