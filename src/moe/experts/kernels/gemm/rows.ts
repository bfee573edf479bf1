/**
 * A tile's rows on their way into a stage. As bf16 they are copied there while others are multiplied. As e4m3 they pass through
 * registers: loaded when a step begins, and at its end multiplied by their scales, rounded to bf16 and stored.
 */
import { device, list, pointer, record, registers } from '../../../../lang/index.js';
import { scaleBlock } from '../../../layer/index.js';
import { type GemmShape, type GemmTile, stageUnits, type TileSizes } from './shape.js';

/** The piece of a tile that a thread loads, and its source. */
export const tileInputs = ({ dtype }: GemmShape) =>
  record({
    from: pointer('v16'),
    /** Of e4m3. */
    scales: list(pointer('f32'), dtype === 'e4m3' ? 1 : 0),
    weights: pointer('v16'),
    /** The vectors of the first stage: of each of the thread's rows, and of its first row of weights. */
    sources: registers('u32'),
    column: 'u32',
    /** Of the tile's rows those that there are, and further ones. */
    rows: 'u32',
  });

/** Vectors of e4m3 that a thread holds, and their scales. */
export const heldRows = record({ vectors: registers('v16'), scales: registers('f32') });

/** Whether a thread loads the i-th of its rows: sixteen are loaded at a time where they are few, as they are multiplied. */
const takesRow = (tile: GemmTile, { rowVectors, rowsApart, someLoad }: TileSizes) =>
  device(
    {
      params: { i: 'u32', rows: 'u32' },
      returns: 'bool',
      using: { FEW: tile.few, SOME: someLoad, ROWS: tile.rows, VECTORS: rowVectors, APART: rowsApart },
    },
    (g, { i, rows }, u) => {
      const row = i * u.APART + g.threadIdx.x / u.VECTORS;
      return (!u.SOME || row < u.ROWS) && (!u.FEW || row / 16 < (rows + 15) / 16);
    },
  );

/** Starts the loads of the rows of a stage. Vector v of row r lies at place v ^ (r % 8). */
export const fetchRows = (shape: GemmShape, tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      params: { stage: pointer('v16'), inputs: tileInputs(shape), step: 'u32', held: heldRows },
      using: {
        U: stageUnits,
        VECTORS: sizes.rowVectors,
        THREADS: sizes.threads,
        PER_SCALE: scaleBlock / 16,
        takesRow: takesRow(tile, sizes),
      },
    },
    (g, { stage, inputs: { from, scales, sources, rows }, step, held }, u) => {
      const row = g.threadIdx.x / u.U;
      const at = stage.at(row * u.U + ((g.threadIdx.x % u.U) ^ (row % 8)));
      const further = step * u.VECTORS;
      for (const i of g.unroll(sources.length)) {
        if (u.takesRow({ i: g.u32(i), rows })) {
          const source = sources[i]! + further;
          if (scales.length > 0) {
            held.vectors[i] = g.load(from.at(source));
            held.scales[i] = g.load(scales[0]!.at(source / u.PER_SCALE));
          } else g.async.load(at.at(i * u.THREADS), from.at(source));
        }
      }
    },
  );

/** Of e4m3: what was fetched, as bf16, into its stage. */
export const putRows = (tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      params: { stage: pointer('v16'), rows: 'u32', held: heldRows },
      using: {
        U: stageUnits,
        VECTORS: sizes.rowVectors,
        APART: sizes.rowsApart,
        takesRow: takesRow(tile, sizes),
      },
    },
    (g, { stage, rows, held }, u) => {
      const row = g.threadIdx.x / u.VECTORS;
      const first = 2 * (g.threadIdx.x % u.VECTORS);
      for (const i of g.unroll(held.vectors.length)) {
        if (u.takesRow({ i: g.u32(i), rows })) {
          for (const half of g.unroll(2)) {
            const values = g.registers('f32', 8);
            for (const lane of g.unroll(8))
              values[lane] = g.f32(g.lane(held.vectors[i]!, 'e4m3', 8 * half + lane)) * held.scales[i]!;
            const place = (row + i * u.APART) * u.U + ((first + half) ^ (row % 8));
            g.store(stage.at(place), g.pack('bf16', values));
          }
        }
      }
    },
  );
