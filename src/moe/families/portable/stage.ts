/** Brings the caller's rows to where the network reads them, and rounds those that travel so: the first launch of a dispatch by a proxy. */
import { device, kernel, list, peers, pointer } from '../../../lang/index.js';
import { sentPayloads } from '../../layer/index.js';
import { partsOf } from '../common/parts.js';
import { roundPart } from './round-part.js';
import type { PortableShape, PortableWindow } from './window.js';

export function stageKernel(shape: PortableShape, window: PortableWindow) {
  const sent = sentPayloads(shape);
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
        SENT: sent,
        stage: sent.map((p) => (shape.payloads[p]!.rounded ? roundPayload : copyPayload)(shape, window, p)),
      },
    },
    (g, { win, rows, tokens }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      // Behind a wait that gave up a put of the round before may still read what is here.
      if (g.load(win.at(g.rank).failure.at(0)) !== 0) return;
      for (const n of g.unroll(u.SENT.length)) u.stage[n]!({ win, from: rows[u.SENT[n]!]!, tokens });
    },
  );
}

function copyPayload(shape: PortableShape, window: PortableWindow, payload: number) {
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

/** Likewise of bf16, rounded: a warp for each row. The send, which puts them, awaits the end of this launch. */
function roundPayload(shape: PortableShape, window: PortableWindow, payload: number) {
  return device(
    {
      params: { win: peers(window), from: pointer('v16'), tokens: 'u32' },
      using: { roundRow: roundPart(shape, window, payload, 1) },
    },
    (g, { win, from, tokens }, u) => {
      const warps = (g.blockDim.x / 32) * g.gridDim.x;
      for (let token = g.warpId * g.gridDim.x + g.blockIdx.x; token < tokens; token += warps)
        u.roundRow({ mine: win.at(g.rank), from, token, part: 0 });
    },
  );
}
