/** A proxy's program, found by its name and connected. */
import { HeddleError, messageOf, requireObject, requireText } from '../../../base/errors.js';
import type { ProxyMaker, WireMemory } from '../../../gpu/index.js';
import type { FabricCircle } from '../fabric.js';
import { type Connect, type Link, wireNetwork } from './network.js';

/** Which program: threads share no functions, so it is named. */
export interface ProxyProgramName {
  /** The URL of the module that exports it, … */
  readonly module: string;
  /** … and the export, a `ProxyMaker`. */
  readonly name: string;
  /** Given to it; must be such as threads can send each other. */
  readonly data: unknown;
  /** The ranks that it writes to, which also write to this one; all others unless it is said. */
  readonly reach?: readonly number[] | undefined;
}

/** How a program counts the ranks of a circle. */
export interface Numbering {
  /** [rank, as the program counts]: its rank in the circle, −1 where it is not in it. The same unless it is said. */
  readonly ranks?: readonly number[] | undefined;
}

/** A program with its network, connected. */
export interface PreparedProxy extends Link {
  step(): boolean;
}

async function importMakers(module: string): Promise<Readonly<Record<string, ProxyMaker>>> {
  try {
    return (await import(module)) as Record<string, ProxyMaker>;
  } catch (cause) {
    throw new HeddleError('HEDDLE_PROXY', `${module} cannot be imported: ${messageOf(cause)}`, { cause });
  }
}

export async function proxyMaker(of: {
  readonly module: string | URL;
  readonly name: string;
}): Promise<ProxyMaker> {
  requireObject('of', of, 'a module and the name of its export');
  const { module, name } = of;
  requireText('name', name);
  const makers = await importMakers(module instanceof URL ? module.href : requireText('module', module));
  const make = makers[name];
  if (make === undefined) throw new HeddleError('HEDDLE_PROXY', `${module} exports no ${name}`);
  return make;
}

/** The requirements of a proxy on its memory. */
export type ProxyMemory = Pick<WireMemory, 'address' | 'front' | 'side' | 'host' | 'nics'>;

/** Connects all ranks' proxies and makes the program; every rank calls it. */
export async function prepareProxy(
  circle: FabricCircle,
  connect: Connect,
  of: Omit<ProxyProgramName, 'module' | 'name'> & Numbering & { readonly make: ProxyMaker },
  memory: ProxyMemory,
): Promise<PreparedProxy> {
  const { make, data, reach, ranks } = of;
  const reached =
    ranks === undefined ? reach : reach?.map((rank) => ranks[rank]!).filter((rank) => rank >= 0);
  const link = await connect(circle, memory, reached, ranks);
  try {
    const program = make({
      rank: ranks?.indexOf(circle.rank) ?? circle.rank,
      ranks: ranks?.length ?? circle.ranks,
      out: [...(ranks?.keys() ?? [])].filter((rank) => ranks![rank]! < 0),
      network: wireNetwork(link, memory.front, ranks),
      memory: memory.host,
      side: memory.side,
      data,
    });
    const step = () => {
      const moved = link.progress();
      return program.step() || moved;
    };
    return { ...link, step };
  } catch (error) {
    await link.close();
    throw error;
  }
}

/** A peer that has left takes nothing any more. */
const longestDeliveryMs = 1000;

/** Before a proxy ends: brings to the peers what its rank has sent, and what they may still wait for. */
export async function deliver(
  proxy: Pick<PreparedProxy, 'step' | 'allCame'>,
  pause: () => Promise<void> | void,
): Promise<void> {
  const end = performance.now() + longestDeliveryMs;
  try {
    while ((proxy.step() || !proxy.allCame()) && performance.now() < end) await pause();
  } catch {
    // A peer is lost, or the program failed in its last turns: what it could not bring is lost with it, as it would be anyway.
  }
}
