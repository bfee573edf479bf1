/** Quantises rows of bf16 to e4m3 with scales, where a dispatch reads them. */
import { device, pointer, record } from '../../../lang/index.js';
import { type Layer, loadValues, scaledFormats } from '../../layer/index.js';

/**
 * A lane's vector `i` of a row, as it travels: 16 values, and the word of scales that it has in common with the seven lanes beside it.
 * All lanes of the warp take part. Those from `end` on load nothing; 8 vectors whose scales are a word are all there, or none is.
 */
export function roundVector({ payloads }: Pick<Layer, 'payloads'>, p: number) {
  const { rowBytes, rounded } = payloads[p]!;
  return device(
    {
      params: { row: pointer('v16'), i: 'u32', end: 'u32' },
      returns: record({ vector: 'v16', scales: 'u32' }),
      using: {
        ...{ ROW_UNITS: rowBytes / 16, loadValues: loadValues({ hidden: rowBytes }, 'bf16') },
        narrow: scaledFormats[rounded!].rounding.narrow,
      },
    },
    (g, { row, i, end }, u) => {
      const values = g.registers('f32', 16);
      u.loadValues({ from: row, i: g.select(i < end, i, g.u32(u.ROW_UNITS)), values });
      const scales = u.narrow({ values });
      return { vector: g.pack('e4m3', values), scales };
    },
  );
}
