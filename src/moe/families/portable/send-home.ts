/** One part of what this rank's experts made of a token, on its way home; a warp. */
import { device, pointer } from '../../../lang/index.js';
import { formatOf, loadValues, type Rounding, storeStretch, stretchesOf } from '../../layer/index.js';
import { numbers } from '../common/params.js';
import { partialDtype } from '../common/received.js';
import type { Portable } from './kit.js';
import { returnedParts, returnedRow } from './window.js';

/** Puts one returned row into the window of its source. Behind it its source is told that it is there. */
export function sendHome(p: Portable) {
  const { shape } = p;
  const { unit, units } = returnedRow(shape);
  const { partUnits } = returnedParts(shape);
  const { rounding } = formatOf(shape.output);
  return device(
    {
      params: { win: p.at.win, ...numbers('source', 'turn', 'part', 'epoch') },
      using: {
        ...{ ...p.u, UNITS: units, PART_UNITS: partUnits, put: p.put(unit) },
        /** Where it lies: where the experts left it, or where the warp has rounded it to. */
        whatTravels: rounding === null ? asItLies(p) : rounded(p, rounding),
      },
    },
    (g, { win, source, turn, part, epoch }, u) => {
      const group = source / u.REPLICAS;
      const token = turn * u.REPLICAS + (source % u.REPLICAS);
      const there = win.at(source);
      const start = part * u.PART_UNITS;
      const count = g.min(u.UNITS - start, g.u32(u.PART_UNITS));
      u.put({
        mine: win.at(g.rank),
        peer: source,
        to: there.returned.at(g.rank, turn, start),
        from: u.whatTravels({ mine: win.at(g.rank), group, token, start, count }),
        count,
        signal: there.home.at(g.rank, turn, part),
        value: epoch,
        adds: false,
      });
    },
  );
}

const partParams = ({ at: { mine } }: Portable) => ({ mine, ...numbers('group', 'token', 'start', 'count') });

function asItLies(p: Portable) {
  const { unit } = returnedRow(p.shape);
  return device(
    { params: partParams(p), returns: pointer(unit), using: { UNIT: unit } },
    (_, { mine, group, token, start }, u) => mine.output.at(group, token, 0).as(u.UNIT).at(start),
  );
}

function rounded(p: Portable, rounding: Rounding) {
  const { shape } = p;
  const { output } = shape;
  return device(
    {
      params: partParams(p),
      returns: pointer('v16'),
      using: {
        ...{ STRETCH: stretchesOf(output).STRETCH, loadValues: loadValues(output, partialDtype(shape)) },
        storeStretch: storeStretch(output, rounding),
      },
    },
    (g, { mine, group, token, start, count }, u) => {
      const row = mine.output.at(group, token, 0).as('v16');
      const to = mine.rounded.at(group, token, 0);
      for (let at = start; at < start + count; at += u.STRETCH) {
        const stretch = at / u.STRETCH;
        const values = g.registers('f32', 16);
        u.loadValues({ from: row, i: stretch * 32 + g.laneId, values });
        u.storeStretch({ to, stretch, values });
      }
      g.warp.barrier(); // the lanes send what others wrote
      return to.at(start);
    },
  );
}
