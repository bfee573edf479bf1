/** Experts that are MLPs, with weights from a seed, as a rank runs them, beside the reference. */

import {
  bytesOf,
  ExpertsMlp,
  type ExpertsMlpOptions,
  ExpertsPlan,
  type ExpertsPlanOptions,
  type Gemm,
  type MlpWeights,
  type MoeLayerOptions,
  type Receiving,
  type RouterWeights,
  readBits,
  type Tensor,
  tensorFrom,
} from '../../moe/index.js';
import {
  type Bits,
  bitsArray,
  bitsOf,
  expertsOf,
  fromE2m1,
  fromF32,
  type Layer,
  type MlpMatrices,
  type MoeModel,
  mxfp4Block,
  type ReferenceReceived,
  reference,
  type ScaledMatrices,
  type Shape,
  type Source,
  scaleBlock,
  toF32,
} from '../../moe/layer/index.js';
import {
  type Comparison,
  compareClosely,
  exampleInput,
  randomBytes,
  randomElements,
} from '../testing/index.js';

/** The matrices of one expert, scaled so that rows keep about their size. */
export function makeMlp(hidden: number, inner: number, seed: number): MlpMatrices {
  const matrix = (rows: number, columns: number, own: number): Bits => {
    const scale = 2 ** -Math.round(Math.log2(columns) / 2);
    return fromF32(
      'bf16',
      toF32('bf16', randomElements('bf16', rows * columns, own)).map((x) => x * scale),
    );
  };
  return { gateUp: matrix(2 * inner, hidden, 2 * seed), down: matrix(hidden, inner, 2 * seed + 1) };
}

/** Makes weights in e4m3: every block of 128 × 128 has a scale of its own, an f32 that is no power of two. */
export function makeScaledMlp(hidden: number, inner: number, seed: number): ScaledMatrices {
  const matrix = (rows: number, columns: number, own: number) => {
    const across = columns / scaleBlock;
    const scales = Float32Array.from(
      { length: (rows / scaleBlock) * across },
      (_, i) => ((1 + ((7 * i + own) % 5) / 8) * 2 ** -Math.round(Math.log2(columns) / 2)) / 128,
    );
    const values = toF32('bf16', randomElements('bf16', rows * columns, own)).map((x) => 128 * x);
    return { bits: fromF32('e4m3', values), scales };
  };
  const [gateUp, down] = [matrix(2 * inner, hidden, 2 * seed), matrix(hidden, inner, 2 * seed + 1)];
  return { gateUp: gateUp.bits, gateUpScales: gateUp.scales, down: down.bits, downScales: down.scales };
}

/** The matrices of one expert as bf16, and the MXFP4 that they are. */
export interface PackedMatrices extends MlpMatrices {
  readonly packed: Readonly<Record<'gateUp' | 'gateUpScales' | 'down' | 'downScales', Uint8Array>>;
}

/** Makes weights of MXFP4. Every 32 have a scale of their own: one of four powers of two. */
export function makePackedMlp(hidden: number, inner: number, seed: number): PackedMatrices {
  const matrix = (rows: number, columns: number, own: number) => {
    const bits = randomBytes((rows * columns) / 2, own);
    const least = 124 - Math.round(Math.log2(columns) / 2);
    // [32 columns][row]
    const scales = randomBytes((rows * columns) / mxfp4Block, own + 1000).map((byte) => least + (byte % 4));
    const values = fromE2m1(bits).map((value, i) => {
      const [row, block] = [Math.floor(i / columns), Math.floor((i % columns) / mxfp4Block)];
      return value * 2 ** (scales[block * rows + row]! - 127);
    });
    return { bits, scales, wide: fromF32('bf16', values) };
  };
  const [gateUp, down] = [matrix(2 * inner, hidden, 2 * seed), matrix(hidden, inner, 2 * seed + 1)];
  return {
    ...{ gateUp: gateUp.wide, down: down.wide },
    packed: {
      ...{ gateUp: gateUp.bits, gateUpScales: gateUp.scales },
      ...{ down: down.bits, downScales: down.scales },
    },
  };
}

const packedOf = (matrices: MlpMatrices): Partial<Record<WeightsPart, Bits>> | undefined =>
  (matrices as Partial<PackedMatrices>).packed;

export const isScaled = (matrices: MlpMatrices): matrices is ScaledMatrices => 'gateUpScales' in matrices;

/** A matrix of an MLP, its scales where it is e4m3, or its biases where it has some. */
export type WeightsPart = Exclude<keyof MlpWeights, 'activation'>;

