/** What survivors see of a simulated SIGKILL, at every point of a round. test/gpu has the same with processes. */
import { describe, expect, it } from 'vitest';
import { RankLostError } from '../../src/errors/index.js';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  makeRoutes,
  row,
  type Tuning,
} from '../../src/moe/index.js';
import { SimMachine } from '../../src/sim/index.js';
import { World } from '../../src/world/index.js';

const ranks = 3;
const victim = 1;
const options = {
  experts: 6,
  topK: 3,
  maxTokens: 4,
  payloads: { x: row('bf16', 16) },
  output: { dtype: 'bf16', length: 16 },
} as const satisfies ExpertParallelOptions;

const spread = { blocks: 4, threads: 32, parts: 1 };
const tunings: Record<string, Tuning> = {
  pull: { dispatch: spread, combine: { ...spread, way: 'pull', ahead: 0 } },
  push: { dispatch: spread, combine: { ...spread, way: 'push', ahead: 1 } },
};

/** One rank's layer, inputs and rounds. */
async function prepare(world: World, tuning: Tuning) {
  const ep = await ExpertParallel.create(world, { ...options, tuning });
  const stream = world.device.createStream();
  const { topkIds, topkWeights } = makeRoutes(ep.shape, world.rank, options.maxTokens, 7);
  const x = new Uint16Array(options.maxTokens * options.output.length).fill(0x3f80);
  const out = emptyTensor(world.device, 'bf16', [options.maxTokens, options.output.length]);
  const dispatch = () => {
    const received = ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
    stream.copy(received.output.data, received.payloads.x!.data, received.output.bytes);
  };
  const combine = () => ep.combine(out, stream);
  return { ep, stream, dispatch, combine };
}

/** Runs survivors and a victim; resolves with what each survivor's calls threw. */
async function lose(
  tuning: Tuning,
  dies: (machine: SimMachine, rank: Awaited<ReturnType<typeof prepare>>) => Promise<void>,
  survives: (rank: Awaited<ReturnType<typeof prepare>>) => Promise<void>,
): Promise<RankLostError[]> {
  const machine = SimMachine.create({ ranks });
  const errors: RankLostError[] = [];
  const world = World.local({ ranks, device: 'sim', sim: machine }, async (world) => {
    const rank = await prepare(world, tuning);
    for (let round = 0; round < 2; round++) {
      rank.dispatch();
      rank.combine();
    }
    await rank.ep.synchronize(rank.stream);
    await world.barrier('two rounds are done');
    if (world.rank === victim) await dies(machine, rank);
    const error = await survives(rank).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(RankLostError);
    errors.push(error);
    // The layer is of no use any more, and says why.
    expect(() => rank.dispatch()).toThrow(RankLostError);
    await expect(rank.ep.synchronize(rank.stream)).rejects.toThrow(RankLostError);
    await rank.ep.dispose();
  });
  await expect(world).rejects.toThrow('rank 1 of the simulated machine was killed');
  return errors;
}

for (const [way, tuning] of Object.entries(tunings)) {
  describe(`survivors of a killed rank, combine by ${way}`, () => {
    it('name it when they wait for it in dispatch', async () => {
      const errors = await lose(
        tuning,
        async (machine, { ep, stream }) => {
          machine.kill(victim);
          await ep.synchronize(stream);
        },
        async ({ ep, stream, dispatch, combine }) => {
          dispatch();
          combine();
          await ep.synchronize(stream);
        },
      );
      expect(errors.map(({ ranks, operation, epoch }) => [ranks, operation, epoch])).toEqual([
        [[victim], 'dispatch', 3],
        [[victim], 'dispatch', 3],
      ]);
    });
  });
}
