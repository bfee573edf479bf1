/** One tile from its rows to its rows: where they are, their sums, and where those go. */
import { device, pointer, record } from '../../../../lang/index.js';
import { findSources, findWeights } from './find.js';
import type { GemmKit } from './kit.js';
import { multiplyTile } from './multiply.js';
import { findStrip, multiplyPackedTile } from './packed.js';
import { addBiases, storeTile } from './store.js';

/** The expert of a tile, its first row, that many of the expert from there on, and which of those beside each other. */
const tilePlace = record({ expert: 'u32', row: 'u32', rows: 'u32', across: 'u32' });

export const makeTile = (kit: GemmKit) =>
  device(
    {
      params: { stages: pointer('v16'), pointers: record(kit.pointers), place: tilePlace },
      using: {
        ...{ ...kit.u, SUMS: 2 * kit.u.ROW_PARTS * kit.u.COLUMN_PARTS },
        ...{ findSources: findSources(kit), findWeights: findWeights(kit), findStrip: findStrip(kit) },
        multiplyTile: (kit.shape.packed ? multiplyPackedTile : multiplyTile)(kit),
        ...{ addBiases: addBiases(kit), storeTile: storeTile(kit) },
      },
    },
    (
      g,
      {
        stages,
        pointers: { routes, from, scales, weights, weightScales, to, bias },
        place: { expert, row, rows, across },
      },
      u,
    ) => {
      const sources = g.registers('u32', u.SOURCES);
      u.findSources({ routes, row, rows, sources });
      const column = u.findWeights({ expert, across });
      const sums = g.registers('v16', u.SUMS);
      const strip = u.PACKED ? u.findStrip({ expert, across }) : g.u32(0);
      const inputs = { from, scales, weights: weights.as('v16'), weightScales, sources, column, strip, rows };
      u.multiplyTile({ stages, inputs, sums });
      if (bias.length > 0) u.addBiases({ bias: bias[0]!, expert, element: across * u.MADE, sums });
      u.storeTile({ to, row, rows, element: across * u.MADE, sums });
    },
  );
