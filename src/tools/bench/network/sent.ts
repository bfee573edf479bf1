/** The writes of a layer's proxies, a message at a time: not calculated, but learnt from the program that writes them. */
import { NativeView, type RemoteWrite, type WireMemory } from '../../../gpu/index.js';
import type { WirePlan } from '../../../moe/families/index.js';
import { proxyMaker, type World } from '../../../net/world/index.js';

/** A write of this rank: the peer, the offset in this rank's wire, and the offset in the peer's. */
export type Message = Readonly<Omit<RemoteWrite, 'tag'>>;

export interface SentRound {
  readonly dispatch: readonly Message[];
  readonly combine: readonly Message[];
}

/** The messages of rounds with different inputs. */
export interface SentRounds {
  readonly rounds: readonly SentRound[];
  /** How long the wire is that their offsets are of. */
  readonly wireBytes: number;
  /** The ranks that may be written to; all others where it is not said. */
  readonly reach: readonly number[] | undefined;
}

/** The traffic of a rank's proxy in a round, headers and all; means over ranks and input sets. Every rank calls it. */
export async function meanSent(world: Pick<World, 'allGather'>, rounds: readonly SentRound[]) {
  const phases = ['dispatch', 'combine'] as const;
  const mine = phases.flatMap((phase) => {
    const messages = rounds.flatMap((round) => round[phase]);
    return [messages.length, messages.reduce((sum, { bytes }) => sum + bytes, 0)];
  });
  const all = await world.allGather(new Uint8Array(Float64Array.from(mine).buffer), 'what was sent');
  const told = all.map((bytes) => new Float64Array(bytes.slice().buffer));
  const mean = (at: number): number =>
    told.reduce((sum, values) => sum + values[at]!, 0) / (told.length * rounds.length);
  return {
    dispatch: { messages: mean(0), bytes: mean(1) },
    combine: { messages: mean(2), bytes: mean(3) },
  };
}

/**
 * A second program of a rank's proxy, beside the one that runs. It sees the same words, as they stand when kernels have ended;
 * but its network only writes down, so nothing is sent twice. It must have been there since the first round, like the other.
 */
export async function shadowOf(plan: WirePlan, { raw, side }: WireMemory, { rank, ranks }: World) {
  const written: Message[] = [];
  const network = {
    write({ peer, from, to, bytes }: Readonly<RemoteWrite>): boolean {
      written.push({ peer, from, to, bytes });
      return true;
    },
    arrived: () => -1,
  };
  const make = await proxyMaker(plan.program);
  const { data } = plan.program;
  const program = make({ rank, ranks, out: [], network, side, memory: new NativeView(raw), data });
  /** The commands that kernels have handed over since it was asked last. */
  return (): readonly Message[] => {
    while (program.step());
    return written.splice(0);
  };
}

const places = { host: 'in host memory', gpu: 'in the GPU’s memory' } as const;

/** Where the messages of all ranks lie, in words. Every rank calls it. */
export async function wiresOf(world: Pick<World, 'wires' | 'allGather'>): Promise<string> {
  const { side, why } = await world.wires();
  const gathered = await world.allGather(Buffer.from(`${places[side]} (${why})`), 'where wires lie');
  return [...new Set(gathered.map((bytes) => Buffer.from(bytes).toString()))].join('; ');
}
