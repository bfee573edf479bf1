/** What a dispatch does before it may read anything. */
import { device, list, pointer } from '../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { partsOf } from '../common/parts.js';
import { team } from './team.js';
import type { OneSidedShape } from './window.js';

/** Asks for each team's first rows, ids and weights to be brought near. */
export function prefetchRows(shape: OneSidedShape) {
  const { parts } = shape.dispatch;
  return device(
    {
      name: 'prefetch_rows',
      params: {
        topkIds: pointer('i32'),
        topkWeights: pointer('f32'),
        rows: list(pointer('v16'), shape.payloads.length),
        tokens: 'u32',
      },
      using: {
        K: shape.topK,
        REPLICAS: sharing(shape).replicas,
        PARTS: parts,
        WEIGHTS: shape.weights,
        PAYLOADS: shape.payloads.length,
        ROW_BYTES: shape.payloads.map(({ rowBytes }) => rowBytes),
        PART_BYTES: shape.payloads.map((payload) => partsOf(payload, parts).partBytes),
        team: team(shape.dispatch),
        /** Bytes that one prefetch brings. */
        LINE: 128,
      },
    },
    (g, { topkIds, topkWeights, rows, tokens }, u) => {
      const piece = u.team.index() * g.gridDim.x + g.blockIdx.x;
      const token = (piece / u.PARTS) * u.REPLICAS + (g.rank % u.REPLICAS);
      if (token >= tokens) return;
      for (const p of g.unroll(u.PAYLOADS)) {
        const row = rows[p]!.as('u8').at(token * u.ROW_BYTES[p]!);
        const start = (piece % u.PARTS) * u.PART_BYTES[p]!;
        const end = g.min(start + u.PART_BYTES[p]!, g.u32(u.ROW_BYTES[p]!));
        for (let at = start + u.team.thread() * u.LINE; at < end; at += u.team.threads() * u.LINE)
          g.prefetch(row.at(at));
      }
      if (u.team.thread() === 0) {
        g.prefetch(topkIds.at(token * u.K));
        if (u.WEIGHTS) g.prefetch(topkWeights.at(token * u.K));
      }
    },
  );
}
