/** Brings weights of MXFP4 and their scales to their ring, as they are: of all units of this block. One thread. */
import { device } from '../../../../lang/index.js';
import { work } from './kit.js';
import type { PackedKit } from './packed-kit.js';
import { findUnit } from './units.js';

export const fetchUnits = ({ base, ring, sources, u: numbers }: PackedKit) =>
  device(
    { params: { ring, work, sources }, using: { ...numbers, findUnit: findUnit(base) } },
    (g, { ring, work, sources: { weights, scales } }, u) => {
      let expert = g.u32(0);
      let before = g.u32(0);
      let turn = g.u32(0);
      for (let unit = g.blockIdx.x; unit < work.units; unit += g.gridDim.x) {
        const place = u.findUnit({ unit, ends: work.ends, expert, before });
        before = place.before;
        expert = place.expert;
        const row = expert * u.WEIGHT_ROWS + place.element;
        for (let step = g.u32(0); step < u.STEPS; step += u.FETCHED) {
          const stage = u.acquirePacked({ gates: ring.gates, step: turn });
          const full = ring.gates.full.at(stage);
          g.mbarrier.expect(full, u.BYTES);
          const block = expert * u.BLOCKS + 2 * (place.step + step);
          for (const half of g.unroll(u.HALVES)) {
            const at = stage * u.HALVES + half;
            const over = half * u.OUTPUTS;
            g.tensor.load(ring.weights.at(at), weights[0]!, [row + over, 32 * (place.step + step)], full);
            g.tensor.load(ring.scales.at(at), scales[0]!, [block, place.element + over], full);
          }
          turn += 1;
        }
      }
    },
  );