/** Gives an expert an activation, and biases. These are so large that many gates, and much of what they scale, lie beyond 7 and −7. */
export function ofKind<M extends MlpMatrices>(
  matrices: M,
  { hidden, biases = false, activation = 'swiglu' }: Pick<MoeModel, 'hidden' | 'biases' | 'activation'>,
  seed: number,
): M {
  const inner = matrices.down.length / hidden;
  const bias = (length: number, own: number): Bits =>
    fromF32(
      'bf16',
      toF32('bf16', randomElements('bf16', length, own)).map((x) => 4 * x),
    );
  return {
    ...matrices,
    activation,
    ...(biases && { gateUpBias: bias(2 * inner, 2 * seed), downBias: bias(hidden, 2 * seed + 1) }),
  };
}

/** The type of weights; u8: MXFP4. */
export type WeightsType = 'bf16' | 'e4m3' | 'u8';

/** The weights of `experts` experts, or of one that takes all rows (null). `make` gives the numbers of each part. */
export function mlpWeights(
  of: Pick<MoeModel, 'hidden' | 'inner' | 'biases' | 'activation'> & { readonly dtype?: WeightsType },
  experts: number | null,
  make: (part: WeightsPart, shape: readonly number[]) => Tensor,
): MlpWeights {
  const { hidden, inner, dtype = 'bf16', biases = false, activation = 'swiglu' } = of;
  const lead = experts === null ? [] : [experts];
  const matrix = (part: 'gateUp' | 'down', rows: number, columns: number): Partial<MlpWeights> => ({
    [part]: make(part, [...lead, rows, dtype === 'u8' ? columns / 2 : columns]),
    ...(dtype === 'u8' && {
      [`${part}Scales`]: make(`${part}Scales`, [...lead, columns / mxfp4Block, rows]),
    }),
    ...(dtype === 'e4m3' && {
      [`${part}Scales`]: make(`${part}Scales`, [...lead, rows / scaleBlock, columns / scaleBlock]),
    }),
    ...(biases && { [`${part}Bias`]: make(`${part}Bias`, [...lead, rows]) }),
  });
  return {
    ...(matrix('gateUp', 2 * inner, hidden) as MlpWeights),
    ...matrix('down', hidden, inner),
    activation,
  };
}

/** All weights of one rank's layer: what `make` gives for each matrix of an MLP, and the router's. */
export function layerWeights(
  model: MoeModel,
  of: { readonly rank: number; readonly ranks: number; readonly places?: number },
  make: (of: 'experts' | 'sharedExperts', part: WeightsPart, shape: readonly number[]) => Tensor,
  router: RouterWeights,
  dtype: WeightsType = 'bf16',
): Pick<MoeLayerOptions, 'experts' | 'sharedExperts' | 'router'> {
  const { hidden, sharedInner } = model;
  const { count } = expertsOf({ experts: of.places ?? model.experts, ranks: of.ranks }, of.rank);
  const shared = sharedInner === undefined ? null : { hidden, inner: sharedInner, dtype };
  return {
    experts: mlpWeights({ ...model, dtype }, count, (part, shape) => make('experts', part, shape)),
    ...(shared && {
      sharedExperts: mlpWeights(shared, null, (part, shape) => make('sharedExperts', part, shape)),
    }),
    router,
  };
}

export function stacked(experts: readonly MlpMatrices[], part: WeightsPart): Bits {
  const parts = experts.map((of) => packedOf(of)?.[part] ?? (of as ScaledMatrices)[part]!);
  const all = bitsArray(
    dtypeOf(experts[0]!, part),
    parts.reduce((sum, one) => sum + one.length, 0),
  );
  let at = 0;
  for (const one of parts) {
    all.set(one, at);
    at += one.length;
  }
  return all;
}

export function dtypeOf(of: MlpMatrices, part: WeightsPart): WeightsType | 'f32' {
  if (part.endsWith('Bias')) return 'bf16';
  if (packedOf(of) !== undefined) return 'u8';
  return part.endsWith('Scales') ? 'f32' : isScaled(of) ? 'e4m3' : 'bf16';
}

/** The payload of scales, where rows are e4m3. */
const exampleScales = 'scales';

