/** Small layers, and forwards of them on the checked machine. */
import { expect } from 'vitest';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import type { ForwardOptions, MoeLayerOptions } from '../../src/moe/index.js';
import type { MoeModel } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { runLayer } from './run-layer.js';
import type { LayerInputs } from './whole-layer.js';

/** DeepSeek-V3's in small: groups, a correction, a shared expert. */
export const deep: MoeModel = {
  ...{ hidden: 64, experts: 7, topK: 2, inner: 64, sharedInner: 128 },
  routing: { scores: 'sigmoid', normalise: true, scale: 2.5 },
};
/** Mixtral's in small. */
export const plain: MoeModel = {
  ...{ hidden: 64, experts: 4, topK: 2, inner: 64 },
  routing: { scores: 'softmax', normalise: true, scale: 1 },
};

/** The same with gpt-oss's experts. */
export const gptOss: MoeModel = { ...plain, activation: 'clamped-swiglu', biases: true };

export type How = Partial<
  Pick<MoeLayerOptions, 'family' | 'maxTokens' | 'overlap' | 'rounds' | 'alignment' | 'capacity' | 'rows'>
> &
  ForwardOptions;

/** What ranks return that run under a random schedule and the race detector, which finds nothing. */
export async function raceFree<T>(
  { seed, ...on }: { readonly ranks: number; readonly nodes?: number; readonly seed: string },
  program: (world: World) => Promise<T>,
): Promise<T[]> {
  const how = { mode: 'checked', schedule: 'random', hostLines: false } as const;
  const sim = SimMachine.create({ ranks: on.ranks, seed, ...how });
  const results = await World.local({ ...on, device: 'sim', sim }, program);
  expect(sim.findings.map(formatFinding)).toEqual([]);
  return results;
}

/** Two forwards under a random schedule of the machine; what it found, and what each rank got. */
export async function forwards(
  inputs: LayerInputs,
  how: How,
  {
    nodes = 1,
    graph = false,
    mode = 'checked',
  }: { nodes?: number; graph?: boolean; mode?: 'checked' | 'fast' } = {},
) {
  const ranks = inputs.routed.length;
  const most = Math.max(...inputs.routed.map(({ x }) => x.length / inputs.model.hidden));
  const maxTokens = Math.ceil(most / (how.chunks ?? 1));
  const machine = SimMachine.create({
    ranks,
    mode,
    schedule: 'random',
    seed: '7',
    hostLines: false,
  });
  const runs = await World.local({ ranks, nodes, device: 'sim', sim: machine }, (world) =>
    runLayer(world, inputs, { maxTokens, ...how }, { times: 2, graph }),
  );
  return { runs, outs: runs.map(({ out }) => out), findings: machine.findings.map(formatFinding) };
}
