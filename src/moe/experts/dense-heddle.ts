/** A dense MLP by Heddle's kernels: the GEMMs of experts, of one that has all rows. */

import { emptyTensor } from '../rounds/tensor.js';
import type { CreateDenseRun } from './dense-run.js';
import { mlpSites } from './mlp-sites.js';

export const denseHeddle: CreateDenseRun = async (shape, { gateUp, down }) => {
  const { device, hidden, inner, maxTokens, sms } = shape;
  const sites = await mlpSites(
    device,
    {
      ...({ of: 'all', e4m3: false, experts: 1, topK: 1 } as const),
      ...{ hidden, inner, rows: maxTokens },
    },
    sms,
  );
  const purpose = 'inner rows of the dense MLP';
  const between = emptyTensor(device, 'bf16', [maxTokens, inner], purpose);
  for (const { set } of [sites.gateUp, sites.down]) {
    // There is no plan and there are no scales, and nobody looks.
    set.scales(gateUp.data);
    set.counts(gateUp.data);
    set.offsets(gateUp.data);
    set.routes(gateUp.data);
  }
  sites.gateUp.set.weights(gateUp.data);
  sites.gateUp.set.to(between.data);
  sites.down.set.from(between.data);
  sites.down.set.weights(down.data);
  return {
    owned: [{ tensor: between, purpose }],
    widen(x, tokens, stream) {
      const { set, launch } = sites.gateUp;
      set.count(tokens);
      set.from(x.data);
      launch(stream);
    },
    narrow(out, tokens, stream) {
      const { set, launch } = sites.down;
      set.count(tokens);
      set.to(out.data);
      launch(stream);
    },
    dispose: () => {},
  };
};