/** The layer, and what its ranks bring, with bf16 rows made e4m3 with a scale for every 128 elements. */
export function inE4m3<L extends Shape>(layer: L, sources: readonly Source[]) {
  const { hidden } = layer.output;
  const payloads = [
    { name: exampleInput, rowBytes: hidden },
    { name: exampleScales, rowBytes: (4 * hidden) / scaleBlock },
  ];
  return {
    layer: { ...layer, payloads },
    sources: sources.map((source) => {
      const values = toF32('bf16', bitsOf('bf16', source.payloads[exampleInput]!));
      const scales = Float32Array.from({ length: values.length / scaleBlock }, (_, b) => {
        const block = values.subarray(b * scaleBlock, (b + 1) * scaleBlock);
        return Math.max(2 ** -20, ...block.map(Math.abs)) / 448;
      });
      const scaled = values.map((value, i) => value / scales[Math.floor(i / scaleBlock)]!);
      const rows = bytesOf(fromF32('e4m3', scaled));
      return { ...source, payloads: { [exampleInput]: rows, [exampleScales]: bytesOf(scales) } };
    }),
  };
}

/** Plans and runs the experts so often, back to back; returns what combine would send. */
export async function runMlp(
  receiving: Receiving,
  experts: readonly MlpMatrices[],
  options: ExpertsPlanOptions = {},
  times = 1,
  { tokens, ...how }: Pick<ExpertsMlpOptions, 'gemm' | 'instructions'> & { readonly tokens?: number } = {},
): Promise<Bits> {
  const { world, shape, received } = receiving;
  const { device } = world;
  const { hidden } = shape.output;
  const [{ down, gateUpBias, activation = 'swiglu' }] = experts as [MlpMatrices];
  const inner = down.length / hidden;
  const biases = gateUpBias !== undefined;
  const stream = device.createStream();
  const dtype = dtypeOf(experts[0]!, 'down') as WeightsType;
  const weights = mlpWeights({ hidden, inner, dtype, biases, activation }, experts.length, (part, of) =>
    tensorFrom(device, stream, stacked(experts, part), dtypeOf(experts[0]!, part), of, part),
  );
  const plan = await ExpertsPlan.create(receiving, options);
  const scales = received.payloads[exampleScales] === undefined ? {} : { scales: exampleScales };
  const mlp = await ExpertsMlp.create(receiving, plan, { ...weights, ...scales, ...how });
  for (let n = 0; n < times; n++) {
    plan.plan(received, stream);
    mlp.run(
      received,
      stream,
      how.gemm === 'cublas' && plan.form === 'contiguous' ? await plan.sizes(stream) : tokens,
    );
  }
  return readBits(received.output, stream);
}

export function compareMlp(
  layer: Layer,
  rank: number,
  received: ReferenceReceived,
  experts: readonly MlpMatrices[],
  capacity: number,
  actual: Bits,
  gemm: Gemm = 'heddle',
): Comparison {
  const { hidden } = layer.output;
  const mine = expertsOf(layer, rank);
  const { offsets, routes, scatter } = reference.plan(received.experts, mine, {
    ...({ form: 'contiguous', alignment: 1 } as const),
    capacity,
  });
  const { [exampleInput]: rows, [exampleScales]: scales } = received.payloads;
  const x =
    scales === undefined
      ? bitsOf('bf16', rows!)
      : reference.widen(rows!, bitsOf('f32', scales) as Float32Array);
  const made = bitsArray('bf16', capacity * hidden);
  for (const [e, own] of routes.entries()) {
    const slots = own.map((route) => Math.floor(route / layer.topK));
    const take = <B extends Bits>(from: B, length: number, into: B): B => {
      for (const [i, slot] of slots.entries())
        into.set(from.subarray(slot * length, (slot + 1) * length), i * length);
      return into;
    };
    const expert = experts[e]!;
    const ours = isScaled(expert)
      ? reference.scaledMlp(
          take(bitsOf('e4m3', rows!), hidden, bitsArray('e4m3', own.length * hidden)),
          take(
            bitsOf('f32', scales!) as Float32Array,
            hidden / scaleBlock,
            new Float32Array((own.length * hidden) / scaleBlock),
          ),
          hidden,
          expert,
        )
      : reference.mlp(take(x, hidden, bitsArray('bf16', own.length * hidden)), hidden, expert);
    made.set(ours, offsets[e]! * hidden);
  }
  const expected = reference.reduce(layer, received, scatter, made, layer.weights);
  // Between cuBLAS's GEMM and SwiGLU rows are rounded once more.
  // A sum that differs in its last bit may be rounded to the next e4m3 between the GEMMs.
  const part = gemm === 'cublas' ? 2 ** -7 : isScaled(experts[0]!) ? 2 ** -6 : 2 ** -9;
  return compareClosely('output', 'bf16', actual, expected, hidden, part);
}
