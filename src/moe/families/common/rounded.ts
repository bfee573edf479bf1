/**
 * A partial row as e4m3: stretches of 32 vectors, each behind it a vector of the 4 scales that belong to it, so that a part
 * of a row is one piece of memory. The last stretch may be shorter. docs/semantics.md has the arithmetic.
 */
import { device, pointer, registers } from '../../../lang/index.js';
import { dtypes, type Layer } from '../../layer/index.js';
import { quantise } from './quantise.js';
import { partialDtype } from './received.js';

/** Vectors of a stretch: the lanes' elements, then the scales. */
export const stretchVectors = 33;

const stretchesOf = ({ output }: Pick<Layer, 'output'>): number => Math.ceil(output.hidden / (32 * 16));

/** Vectors of a whole row. */
export const returnedVectors = (layer: Pick<Layer, 'output'>): number =>
  Math.ceil(layer.output.hidden / 16) + stretchesOf(layer);

/** Where lane i of a stretch finds its vector, and the scale of it. */
export const rounding = (layer: Pick<Layer, 'output'>) => ({
  /** Vectors of elements in a row, and of its last stretch. */
  UNITS: layer.output.hidden / 16,
  STRETCHES: stretchesOf(layer),
  STRETCH: stretchVectors,
});

/** Rounds 16 values of each lane of a warp, and stores them as a stretch of the row at `to`. */
export const storeStretch = (layer: Pick<Layer, 'output'>) =>
  device(
    {
      name: 'store_stretch',
      params: { to: pointer('v16'), stretch: 'u32', values: registers('f32', 16) },
      using: { UNITS: rounding(layer).UNITS, STRETCH: stretchVectors, quantise },
    },
    (g, { to, stretch, values }, u) => {
      const scale = u.quantise({ values });
      if (stretch * 32 + g.laneId < u.UNITS) {
        const here = to.at(stretch * u.STRETCH);
        const vectors = g.min(u.UNITS - stretch * 32, g.u32(32));
        g.store(here.at(g.laneId), g.pack('e4m3', values));
        if (g.laneId % 8 === 0) g.store(here.as('u32').at(vectors * 4 + g.laneId / 8), scale);
      }
    },
  );

/** Rounds one stretch of a row in memory; all lanes of a warp, of which each has 16 elements. */
export function roundStretch(layer: Layer) {
  const { size } = dtypes[partialDtype(layer)];
  return device(
    {
      name: 'round_stretch',
      params: { from: pointer('v16'), to: pointer('v16'), stretch: 'u32' },
      using: {
        UNITS: rounding(layer).UNITS,
        DTYPE: partialDtype(layer),
        /** The vectors that hold 16 elements, and the elements in each. */
        VECTORS: size,
        LANES: 16 / size,
        storeStretch: storeStretch(layer),
      },
    },
    (g, { from, to, stretch }, u) => {
      const i = stretch * 32 + g.laneId;
      const row = g.registers('v16', u.VECTORS);
      if (i < u.UNITS) {
        for (const v of g.unroll(u.VECTORS)) row[v] = g.load(from.at(i * u.VECTORS + v), { cache: 'stream' });
      }
      const values = g.registers('f32', 16);
      for (const n of g.unroll(16))
        values[n] = g.f32(g.lane(row[(n - (n % u.LANES)) / u.LANES]!, u.DTYPE, n % u.LANES));
      u.storeStretch({ to, stretch, values });
    },
  );
}
