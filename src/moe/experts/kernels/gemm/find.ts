/** Which tiles there are, and where a thread finds what it loads of one. */
import { device, pointer, record, registers } from '../../../../lang/index.js';
import { sumUpTo } from '../../../families/common/sum.js';
import type { GemmKit } from './kit.js';

/** Counts tiles of rows, up to each expert. One warp. */
export const endTiles = (kit: GemmKit) =>
  device(
    { params: { planned: record(kit.planned), ends: pointer('u32') }, using: { ...kit.u, sumUpTo } },
    (g, { planned: { counts, count }, ends }, u) => {
      let before = g.u32(0);
      for (let base = g.u32(0); base < u.EXPERTS; base += 32) {
        const e = base + g.laneId;
        let rows = g.u32(0);
        if (e < u.EXPERTS) {
          if (count.length > 0) rows = count[0]!;
          else rows = g.load(counts[0]!.at(e));
        }
        const end = before + u.sumUpTo({ value: (rows + u.ROWS - 1) / u.ROWS });
        before = g.warp.shuffle(end, 31);
        if (e < u.EXPERTS) g.store(ends.at(e), end);
      }
    },
  );

/**
 * How many tiles are left whole, and into how many pieces the others are cut. Where the last would keep half of the blocks or
 * fewer, each is cut for two or four.
 */
export const cutLast = ({ u }: GemmKit) =>
  device(
    { params: { tiles: 'u32' }, returns: record({ whole: 'u32', cuts: 'u32' }), using: u },
    (g, { tiles }, { CUTS }) => {
      const left = tiles % g.gridDim.x;
      let cuts = g.u32(1);
      if (CUTS >= 2 && 2 * left <= g.gridDim.x) cuts = 2;
      if (CUTS >= 4 && 4 * left <= g.gridDim.x) cuts = 4;
      return { whole: tiles - left, cuts };
    },
  );

/** The first vector of each row that this thread loads. Behind the last row it loads the last one again. */
export const findSources = (kit: GemmKit) =>
  device(
    { params: { routes: kit.routes, row: 'u32', rows: 'u32', sources: registers('u32') }, using: kit.u },
    (g, { routes, row, rows, sources }, u) => {
      for (const i of g.unroll(sources.length)) {
        let from = row + g.min(g.threadIdx.x / u.ROW_VECTORS + i * u.ROWS_APART, rows - 1);
        if (routes.length > 0) from = g.u32(g.load(routes[0]!.at(from))) / u.K;
        sources[i] = from * u.INPUT_VECTORS + (g.threadIdx.x % u.ROW_VECTORS);
      }
    },
  );

/** The first vector of the first row of weights that this thread loads. Of 16 rows in a tile 8 are gates. */
export const findWeights = (kit: GemmKit) =>
  device(
    { params: { expert: 'u32', across: 'u32' }, returns: 'u32', using: kit.u },
    (g, { expert, across }, u) => {
      const row = g.threadIdx.x / u.WEIGHT_VECTORS;
      let column = expert * u.OUTPUTS + across * u.MADE + row;
      if (u.GATED) {
        const plane = 2 * expert + ((row / 8) % 2);
        column = plane * u.OUTPUTS + across * u.MADE + (row / 16) * 8 + (row % 8);
      }
      return column * u.WEIGHT_UNITS + (g.threadIdx.x % u.WEIGHT_VECTORS);
    },
  );
