/**
 * Sums on their way to the other ranks of a group. Each rank adds up its share of the group's tokens and hands every
 * vector on as soon as it has it; the others take it as they take rows (arrival.ts). So a row travels once to a group,
 * and a sum once to each other rank of it.
 */
import { device } from '../../../lang/index.js';
import { outputRowBytes } from '../../layer/index.js';
import { turnParams } from '../common/params.js';
import type { OneSided } from './kit.js';
import { partVectors } from './window.js';

/** Hands one vector of a token's sum to all others. */
export const sendSum = ({ at: { win }, u }: OneSided) =>
  device(
    { params: { win, token: 'u32', i: 'u32', vector: 'v16' }, using: u },
    (g, { win, token, i, vector }, u) => {
      const whole = u.filled({ vector });
      for (let other = g.u32(1); other < u.REPLICAS; other += 1) {
        const home = win.at(u.mateOf({ other })).sums.at(token, i);
        g.store(home, whole, { order: 'relaxed', scope: 'sys' });
      }
    },
  );

/** Takes the same part of the sums that the others made in this turn. */
export const receiveSums = (o: OneSided) =>
  device(
    {
      params: turnParams(o.window, o.shape),
      using: {
        ...{ ...o.u, ...o.phases.combine },
        ...{ UNITS: outputRowBytes(o.shape) / 16, PART_UNITS: partVectors(o.shape) },
      },
    },
    (g, { win, out, turn, tokens, part, epoch, patience }, u) => {
      const mine = win.at(g.rank);
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let other = g.u32(1); other < u.REPLICAS; other += 1) {
        const peer = u.mateOf({ other });
        const token = turn * u.REPLICAS + (peer % u.REPLICAS);
        if (token < tokens) {
          for (let i = part * u.PART_UNITS + u.team.thread(); i < end; i += u.team.threads()) {
            const home = mine.sums.at(token, i);
            const vector = u.awaitVector({ mine, home, peer, epoch, patience });
            u.makeEmpty({ home });
            g.store(out.as('v16').at(token * u.UNITS + i), vector, { cache: 'stream' });
          }
        }
      }
    },
  );
