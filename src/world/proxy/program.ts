/**
 * Proxies: a program beside a rank's kernels that moves bytes for them. Its step looks at words in mapped memory that
 * kernels write, posts transfers, and raises words that kernels wait for. On a GPU's host it runs in a thread of its own;
 * beside a simulated GPU the machine gives it turns, and the race detector sees what it does.
 */
import type { HostView, MappedMemory } from '../../device/index.js';
import { HeddleError } from '../../errors/index.js';
import { type EngineOptions, type Region, TransferEngine } from '../../fabric/index.js';
import { connectFabric, type FabricConnection, type FabricRegions } from '../fabric.js';
import type { Group } from '../group.js';

/** What a proxy's program is given. */
export interface ProxyParts<Data = unknown> {
  readonly rank: number;
  readonly ranks: number;
  /** Its peers are the other ranks: `fabric.peers`. The program's turns drive it. */
  readonly engine: TransferEngine;
  readonly fabric: FabricConnection;
  /** The mapped memories that it was started with, in that order. */
  readonly memories: readonly ProxyMemory[];
  readonly data: Data;
}

/** Memory of this rank that kernels see, with the same of all other ranks. */
export interface ProxyMemory extends FabricRegions {
  readonly host: HostView;
  readonly region: Region;
}

/** A proxy's program: what a module's export makes, once all ranks are connected. */
export interface ProxyProgram {
  /** One turn: never waits, allocates nothing. True when it did anything; where it never does, the thread naps. */
  step(): boolean;
}
export type ProxyMaker<Data = unknown> = (parts: ProxyParts<Data>) => ProxyProgram;

/** What to run. Threads share no functions, so a program is named. */
export interface ProxyOptions {
  /** The module that exports it, … */
  readonly module: URL;
  /** … and the export, a `ProxyMaker`. */
  readonly name: string;
  /** Given to it; must be such as threads can send each other. */
  readonly data?: unknown;
  /** As many on every rank, in the same order. */
  readonly memories: readonly MappedMemory[];
  readonly engine?: Omit<EngineOptions, 'thread' | 'onError'>;
}

/** What of a group a proxy needs: a thread reaches its rank's by mail. */
export type ProxyGroup = Pick<Group, 'rank' | 'ranks' | 'allGather' | 'barrier' | 'onRankLost'>;

/** Which program, as threads can be told. */
export interface ProgramName {
  /** The module's URL. */
  readonly module: string;
  readonly name: string;
  readonly data: unknown;
  readonly engineOptions: EngineOptions | undefined;
}

/** A program with its engine, connected. */
export interface PreparedProxy {
  step(): boolean;
  close(): Promise<void>;
}

/** Connects all ranks' proxies and makes the program; every rank calls it. */
export async function prepareProxy(
  group: ProxyGroup,
  { module, name, data, engineOptions }: ProgramName,
  memories: readonly Pick<MappedMemory, 'host' | 'raw'>[],
): Promise<PreparedProxy> {
  const makers = (await import(module)) as Record<string, ProxyMaker>;
  const make = makers[name];
  if (make === undefined) throw new HeddleError('HEDDLE_PROXY', `${module} exports no ${name}`);
  let failure: Error | null = null;
  const onError = (error: Error) => {
    failure ??= error;
  };
  const engine = await TransferEngine.open({ ...engineOptions, thread: 'caller', onError });
  try {
    const fabric = await connectFabric(group, engine);
    const shared: ProxyMemory[] = [];
    for (const { host, raw } of memories) {
      const region = engine.register(raw);
      shared.push({ host, region, ...(await fabric.share(region)) });
    }
    const { rank, ranks } = group;
    const program = make({ rank, ranks, engine, fabric, memories: shared, data });
    return {
      step() {
        try {
          const moved = engine.poll();
          // A transfer that nobody counts has failed: what it carried will not come.
          if (failure !== null) throw failure;
          return program.step() || moved;
        } catch (error) {
          throw fabric.toRankLost(error);
        }
      },
      async close() {
        fabric.close();
        await engine.close();
      },
    };
  } catch (error) {
    await engine.close();
    throw error;
  }
}
