/** What a dispatch does before it may read anything. */
import { device, list, pointer } from '../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { partsOf } from '../common/parts.js';
import { chunksOf } from './messages.js';
import type { PortableShape } from './window.js';

/** Asks for each warp's first rows and their ids to be brought near. */
export function prefetchRows(shape: PortableShape) {
  const { parts } = shape.dispatch;
  return device(
    {
      name: 'prefetch_rows',
      params: {
        topkIds: pointer('i32'),
        rows: list(pointer('v16'), shape.payloads.length),
        tokens: 'u32',
      },
      using: {
        K: shape.topK,
        ROUTES: shape.ranks * chunksOf(shape),
        REPLICAS: sharing(shape).replicas,
        PARTS: parts,
        PAYLOADS: shape.payloads.length,
        ROW_BYTES: shape.payloads.map(({ rowBytes }) => rowBytes),
        PART_BYTES: shape.payloads.map((payload) => partsOf(payload, parts).partBytes),
        /** Bytes that one prefetch brings. */
        LINE: 128,
      },
    },
    (g, { topkIds, rows, tokens }, u) => {
      let piece = g.warpId * g.gridDim.x + g.blockIdx.x;
      if (piece < u.ROUTES) piece += (g.blockDim.x / 32) * g.gridDim.x;
      piece -= u.ROUTES;
      const token = (piece / u.PARTS) * u.REPLICAS + (g.rank % u.REPLICAS);
      if (token >= tokens) return;
      for (const p of g.unroll(u.PAYLOADS)) {
        const row = rows[p]!.as('u8').at(token * u.ROW_BYTES[p]!);
        const start = (piece % u.PARTS) * u.PART_BYTES[p]!;
        const end = g.min(start + u.PART_BYTES[p]!, g.u32(u.ROW_BYTES[p]!));
        for (let at = start + g.laneId * u.LINE; at < end; at += 32 * u.LINE) g.prefetch(row.at(at));
      }
      if (g.laneId === 0) g.prefetch(topkIds.at(token * u.K));
    },
  );
}
