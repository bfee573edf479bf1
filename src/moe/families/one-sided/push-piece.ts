/** What this rank's experts made of a token of each rank's share, on its way home. */
import { device, peers } from '../../../lang/index.js';
import { formatOf, sharing } from '../../layer/index.js';
import { copyParams, copyRow, tellCopied } from './copies.js';
import { pushRow } from './push-row.js';
import { pushScaled } from './scaled.js';
import type { OneSidedShape, OneSidedWindow } from './window.js';

/** Pushes one piece (a part of a token's row) to all ranks that sent the token here. */
export function pushPiece(shape: OneSidedShape, window: OneSidedWindow) {
  const { rounding } = formatOf(shape.output);
  return device(
    {
      name: 'push_piece',
      params: { win: peers(window), piece: 'u32', epoch: 'u32', ...copyParams },
      using: {
        RANKS: shape.ranks,
        REPLICAS: sharing(shape).replicas,
        PARTS: shape.combine.parts,
        // Where rows are rounded on their way, this rank's own are too.
        OTHERS: rounding === null ? shape.ranks - 1 : shape.ranks,
        COPIES: shape.combine.way === 'bulk',
        pushRow: rounding === null ? pushRow(shape) : pushScaled(shape, rounding),
        copyRow: copyRow(shape, window),
        tellCopied: tellCopied(shape, window),
      },
    },
    (g, { win, piece, epoch, bulk, copied }, u) => {
      const mine = win.at(g.rank);
      const turn = piece / u.PARTS;
      // Ranks start with different peers, so that no window is everybody's first. One source after the other: several at
      // a time were slower (docs/results).
      for (let other = 1; other <= u.OTHERS; other += 1) {
        const source = (g.rank + other) % u.RANKS;
        const group = source / u.REPLICAS;
        const token = turn * u.REPLICAS + (source % u.REPLICAS);
        if (g.load(mine.present.at(epoch % 2, group, token)) !== 0) {
          const from = mine.output.at(group, token).as('v16');
          const to = win.at(source).returned.at(g.rank, turn);
          const part = piece % u.PARTS;
          if (u.COPIES) u.copyRow({ win, from, to, part, epoch, bulk, copied });
          else u.pushRow({ from, to, part });
        }
      }
      if (u.COPIES) {
        // Where nothing of this piece travelled, nothing has been told meanwhile.
        u.tellCopied({ win, epoch, copied });
        copied[1] = piece + 1;
      }
    },
  );
}
