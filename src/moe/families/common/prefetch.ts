/** Rows that a dispatch will read, brought near before it may read them. */
import { device, list, pointer } from '../../../lang/index.js';
import { areScales, type Layer } from '../../layer/index.js';
import { partsOf } from './parts.js';

/** One part of a token's rows of all payloads, by `threads` of which this is number `thread`. */
export function prefetchPart(layer: Pick<Layer, 'payloads'>, parts: number) {
  const { payloads } = layer;
  // Rows that dispatch rounds come twice as long as they travel; their scales do not come.
  const times = payloads.map(({ rounded }, p) => (rounded ? 2 : areScales(layer, p) ? 0 : 1));
  return device(
    {
      params: {
        ...{ rows: list(pointer('v16'), payloads.length), token: 'u32', part: 'u32', thread: 'u32' },
        threads: 'u32',
      },
      using: {
        ...{ PAYLOADS: payloads.length, ROW_BYTES: payloads.map(({ rowBytes }, p) => times[p]! * rowBytes) },
        PART_BYTES: times.map((times, p) => times * partsOf(layer, p, parts).partBytes),
        /** Bytes that one prefetch brings. */
        LINE: 128,
      },
    },
    (g, { rows, token, part, thread, threads }, u) => {
      for (const p of g.unroll(u.PAYLOADS)) {
        const row = rows[p]!.as('u8').at(token * u.ROW_BYTES[p]!);
        const start = part * u.PART_BYTES[p]!;
        const end = g.min(start + u.PART_BYTES[p]!, g.u32(u.ROW_BYTES[p]!));
        for (let at = start + thread * u.LINE; at < end; at += threads * u.LINE) g.prefetch(row.at(at));
      }
    },
  );
}
