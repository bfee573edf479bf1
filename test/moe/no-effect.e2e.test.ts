/** A call that throws has had no effect: the round goes on where it was, and nobody is missed. */
import { describe, expect, it } from 'vitest';
import type { Stream } from '../../src/gpu/index.js';
import {
  type DispatchInputs,
  ExpertParallel,
  emptyTensor,
  readBits,
  row,
  type Tensor,
  tensorFrom,
} from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import { makeRoutes, randomElements } from '../../src/verify/testing/index.js';

interface Where {
  readonly family: string;
  readonly nodes: number;
  readonly split: boolean;
}

const [ranks, tokens, hidden] = [2, 3, 8];

/** Rounds of two ranks; with `mistakes` rank 1 makes each call wrongly first. What each rank gets back, by round. */
function rounds({ nodes, ...how }: Where, mistakes: boolean): Promise<unknown> {
  const streams: Stream[] = [];
  return World.local({ ranks, nodes, device: 'sim' }, async (world) => {
    const { device, rank } = world;
    const ep = await ExpertParallel.create(world, {
      ...{ experts: 4, topK: 2, maxTokens: tokens, ...how },
      payloads: { x: row('bf16', hidden) },
      output: row('bf16', hidden),
    });
    const stream = device.createStream();
    streams[rank] = stream;
    await world.barrier();
    const refuses = (message: RegExp, call: () => unknown) => {
      if (mistakes && rank === 1) expect(call).toThrow(message);
    };
    const refusesStream = (call: (stream: Stream) => unknown) =>
      refuses(/^stream is .* a stream of the simulated GPU #1$/, () => call(streams[0]!));
    const freed = ({ dtype, shape }: Tensor): Tensor => {
      const tensor = emptyTensor(device, dtype, shape, 'gone');
      tensor.free();
      return tensor;
    };
    const refusesInputs = (inputs: DispatchInputs, call: (inputs: DispatchInputs) => unknown) => {
      const topkIds = inputs.topkIds as Tensor;
      const x = inputs.payloads.x as Tensor;
      refuses(/^topkIds is .*'gone' was freed/, () => call({ ...inputs, topkIds: freed(topkIds) }));
      refuses(/^rows_0 is .*'gone' was freed/, () => call({ ...inputs, payloads: { x: freed(x) } }));
      for (const data of [Number.NaN, 1.5, -16]) {
        refuses(/^topkIds.data is .*a device address$/, () =>
          call({ ...inputs, topkIds: { ...topkIds, data } }),
        );
        refuses(/^payloads.x.data is .*a device address$/, () =>
          call({ ...inputs, payloads: { x: { ...x, data } } }),
        );
      }
    };
    const refusesOut = (out: Tensor, call: (out: Tensor) => unknown) => {
      refuses(/^out is .*'gone' was freed/, () => call(freed(out)));
      for (const data of [Number.NaN, 1.5, -16])
        refuses(/^out.data is .*a device address$/, () => call({ ...out, data }));
    };

    const outs: unknown[] = [];
    for (let n = 1; n <= 3; n++) {
      const { topkIds, topkWeights } = makeRoutes(ep.shape, rank, tokens, n);
      const rows = randomElements('bf16', tokens * hidden, n, 6);
      const inputs = {
        topkIds: tensorFrom(device, stream, topkIds, 'i32', [tokens, 2]),
        topkWeights: tensorFrom(device, stream, topkWeights, 'f32', [tokens, 2]),
        payloads: { x: tensorFrom(device, stream, rows, 'bf16', [tokens, hidden]) },
      };
      const out = emptyTensor(device, 'bf16', [tokens, hidden]);
      const { output, payloads } = ep.received;
      const experts = () => stream.copy(output.data, payloads.x!.data, output.bytes);
      if (how.split) {
        refusesInputs(inputs, (wrong) => ep.dispatchSend(wrong, stream));
        refusesStream((wrong) => ep.dispatchSend(inputs, wrong));
        const sent = ep.dispatchSend(inputs, stream);
        refusesStream((wrong) => ep.dispatchRecv(sent, wrong));
        const received = ep.dispatchRecv(sent, stream);
        experts();
        refusesStream((wrong) => ep.combineSend(received, wrong));
        const combining = ep.combineSend(received, stream);
        refusesOut(out, (wrong) => ep.combineRecv(combining, wrong, stream));
        refusesStream((wrong) => ep.combineRecv(combining, out, wrong));
        ep.combineRecv(combining, out, stream);
      } else {
        refusesInputs(inputs, (wrong) => ep.dispatch(wrong, stream));
        refusesStream((wrong) => ep.dispatch(inputs, wrong));
        ep.dispatch(inputs, stream);
        experts();
        refusesOut(out, (wrong) => ep.combine(wrong, stream));
        refusesStream((wrong) => ep.combine(out, wrong));
        ep.combine(out, stream);
      }
      await ep.synchronize(stream);
      outs.push(await readBits(out, stream));
    }
    await ep.dispose();
    return outs;
  });
}

describe.each([
  { family: 'one-sided', nodes: 1 },
  { family: 'portable', nodes: 1 },
  { family: 'hybrid', nodes: 2 },
])('$family on nodes: $nodes', (where) => {
  it.each([false, true])('calls that throw leave the round where it was; split: %s', async (split) => {
    const how = { ...where, split };
    expect(await rounds(how, true)).toEqual(await rounds(how, false));
  });
});
