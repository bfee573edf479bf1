/** What a dispatch does before it may read anything. */
import { device, list, pointer } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { prefetchPart } from '../common/prefetch.js';
import { chunksOf } from './messages.js';
import type { PortableShape } from './window.js';

/** Asks for each warp's first rows and their ids to be brought near. */
export function prefetchRows(shape: PortableShape) {
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
        PARTS: shape.dispatch.parts,
        prefetchPart: prefetchPart(shape, shape.dispatch.parts),
      },
    },
    (g, { topkIds, rows, tokens }, u) => {
      let piece = g.warpId * g.gridDim.x + g.blockIdx.x;
      if (piece < u.ROUTES) piece += (g.blockDim.x / 32) * g.gridDim.x;
      piece -= u.ROUTES;
      const token = (piece / u.PARTS) * u.REPLICAS + (g.rank % u.REPLICAS);
      if (token >= tokens) return;
      u.prefetchPart({ rows, token, part: piece % u.PARTS, thread: g.laneId, threads: g.u32(32) });
      if (g.laneId === 0) g.prefetch(topkIds.at(token * u.K));
    },
  );
}
