/**
 * The send of a combine: what this rank's experts made of each token goes home to its source. Messages are warps'; nobody
 * waits.
 */
import { device, kernel, peers, pointer, windowOf } from '../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { roundStretch, stretchVectors } from '../common/rounded.js';
import type { Transport } from './transport.js';
import { type PortableShape, type PortableWindow, returnedParts, returnedRow } from './window.js';

export function combineSendKernel(shape: PortableShape, window: PortableWindow, transport: Transport) {
  const { parts } = returnedParts(shape);
  const { replicas, turns } = sharing(shape);
  return kernel(
    {
      name: 'portable_combine_send',
      maxThreads: shape.combine.threads,
      params: { win: peers(window) },
      using: {
        RANKS: shape.ranks,
        REPLICAS: replicas,
        PIECES: shape.ranks * turns * parts,
        PARTS: parts,
        K: shape.topK,
        sendHome: sendHome(shape, window, transport),
      },
    },
    (g, { win }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0));
      // Who has given up has not all that its experts need: nobody may take what they make of it for the round's.
      if (g.load(mine.failure.at(0)) !== 0) return;
      const first = g.warpId * g.gridDim.x + g.blockIdx.x;
      const warps = (g.blockDim.x / 32) * g.gridDim.x;
      for (let piece = first; piece < u.PIECES; piece += warps) {
        // Ranks begin with different sources, so that no window is everybody's first.
        const source = (piece + g.rank) % u.RANKS;
        const turn = piece / u.RANKS / u.PARTS;
        const part = (piece / u.RANKS) % u.PARTS;
        const token = turn * u.REPLICAS + (source % u.REPLICAS);
        let here = false;
        if (g.laneId < u.K) here = g.load(mine.experts.at(source / u.REPLICAS, token, g.laneId)) >= 0;
        if (g.warp.any(here)) u.sendHome({ win, source, turn, part, epoch });
      }
    },
  );
}

function sendHome(shape: PortableShape, window: PortableWindow, transport: Transport) {
  const { unit, units } = returnedRow(shape);
  const { partUnits } = returnedParts(shape);
  return device(
    {
      name: 'send_home',
      params: { win: peers(window), source: 'u32', turn: 'u32', part: 'u32', epoch: 'u32' },
      using: {
        REPLICAS: sharing(shape).replicas,
        UNITS: units,
        PART_UNITS: partUnits,
        at: transport.at(window),
        put: transport.put(window, unit),
        whatTravels: whatTravels(shape, window),
      },
    },
    (g, { win, source, turn, part, epoch }, u) => {
      const group = source / u.REPLICAS;
      const token = turn * u.REPLICAS + (source % u.REPLICAS);
      const there = u.at({ win, peer: source });
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

/** One part of a row: as it is, or as e4m3, which the warp makes of it first. */
function whatTravels(shape: PortableShape, window: PortableWindow) {
  const { unit } = returnedRow(shape);
  return device(
    {
      name: 'what_travels',
      params: { mine: windowOf(window), group: 'u32', token: 'u32', start: 'u32', count: 'u32' },
      returns: pointer(unit),
      using: {
        UNIT: unit,
        E4M3: shape.output.wire === 'e4m3',
        STRETCH: stretchVectors,
        roundStretch: roundStretch(shape),
      },
    },
    (g, { mine, group, token, start, count }, u) => {
      const row = mine.output.at(group, token, 0);
      if (!u.E4M3) return row.as(u.UNIT).at(start);
      const rounded = mine.rounded.at(group, token, 0);
      for (let i = start; i < start + count; i += u.STRETCH)
        u.roundStretch({ from: row.as('v16'), to: rounded, stretch: i / u.STRETCH });
      g.warp.barrier(); // the lanes send what others wrote
      return rounded.as(u.UNIT).at(start);
    },
  );
}
