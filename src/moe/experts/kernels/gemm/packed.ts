/**
 * Weights of MXFP4: two e2m1 a byte, the first in its lower half, and a ue8m0 for each 32. They come to shared memory as they are, and become
 * bf16 in registers, on their way to the tensor cores. All of it is exact.
 *
 * In a stage there lie, behind its rows, 32 bytes of each row of weights. Behind them come the scales of the first 32 elements, a byte for
 * each row of weights, gates before what they scale; then the scales of the other 32.
 *
 * The tensor cores may add products up in any order, if rows and weights agree on it. So lane % 4 = q has elements 16 · q to 16 · q + 15
 * of a stage, which are eight bytes of weights. A byte's pair of bf16 comes from a table in shared memory: each lane has one of its own, in
 * its own bank. So a byte costs three instructions and no conflict; shifts and masks alone cost five, by the pipe that is busiest here.
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
 * Writes the table of pairs: [byte][lane]. An e2m1 has a sign, two bits of exponent and one of mantissa: in the places of a bf16's last
 * bits of exponent and its first of mantissa they make the same number divided by 2^126, subnormal ones too.
 */
export const fillTable = device({ params: { table: pointer('v16') } }, (g, { table }) => {
  for (let byte = g.threadIdx.x; byte < 256; byte += g.blockDim.x) {
    const signs = ((byte & 0x08) << 12) | ((byte & 0x80) << 24);
    const pair = signs | ((byte & 0x07) << 6) | ((byte & 0x70) << 18);
    // Threads begin at different vectors, in different banks.
    for (const v of g.unroll(8))
      g.store(table.at(byte * 8 + ((byte + v) % 8)), g.pack('u32', [pair, pair, pair, pair]));
  }
});

/** Makes four pairs of bf16 of a word's bytes, times a scale: of the first and the third, then of the others. */
const unpack = device(
  {
    params: {
      ...{ word: 'u32', table: pointer('u8'), by: 'u32' },
      ...{ pairs: registers('u32'), at: constant<number>() },
    },
  },
  (g, { word, table, by, pairs, at }) => {
    const places = g.registers('u32', 4);
    places[0] = word << 7;
    places[1] = word >>> 9;
    places[2] = word >>> 1;
    places[3] = word >>> 17;
    for (const i of g.unroll(4)) {
      const place = table.at((places[i]! & 0x7f80) | (4 * g.laneId)).as('u32');
      pairs[at + i] = g.multiplyPairs(g.load(place), by);
    }
  },
);

/** Adds the products of a stage and of `parts` times 16 rows to the sums. Branches between products would keep them from overlapping. */
const multiplyPacked = (kit: GemmKit) =>
  device(
    {
      params: {
        ...{ stage: pointer('v16'), table: pointer('u8') },
        ...{ parts: constant<number>(), sums: registers('v16') },
      },
      using: {
        ...{ ...kit.u, unpack, COLUMNS: kit.tile.columns, WEIGHTS: kit.tile.columns * packedUnits },
        // A bf16 of 2^(scale − 127 + 126 − 32), once in each half of a word; infinity where the exponent has no room for it.
        ...{ EXPONENT: 126 - shift, PAIR: 0x00800080 },
      },
    },
    (g, { stage, table, parts, sums }, u) => {
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
        // Pairs of a warp's rows, as those of weights: of the first and third of a lane's four, and of the others.
        const a = g.registers('v16', 2 * parts);
        for (const m of g.unroll(parts)) {
          const from = stage.at((row + 16 * m) * u.U + ((2 * quarter + t) ^ (g.laneId / 4)));
          const upper = g.load(from);
          const lower = g.load(from.at(8 * u.U));
          for (const half of g.unroll(2)) {
            const four = g.registers('u32', 4);
            for (const i of g.unroll(2)) {
              four[2 * i] = g.lane(upper, 'u32', half + 2 * i);
              four[2 * i + 1] = g.lane(lower, 'u32', half + 2 * i);
            }
            a[2 * m + half] = g.pack('u32', four);
          }
        }
        for (const n of g.unroll(u.COLUMN_PARTS)) {
          const pairs = g.registers('u32', 8);
          for (const half of g.unroll(2)) {
            const both = words[2 * n + half]!;
            const word = t === 0 ? g.u32(both) : g.u32(both >> 32n);
            u.unpack({ word, table, by: by[2 * n + half]!, pairs, at: 4 * half });
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
      const table = stages.at(u.STAGES * u.TILE_UNITS).as('u8');
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
        if (u.FEW && rows <= 16) u.multiplyPacked({ stage, table, parts: 1, sums });
        else if (u.FEW && u.ROW_PARTS > 2 && rows <= 32) u.multiplyPacked({ stage, table, parts: 2, sums });
        else u.multiplyPacked({ stage, table, parts: u.ROW_PARTS, sums });
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
