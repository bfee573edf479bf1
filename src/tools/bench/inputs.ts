/**
 * Inputs that rotate: every round of a graph reads a set of its own, until the sets together exceed L2 several times,
 * so that no round finds its rows in a cache that a round before it filled.
 */
import type { Device, Stream } from '../../gpu/index.js';
import {
  bytesOf,
  emptyTensor,
  type LayerWeightsType,
  type OwnedTensor,
  tensorFrom,
} from '../../moe/index.js';
import { type Bits, type Dtype, dtypes, type Layer, reference } from '../../moe/layer/index.js';
import { makeAllRoutes, type Routes, randomElements } from '../../verify/testing/index.js';
import type { Timing } from './timing.js';
import type { Workload } from './workload.js';

/** How often the sets together exceed L2. */
const rotation = 3;

/** Sets for `rounds` rounds that read so many bytes each. */
export function setsFor(rounds: number, bytesPerRound: number, l2Bytes: number): number {
  const enough = Math.ceil((rotation * l2Bytes) / Math.max(bytesPerRound, 1)) + 1;
  return Math.max(1, Math.min(rounds, enough));
}

/** The scale of weights of e4m3 noise: with it their numbers are about as large as those of rows of bf16 noise. */
const scaleOfNoise = 2 ** -8;
/** Scales weights of MXFP4, as a ue8m0. */
const packedScale = 127 - 8;

/** How tensors store weights. */
export const storedAs = {
  ...{ bf16: 'bf16', fp8: 'e4m3', mxfp4: 'u8' },
} as const satisfies Readonly<Record<LayerWeightsType, Dtype>>;

export interface Rig {
  readonly timing: Timing;
  /** Equal on all ranks, so that each knows what its peers send. */
  readonly noise: Noise;
}

type Noise = ReturnType<typeof createNoise>;

/** Random numbers in device memory, to be copied about: bf16 (never NaN, whatever 16-bit float they are read as), or e4m3. */
export function createNoise(device: Device, stream: Stream, seed: number, dtype: 'bf16' | 'e4m3' = 'bf16') {
  // Larger buffers repeat what the host makes.
  const noiseBytes = device.kind === 'sim' ? 2 ** 16 : 2 ** 22;
  const memory = device.allocate(noiseBytes, 'random data');
  const noise = bytesOf(randomElements(dtype, noiseBytes / dtypes[dtype].size, seed));
  stream.copyIn(memory.address, noise);
  return {
    fill(stream: Stream, to: number, bytes: number): void {
      for (let at = 0; at < bytes; at += noiseBytes)
        stream.copy(to + at, memory.address, Math.min(noiseBytes, bytes - at));
    },
    /** The bytes that `fill` leaves so many bytes from its start. */
    at: (offset: number, bytes: number): Uint8Array =>
      Uint8Array.from({ length: bytes }, (_, i) => noise[(offset + i) % noiseBytes]!),
    free: () => memory.free(),
  };
}

/** Tensors of one measurement, which are freed together. `seed`: of noise of e4m3. */
export function tensorsOf({ timing, noise }: Rig, seed: number) {
  const { stream, world } = timing;
  const { device } = world;
  const owned: { free(): void }[] = [];
  const own = <T extends { free(): void }>(one: T): T => {
    owned.push(one);
    return one;
  };
  let narrow: Noise | null = null;
  const empty = (dtype: Dtype, shape: readonly number[], what?: string): OwnedTensor =>
    own(emptyTensor(device, dtype, shape, what));
  const from = (bits: Bits, dtype: Dtype, shape: readonly number[], what?: string): OwnedTensor =>
    own(tensorFrom(device, stream, bits, dtype, shape, what));
  const filled = (dtype: Dtype, shape: readonly number[], what?: string): OwnedTensor => {
    const tensor = empty(dtype, shape, what);
    if (dtype === 'e4m3') narrow ??= own(createNoise(device, stream, seed, dtype));
    (dtype === 'e4m3' ? narrow! : noise).fill(stream, tensor.data, tensor.bytes);
    return tensor;
  };
  return {
    empty,
    from,
    filled,
    /** Rows of bf16 that no other rank has, so that tokens of several ranks choose experts apart. */
    rows(shape: readonly number[]): OwnedTensor {
      const tensor = empty('bf16', shape, 'rows');
      own(createNoise(device, stream, seed + 1 + world.rank)).fill(stream, tensor.data, tensor.bytes);
      return tensor;
    },
    /** A part of experts' weights: of `dtype`, but for scales and biases. */
    weights(part: string, shape: readonly number[], dtype: Dtype): OwnedTensor {
      if (!part.endsWith('Scales')) return filled(part.endsWith('Bias') ? 'bf16' : dtype, shape, 'weights');
      const count = shape.reduce((a, b) => a * b);
      if (dtype === 'u8') return from(new Uint8Array(count).fill(packedScale), dtype, shape, 'weights');
      return from(new Float32Array(count).fill(scaleOfNoise), 'f32', shape, 'weights');
    },
    free(): void {
      for (const one of owned) one.free();
    },
  };
}

/** The ids and weights that reach rank 0 of a layer whose ranks all bring as many tokens as they may. */
export function arrivedAt(layer: Layer, seed: number) {
  const sources = makeAllRoutes(layer, layer.maxTokens, seed).map((routes) => ({ ...routes, payloads: {} }));
  return reference.dispatch({ ...layer, payloads: [] }, sources, 0);
}

/** The sets of one rank. */
export function createInputs(rig: Rig, of: Workload, routes: readonly Routes[]) {
  const tensors = tensorsOf(rig, 1);
  const { topK, hidden, payloads, combineDtype } = of;
  const sets = routes.map(({ tokens, topkIds, topkWeights }) => ({
    inputs: {
      topkIds: tensors.from(topkIds, 'i32', [tokens, topK], 'inputs'),
      topkWeights: tensors.from(topkWeights, 'f32', [tokens, topK], 'inputs'),
      payloads: Object.fromEntries(
        payloads.map(({ name, rowBytes }) => [name, tensors.filled('u8', [tokens, rowBytes], 'inputs')]),
      ),
    },
    // Where combine leaves the tokens' rows.
    out: tensors.empty(combineDtype, [tokens, hidden], 'outputs'),
  }));
  return { sets, at: (round: number) => sets[round % sets.length]!, free: tensors.free };
}
