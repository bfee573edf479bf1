/**
 * Rows by expert as a rank plans, expands and reduces them, beside the reference: with experts that give every row back,
 * of what a rank would have received, so that no round need be run for it.
 */
import type { Device, Stream } from '../../gpu/index.js';
import {
  bytesOf,
  ExpertsPlan,
  type ExpertsPlanOptions,
  emptyTensor,
  type Received,
  type Receiving,
  readBits,
  type Tensor,
  tensorFrom,
} from '../../moe/index.js';
import {
  type Bits,
  bitsOf,
  type Dtype,
  expertsOf,
  fromF32,
  type Layer,
  type ReferenceReceived,
  reference,
  sharing,
  toF32,
} from '../../moe/layer/index.js';
import {
  type Comparison,
  compareBits,
  exampleInput,
  mergeComparisons,
  randomElements,
} from '../testing/index.js';

/**
 * Writes what dispatch would have delivered, to its place. Rows of slots without a route stay unwritten, as after
 * dispatch.
 */
export function placeReceived(
  device: Device,
  stream: Stream,
  layer: Layer,
  { experts, weights, payloads }: ReferenceReceived,
): Received {
  const { maxTokens, topK, output } = layer;
  const { groups } = sharing(layer);
  const place = (bits: Bits, dtype: Dtype, name: string): Tensor =>
    tensorFrom(device, stream, bits, dtype, [groups, maxTokens, topK], name);
  const placeRows = (bytes: Uint8Array, rowBytes: number, name: string): Tensor => {
    const tensor = emptyTensor(device, 'u8', [groups, maxTokens, rowBytes], name);
    for (let slot = 0; slot < groups * maxTokens; slot++) {
      if (experts.subarray(slot * topK, (slot + 1) * topK).every((id) => id < 0)) continue;
      const [start, end] = [slot * rowBytes, (slot + 1) * rowBytes];
      stream.copyIn(tensor.data + start, bytes.subarray(start, end));
    }
    return tensor;
  };
  const out = emptyTensor(device, output.dtype, [groups, maxTokens, output.hidden], 'output');
  stream.fill(out.data, out.bytes, 0);
  return {
    experts: place(experts, 'i32', 'ids'),
    weights: layer.weights ? place(weights, 'f32', 'weights') : null,
    counts: null,
    payloads: Object.fromEntries(
      layer.payloads.map(({ name, rowBytes }) => [name, placeRows(payloads[name]!, rowBytes, name)]),
    ),
    output: out,
  };
}

/** Rows as experts would make them: unlike expanded rows, no two rows of a token are equal. Each begins with a −0. */
function madeRows({ output: { dtype, hidden } }: Layer, rows: number): Bits {
  const values = toF32(dtype, randomElements(dtype, rows * hidden, 9, 6));
  for (let row = 0; row < rows; row++) values[row * hidden] = -0;
  return fromF32(dtype, values);
}

/** Plans, expands and reduces so often, back to back. The layer's payload `x` looks like its output. */
export async function runPlan(receiving: Receiving, options: ExpertsPlanOptions = {}, times = 1) {
  const { world, shape, received } = receiving;
  const { device } = world;
  const stream = device.createStream();
  const plan = await ExpertsPlan.create(receiving, options);
  const to = Object.fromEntries(
    shape.payloads.map(({ name, rowBytes }) => {
      const tensor = emptyTensor(device, 'u8', [plan.rows, rowBytes], `expanded ${name}`);
      stream.fill(tensor.data, tensor.bytes, 0);
      return [name, tensor];
    }),
  );
  const { dtype, hidden } = shape.output;
  const rows = { ...to[exampleInput]!, dtype, shape: [plan.rows, hidden] };
  const { routes, scatter } = plan.planned;
  stream.fill(routes.data, routes.bytes, 0);
  for (let n = 0; n < times; n++) {
    plan.plan(received, stream);
    plan.expand(received, to, stream);
    plan.reduce(received, rows, stream);
  }
  const reduced = await readBits(received.output, stream);
  const made = tensorFrom(device, stream, madeRows(shape, plan.rows), dtype, [plan.rows, hidden]);
  plan.reduce(received, made, stream);
  const expanded = Object.entries(to).map(
    async ([name, tensor]) => [name, bytesOf(await readBits(tensor, stream))] as const,
  );
  return {
    rows: plan.rows,
    sizes: await plan.sizes(stream),
    routes: bitsOf('i32', await stream.copyOut(routes.data, routes.bytes)) as Int32Array,
    scatter: bitsOf('i32', await stream.copyOut(scatter.data, scatter.bytes)) as Int32Array,
    expanded: Object.fromEntries(await Promise.all(expanded)),
    reduced,
    reducedMade: await readBits(received.output, stream),
  };
}

export function comparePlan(
  layer: Layer,
  rank: number,
  received: ReferenceReceived,
  { form = 'contiguous', alignment = 1 }: ExpertsPlanOptions,
  { rows, sizes, routes, scatter, expanded, reduced, reducedMade }: Awaited<ReturnType<typeof runPlan>>,
): Comparison {
  const mine = expertsOf(layer, rank);
  const capacity = form === 'masked' ? rows / Math.max(1, mine.count) : rows;
  const expected = reference.plan(received.experts, mine, { form, alignment, capacity });
  const { dtype, hidden } = layer.output;
  const reduce = (made: Bits) => reference.reduce(layer, received, expected.scatter, made, layer.weights);
  return mergeComparisons([
    compareBits('counts', 'u32', sizes.counts, expected.counts),
    compareBits('offsets', 'u32', sizes.offsets, expected.offsets),
    compareBits('overflow', 'u32', Uint32Array.of(sizes.overflow), Uint32Array.of(expected.overflow)),
    compareBits('scatter', 'i32', scatter, expected.scatter, layer.topK),
    ...expected.routes.map((wanted, expert) => {
      const start = expected.offsets[expert]!;
      return compareBits(
        `routes of expert ${expert}`,
        'i32',
        routes.subarray(start, start + wanted.length),
        wanted,
      );
    }),
    ...layer.payloads.map(({ name, rowBytes }) => {
      const wanted = reference.expand(received.payloads[name]!, rowBytes, layer, expected.scatter, rows);
      return compareBits(name, 'u8', expanded[name]!, wanted, rowBytes);
    }),
    compareBits('output', dtype, reduced, reduce(bitsOf(dtype, expanded[exampleInput]!)), hidden),
    compareBits('output of other rows', dtype, reducedMade, reduce(madeRows(layer, rows)), hidden),
  ]);
}
