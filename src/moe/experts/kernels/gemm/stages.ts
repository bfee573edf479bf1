/**
 * A tile's way through shared memory. A stage holds 64 elements of the tile's rows and of its rows of weights, 8 vectors
 * each. Vector v of row r lies at place v ^ (r % 8) of its row, so that the 8 rows of a matrix, which a warp loads at once,
 * lie in different banks.
 */
import { constant, device, pointer, registers } from '../../../../lang/index.js';
import type { GemmKit } from './kit.js';
import { fetchRows } from './rows.js';
import { stageUnits } from './shape.js';

/** Starts the loads of one stage. A thread loads vector t % 8 of every so-manieth row of weights. */
export const loadStage = (kit: GemmKit) =>
  device(
    {
      params: { stage: pointer('v16'), inputs: kit.inputs, step: 'u32', held: kit.held },
      using: {
        ...kit.u,
        WEIGHTS: (kit.tile.columns * stageUnits) / kit.threads,
        // The next row of weights lies as far apart as the tile has it, or half of it where gates lie between.
        APART: (kit.threads / stageUnits / (kit.shape.gated ? 2 : 1)) * kit.u.WEIGHT_UNITS,
        fetchRows: fetchRows(kit),
      },
    },
    (g, { stage, inputs, step, held }, u) => {
      u.fetchRows({ stage, inputs, step, held });
      const { weights, column } = inputs;
      const row = g.threadIdx.x / u.U;
      const at = stage.at(row * u.U + ((g.threadIdx.x % u.U) ^ (row % 8)));
      const further = step * u.U;
      for (const i of g.unroll(u.WEIGHTS))
        g.async.load(at.at(u.ROW_UNITS + i * u.THREADS), weights.at(column + i * u.APART + further));
    },
  );

/** Loads parts k of 4 of a stage. */
export const loadParts = (kit: GemmKit) =>
  device(
    { params: { stage: pointer('v16'), k: constant<number>(), parts: kit.parts }, using: kit.u },
    (g, { stage, k, parts: { a, b, rows } }, u) => {
      const lane = g.laneId;
      const first = (g.warpId / u.WARP_COLUMNS) * (16 * u.ROW_PARTS);
      const row = first + (lane % 16);
      const column = (g.warpId % u.WARP_COLUMNS) * (16 * u.COLUMN_PARTS) + (lane / 16) * 8 + (lane % 8);
      const atA = stage.at(row * u.U + ((2 * k) ^ (lane / 16) ^ (lane % 8)));
      const atB = stage.at(u.ROW_UNITS + column * u.U + ((2 * k) ^ ((lane / 8) % 2) ^ (lane % 8)));
      const set = k % 2;
      for (const m of g.unroll(u.ROW_PARTS)) {
        if (!u.FEW || first + 16 * m < rows) a[set * u.ROW_PARTS + m] = g.warp.ldmatrix(atA.at(m * 16 * u.U));
      }
      for (const n of g.unroll(u.COLUMN_PARTS))
        b[set * u.COLUMN_PARTS + n] = g.warp.ldmatrix(atB.at(n * 16 * u.U));
    },
  );

/** Adds the product of parts k of 4 to the sums. */
export const multiplyParts = (kit: GemmKit) =>
  device(
    { params: { k: constant<number>(), parts: kit.parts, sums: registers('v16') }, using: kit.u },
    (g, { k, parts: { a, b, rows }, sums }, u) => {
      const set = k % 2;
      const first = (g.warpId / u.WARP_COLUMNS) * (16 * u.ROW_PARTS);
      for (const m of g.unroll(u.ROW_PARTS)) {
        if (!u.FEW || first + 16 * m < rows) {
          for (const n of g.unroll(u.COLUMN_PARTS)) {
            for (const half of g.unroll(2)) {
              const i = 2 * (m * u.COLUMN_PARTS + n) + half;
              sums[i] = g.warp.mma(a[set * u.ROW_PARTS + m]!, b[set * u.COLUMN_PARTS + n]!, half, sums[i]!);
            }
          }
        }
      }
    },
  );
