/** Which unit comes when: its expert, its rows, and its part of the rows that go out. */
import { device, pointer, record } from '../../../../lang/index.js';
import { sumUpTo } from '../../../families/common/sum.js';
import { type HopperKit, placeOf } from './kit.js';

/**
 * Lists the work of a plan, or of one expert that has `count` rows. One warp. Before `awaitPrevious` a plan may be read too: the launch
 * before awaited it, and let this one begin behind that. But an L1 may hold older bytes, so the loads are relaxed there.
 */
export const findWork = (kit: HopperKit) =>
  device(
    {
      params: {
        ...{ planned: record(kit.at.planned), ends: pointer('u32') },
        ...{ begins: pointer('u32'), counts: pointer('u32') },
      },
      using: { ...kit.u, ALL: kit.shape.rows === 'all', ROWS: kit.rows, AHEAD: kit.knownPlan, sumUpTo },
    },
    (g, { planned, ends, begins, counts }, u) => {
      let before = g.u32(0);
      for (let base = g.u32(0); base < u.EXPERTS; base += 32) {
        const e = base + g.laneId;
        let here = g.u32(0);
        let begin = g.u32(0);
        if (e < u.EXPERTS) {
          if (u.ALL) here = planned.count[0]!;
          else if (u.AHEAD) {
            here = g.load(planned.counts[0]!.at(e), { order: 'relaxed', scope: 'gpu' });
            begin = g.load(planned.offsets[0]!.at(e), { order: 'relaxed', scope: 'gpu' });
          } else {
            here = g.load(planned.counts[0]!.at(e));
            begin = g.load(planned.offsets[0]!.at(e));
          }
        }
        const end = before + u.sumUpTo({ value: (here + u.ROWS - 1) / u.ROWS });
        before = g.warp.shuffle(end, 31);
        if (e < u.EXPERTS) {
          g.store(ends.at(e), end);
          g.store(begins.at(e), begin);
          g.store(counts.at(e), here);
        }
      }
    },
  );

/** Tiles of rows that meet all weights before the next are begun: as many rows as the cache holds. */
const together = 16;

/**
 * Where unit `unit` lies. The search begins at an expert, before which there are `before` tiles of rows: those that the unit before
 * had. Units of the same weights and other rows follow each other, so that blocks that run at the same time share weights in the
 * cache.
 */
export const findUnit = (kit: HopperKit) =>
  device(
    {
      params: { unit: 'u32', ends: pointer('u32'), expert: 'u32', before: 'u32' },
      returns: placeOf,
      using: {
        ...{ ACROSS: kit.unitsAcross, ROWS: kit.rows, MADE: kit.made, TOGETHER: together },
        ...{ PARTS: kit.of.parts, STEPS: kit.stepsOfPart },
      },
    },
    (g, { unit: all, ends, expert: firstExpert, before: tilesBefore }, u) => {
      const unit = all / u.PARTS;
      const part = all % u.PARTS;
      let expert = firstExpert;
      let before = tilesBefore;
      let end = g.load(ends.at(expert));
      while (unit >= end * u.ACROSS) {
        expert += 1;
        before = end;
        end = g.load(ends.at(expert));
      }
      const within = unit - before * u.ACROSS;
      const first = (within / (u.TOGETHER * u.ACROSS)) * u.TOGETHER;
      const rowTiles = g.min(end - before - first, g.u32(u.TOGETHER));
      const turn = within - first * u.ACROSS;
      return {
        expert,
        before,
        row: (first + (turn % rowTiles)) * u.ROWS,
        element: (turn / rowTiles) * u.MADE,
        step: part * u.STEPS,
        part,
      };
    },
  );
