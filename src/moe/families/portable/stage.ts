/** Brings the caller's rows to where the network reads them, and rounds those that travel so: the first launch of a dispatch by a proxy. */
import { device, kernel, list, peers, pointer } from '../../../lang/index.js';
import { broughtPayloads, roundedPayloads } from '../../layer/index.js';
import { partsOf } from '../common/parts.js';
import { roundPart } from './round-part.js';
import type { PortableShape, PortableWindow } from './window.js';

export function stageKernel(shape: PortableShape, window: PortableWindow) {
  const [brought, rounded] = [broughtPayloads(shape), roundedPayloads(shape)];
  return kernel(
    {
      name: 'portable_stage',
      maxThreads: shape.dispatch.threads,
      params: {
        win: peers(window),
        /** One [tokens][row] array a payload. */
        rows: list(pointer('v16'), shape.payloads.length),
        tokens: 'u32',
      },
      using: {
        BROUGHT: brought,
        ROUNDED: rounded,
        stage: brought.map((p) => stagePayload(shape, window, p)),
        roundRow: rounded.map((p) => roundPart(shape, window, p, 1)),
      },
    },
    (g, { win, rows, tokens }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      // Behind a wait that gave up a put of the round before may still read what is here.
      if (g.load(win.at(g.rank).failure.at(0)) !== 0) return;
      for (const n of g.unroll(u.BROUGHT.length)) u.stage[n]!({ win, from: rows[u.BROUGHT[n]!]!, tokens });
      for (const n of g.unroll(u.ROUNDED.length)) {
        const mine = win.at(g.rank);
        const warps = (g.blockDim.x / 32) * g.gridDim.x;
        for (let token = g.warpId * g.gridDim.x + g.blockIdx.x; token < tokens; token += warps)
          u.roundRow[n]!({ mine, from: rows[u.ROUNDED[n]!]!, token, part: 0 });
      }
    },
  );
}

function stagePayload(shape: PortableShape, window: PortableWindow, payload: number) {
  const { unit, rowUnits } = partsOf(shape, payload, 1);
  return device(
    {
      params: { win: peers(window), from: pointer('v16'), tokens: 'u32' },
      using: { P: payload, UNIT: unit, ROW_UNITS: rowUnits },
    },
    (g, { win, from, tokens }, u) => {
      const to = win.at(g.rank).brought[u.P]!.at(0, 0);
      const first = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
      for (let i = first; i < tokens * u.ROW_UNITS; i += g.gridDim.x * g.blockDim.x)
        g.store(to.at(i), g.load(from.as(u.UNIT).at(i)));
    },
  );
}
