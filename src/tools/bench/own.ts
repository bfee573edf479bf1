/** Kernels of one's own: the rounds that the program of a configuration of theirs gives to be timed. */
import { ArgumentError } from '../../base/errors.js';
import { inRange } from '../../gpu/index.js';
import type { TimedConfiguration } from '../../verify/check/index.js';
import { number } from './columns.js';
import type { Bench, Measuring } from './run.js';
import { gigabytes, type Spread } from './statistics.js';

interface OwnBenchPlan extends Measuring {
  readonly configuration: TimedConfiguration;
}

interface OwnPoint {
  readonly time: Spread;
  /** The most bytes that a rank says it moves in a round; null where none says. */
  readonly bytes: number | null;
}

interface OwnMembers {
  readonly configuration: string;
  readonly ranks: number;
  readonly iterations: number;
  /** Rounds of an iteration, back to back. */
  readonly rounds: number;
}

const asks = '{ enqueue: (stream) => launcher.launch(stream) }';
const roundsOn = { cuda: 20, sim: 2 } as const;

export const ownBench: Bench<OwnBenchPlan, OwnPoint, OwnMembers> = {
  format: 'heddle-bench-own/1',
  setting: ({ configuration: { ranks } }) => ({ ranks }),
  members({ configuration: { name, ranks }, iterations, device }) {
    return { configuration: name, ranks, rounds: roundsOn[device], iterations };
  },
  async measure({ timing }, plan, tell) {
    const { world, stream } = timing;
    const { name, program } = plan.configuration;
    tell.doing(`${name}: its own rounds, which are not timed`);
    const given = await program(world);
    if (given === undefined)
      throw new ArgumentError(
        'configuration',
        name,
        `one whose program returns a round to be timed: ${asks}`,
      );
    tell.doing(`${name}: timing`);
    const rounds = roundsOn[plan.device];
    const time = await timing.timed(rounds, () => {
      for (let n = 0; n < rounds; n++) given.enqueue(stream);
    });
    await tell.trace(() => inRange(name, stream, (on) => given.enqueue(on)));
    const all = await world.allGather(new Uint8Array(Float64Array.of(given.bytes ?? 0).buffer), 'bytes');
    const most = Math.max(...all.map((own) => new Float64Array(own.slice().buffer)[0]!));
    tell.point({ time, bytes: most > 0 ? most : null });
  },
  heading: ({ configuration, ranks, rounds }) =>
    `${configuration}: ${ranks} ${ranks === 1 ? 'rank' : 'ranks'}, ${rounds} rounds back to back`,
  columns: ({ unit }) => [
    { head: `a round ${unit}`, cell: ({ time }) => number(time.median) },
    { head: 'p10–p90', cell: ({ time }) => `${number(time.p10)}–${number(time.p90)}`, width: 18 },
    {
      ...{ head: 'GB/s', rate: true },
      cell: ({ time, bytes }) => number(bytes && gigabytes(bytes, time.median)),
    },
  ],
  lines: (point) => [point],
};
