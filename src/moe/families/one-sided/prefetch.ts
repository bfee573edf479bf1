/** What a dispatch does before it may read anything. */
import { device, list, pointer } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { prefetchPart } from '../common/prefetch.js';
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
        team: team(shape.dispatch),
        prefetchPart: prefetchPart(shape, parts),
      },
    },
    (g, { topkIds, topkWeights, rows, tokens }, u) => {
      const piece = u.team.index() * g.gridDim.x + g.blockIdx.x;
      const token = (piece / u.PARTS) * u.REPLICAS + (g.rank % u.REPLICAS);
      if (token >= tokens) return;
      const part = piece % u.PARTS;
      u.prefetchPart({ rows, token, part, thread: u.team.thread(), threads: u.team.threads() });
      if (u.team.thread() === 0) {
        g.prefetch(topkIds.at(token * u.K));
        if (u.WEIGHTS) g.prefetch(topkWeights.at(token * u.K));
      }
    },
  );
}
