/** Whole rounds of a layer on the simulated machine against the reference, bit by bit; checked ones also for races. */
import { expect } from 'vitest';
import { formatFinding, SimMachine } from '../../../src/gpu/sim/index.js';
import type { Source } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import {
  compareRounds,
  expectedRound,
  makeSources,
  type RoundsOptions,
  type RoundsShape,
  type RoutesOptions,
  runRounds,
  shapeOfRounds,
} from '../../../src/verify/testing/index.js';

export interface RoundsUnderTest extends RoundsOptions {
  /** Equal nodes of the world. */
  readonly nodes?: number;
  /** [round][rank]. Left out: three rounds of all the tokens that fit. */
  readonly tokens?: readonly (readonly number[])[];
  readonly routes?: RoutesOptions;
  readonly mode?: 'fast' | 'checked';
}

/** Expects that rounds of a layer give the reference's bits. `change` alters what the ranks bring. */
export async function expectReference(
  layer: RoundsShape,
  { tokens, routes = {}, mode = 'fast', nodes = 1, ...options }: RoundsUnderTest = {},
  change: (sources: readonly Source[]) => Source[] = (sources) => [...sources],
): Promise<void> {
  const shape = shapeOfRounds(layer);
  const { ranks, maxTokens } = shape;
  const counts = tokens ?? Array.from({ length: 3 }, () => Array<number>(ranks).fill(maxTokens));
  const rounds = counts.map((round, n) => change(makeSources(shape, round, n + 1, routes)));
  const machine = SimMachine.create({
    ranks,
    mode,
    seed: `${layer.wire} ${layer.weighting}`,
    hostLines: false,
  });
  const results = await World.local({ ranks, nodes, device: 'sim', sim: machine }, (world) =>
    runRounds(world, shape, rounds, options),
  );
  const summed = options.family === 'hybrid' ? nodes : 1;
  const expected = rounds.map((sources) => expectedRound(shape, sources, options.weights, summed));
  expect(machine.findings.map(formatFinding)).toEqual([]);
  expect(compareRounds(shape, rounds, results, expected)).toMatchObject({ different: 0, maxAbsError: 0 });
}
