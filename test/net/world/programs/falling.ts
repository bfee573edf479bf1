// A process that is ranks of one world after another, as it is told, and falls at a point that it passes. One rank of
// each world is the first to be lost; the others leave it out.
import { HeddleError, RankLostError } from '../../../../src/base/errors.js';
import { ExpertParallel, row } from '../../../../src/moe/index.js';
import { onPassing } from '../../../../src/net/world/circle.js';
import { World } from '../../../../src/net/world/index.js';
import type { Report, Thrown, Told } from '../falls.js';

/** What this process has passed in the world that it is in; where it falls, and how. */
let passed: string[] = [];
let fall: Told['fall'] = null;

onPassing((what, step) => {
  const name = `${what}, ${step}`;
  const times = passed.filter((point) => point.startsWith(name)).length;
  passed.push(times === 0 ? name : `${name} (${times + 1})`);
  if (fall !== null && passed.at(-1) === fall.point) process.kill(process.pid, fall.signal);
});

function thrown(error: unknown): Thrown {
  const ranks = error instanceof RankLostError ? error.ranks : [];
  return {
    name: error instanceof HeddleError ? error.constructor.name : 'another error',
    message: String(error),
    lost: ranks,
  };
}

/** Everything that needs the others. */
async function make(world: World, layers: boolean): Promise<void> {
  await world.createWindow(64, 'window');
  if (layers) {
    const output = row('f32', 4);
    const shape = { experts: 2 * world.ranks, topK: 1, maxTokens: 1, payloads: {}, output };
    await ExpertParallel.create(world, { ...shape, waitMs: 10_000, onLoss: 'mask' });
  }
  await world.barrier('all is made');
}

async function live(world: World, { layers, first }: Told): Promise<Omit<Report, 'passed'>> {
  const heard: Thrown[] = [];
  const { rank } = world;
  let fell = false;
  try {
    for (;;) {
      try {
        await make(world, layers);
        if (fell) return { rank, heard, members: world.circle.origins };
        if (rank === first) {
          world.circle.abandon('it is the first to fall');
          return { rank, heard, members: null };
        }
        await world.barrier('work');
      } catch (error) {
        heard.push(thrown(error));
        if (!(error instanceof RankLostError)) return { rank, heard, members: null };
      }
      await world.mask();
      fell = true;
    }
  } catch (error) {
    heard.push(thrown(error));
    return { rank, heard, members: null };
  }
}

async function join(told: Told): Promise<Report[]> {
  const options = {
    device: 'sim',
    fabric: { provider: 'tcp;ofi_rxm', devices: ['lo'] },
    ...told.join,
  } as const;
  try {
    const reports = await World.join(options, (world) => live(world, told));
    return reports.map((report) => ({ ...report, passed }));
  } catch (error) {
    return [{ rank: told.join.rank, heard: [thrown(error)], members: null, passed }];
  }
}

process.on('message', (told: Told) => {
  passed = [];
  fall = told.fall;
  void join(told).then((reports) => process.send!(reports));
});
process.send!('here');
