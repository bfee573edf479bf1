/** The time that the network needs for a layer's messages by itself, measured like the layer: the least that its rounds can take. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { MappedMemory } from '../../../gpu/index.js';
import { section } from '../../../lang/index.js';
import type { World } from '../../../net/world/index.js';
import type { MeasuredPhase } from '../rows.js';
import { slowest } from '../statistics.js';
import { type AloneData, type ControlWord, control, type Exchanged } from './alone.js';
import type { Message, SentRound, SentRounds } from './sent.js';

/** The part of a world that it needs; there is no GPU in it. */
export type Ranks = Pick<World, 'rank' | 'ranks' | 'allGather' | 'barrier' | 'startProxy'>;

const phases = ['dispatch', 'combine'] as const;

/** By what is measured, a bit for each phase. */
const asked: Readonly<Record<MeasuredPhase, number>> = { dispatch: 1, combine: 2, both: 3 };

/** Memory for messages between offsets of a wire of so many bytes, and for what the host asks behind them. */
export const roomFor = (wireBytes: number): number => controlAt(wireBytes) + control.bytes;
const controlAt = (wireBytes: number): number => Math.ceil(wireBytes / 16) * 16;

/**
 * Every rank calls it, with equally many rounds. `memory` has `roomFor(wireBytes)` bytes; the caller frees it after the end.
 */
export async function networkCeiling(
  ranks: Ranks,
  memory: MappedMemory,
  { rounds, wireBytes, reach }: SentRounds,
) {
  const data: AloneData = { rounds: await exchanged(ranks, rounds), control: controlAt(wireBytes) };
  const proxy = await ranks.startProxy({
    module: new URL('./alone.js', import.meta.url),
    name: 'networkAlone',
    ...{ data, memory },
    ...(reach !== undefined && { reach }),
  });
  const { host } = memory;
  const at = (name: ControlWord): number => data.control + section(control, name).offset;
  let questions = 0;
  const ask = async (rounds: number, phases: number): Promise<number> => {
    host.store(at('rounds'), rounds);
    host.store(at('phases'), phases);
    host.store(at('asked'), ++questions);
    while (host.load(at('answered')) !== questions) {
      if (proxy.error !== null) throw proxy.error;
      await sleep(1);
    }
    const took = new Uint8Array(8);
    host.read(at('microseconds'), took);
    return new Float64Array(took.buffer)[0]!;
  };
  return {
    /** Microseconds a round of one phase or both, the slowest rank's, for each iteration. Every rank gets the same. */
    async time(phase: MeasuredPhase, rounds: number, iterations: number, warmups: number): Promise<number[]> {
      const mine = new Float64Array(iterations);
      for (let n = -warmups; n < iterations; n++) {
        await ranks.barrier('an iteration');
        const took = await ask(rounds, asked[phase]);
        if (n >= 0) mine[n] = took / rounds;
      }
      return slowest(ranks, mine);
    },
    /** Every rank calls it: what one has asked, the others answer too. */
    async dispose(): Promise<void> {
      await ranks.barrier('end of the network alone');
      await proxy.stop();
    },
  };
}

/** By round and phase, what leaves and how much comes, which every rank tells those that it writes to. */
async function exchanged(
  world: Ranks,
  sent: readonly SentRound[],
): Promise<readonly (readonly Exchanged[])[]> {
  const { rank, ranks } = world;
  const steps = sent.flatMap((round) => phases.map((phase) => round[phase]));
  const mine = Uint32Array.from(steps.flatMap((messages) => countsOf(messages, ranks)));
  const all = await world.allGather(new Uint8Array(mine.buffer), 'how many messages');
  const counts = all.map((bytes) => new Uint32Array(bytes.slice().buffer));
  const of = (step: number, leave: readonly Message[]): Exchanged => {
    const come = counts.reduce((sum, told) => sum + told[step * ranks + rank]!, 0);
    return { leave, come };
  };
  return sent.map((round, n) => phases.map((phase, i) => of(n * phases.length + i, round[phase])));
}

function countsOf(messages: readonly Message[], ranks: number): number[] {
  const counts = new Array<number>(ranks).fill(0);
  for (const { peer } of messages) counts[peer]!++;
  return counts;
}
