/** Copies the caller's rows to where the network reads them: the first launch of a dispatch by a proxy. */
import { device, kernel, list, peers, pointer } from '../../../lang/index.js';
import { unitBytes, widestUnit } from '../common/parts.js';
import type { PortableShape, PortableWindow } from './window.js';

export function stageKernel(shape: PortableShape, window: PortableWindow) {
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
        PAYLOADS: shape.payloads.length,
        stage: shape.payloads.map((_, payload) => stagePayload(shape, window, payload)),
      },
    },
    (g, { win, rows, tokens }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      // Behind a wait that gave up a put of the round before may still read what is here.
      if (g.load(win.at(g.rank).failure.at(0)) !== 0) return;
      for (const p of g.unroll(u.PAYLOADS)) u.stage[p]!({ win, from: rows[p]!, tokens });
    },
  );
}

function stagePayload({ payloads }: PortableShape, window: PortableWindow, payload: number) {
  const { rowBytes } = payloads[payload]!;
  const unit = widestUnit(rowBytes);
  return device(
    {
      params: { win: peers(window), from: pointer('v16'), tokens: 'u32' },
      using: { P: payload, UNIT: unit, ROW_UNITS: rowBytes / unitBytes[unit] },
    },
    (g, { win, from, tokens }, u) => {
      const to = win.at(g.rank).brought[u.P]!.at(0, 0);
      const first = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
      for (let i = first; i < tokens * u.ROW_UNITS; i += g.gridDim.x * g.blockDim.x)
        g.store(to.at(i), g.load(from.as(u.UNIT).at(i)));
    },
  );
}
