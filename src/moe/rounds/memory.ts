/** The memory of a rank that a layer takes, by purpose: read off a plan, before anything is allocated. */

import {
  ArgumentError,
  integerFrom,
  oneOf,
  requireInteger,
  requireMembers,
  type Table,
} from '../../base/errors.js';
import type { Device, WireSide } from '../../gpu/index.js';
import { evenNodes, topologyOf, type World } from '../../net/world/index.js';
import { type Plan, usualChip, type WindowPlan, type WirePlan } from '../families/index.js';
import {
  combineRowBytes,
  dispatchRowBytes,
  type Layer,
  limits,
  type Shape,
  sharing,
} from '../layer/index.js';
import { choose } from './choice.js';
import { type ExpertParallelOptions, layerOf, parallelOptions, targetOf } from './options.js';

/** The options of `create`, and the world that they are meant for. */
export interface MemoryOptions extends ExpertParallelOptions {
  /** How many ranks share the experts. */
  readonly ranks: number;
  /** Equal nodes of consecutive ranks. Default 1. */
  readonly nodes?: number;
  /** The kind of devices on which the ranks run. Default 'cuda': GPUs, whether there are any here or not. */
  readonly device?: 'cuda' | 'sim';
}

/** One object may be given to `memory` and to `create`. */
export const knownOptions: Table<MemoryOptions> = {
  ...parallelOptions,
  ranks: integerFrom(1, limits.ranks),
  nodes: true,
  device: oneOf(['cuda', 'sim']),
};

/** Requires that what such an object says of its world is true of the one that it is given with. */
export function requireItsWorld(
  { ranks, nodes, device }: Partial<MemoryOptions>,
  world: Pick<World, 'ranks' | 'topology' | 'device'>,
): void {
  const said = { ranks, nodes, device };
  const are = { ranks: world.ranks, nodes: world.topology.nodes, device: world.device.kind };
  for (const name of ['ranks', 'nodes', 'device'] as const)
    if (said[name] !== undefined && said[name] !== are[name]) {
      const possible = `${are[name]}, what this world has, or left out`;
      throw new ArgumentError(`options.${name}`, said[name], possible);
    }
}

/** The purpose of some of the memory. */
export interface MemoryPart {
  /** The name of the memory: 'receive window', or that of a buffer of this rank alone. */
  readonly purpose: string;
  /** A window's section, its place up to the next one; null for what has none. */
  readonly section: string | null;
  readonly bytes: number;
  /** It lies in the host's memory, where kernels, the proxy and, of most worlds, the network reach it. */
  readonly host?: true;
}

/** The memory of one rank; all ranks take the same. */
export interface MemoryUse {
  /** The sum of the parts in the GPU's memory. */
  readonly bytes: number;
  /** The sum of the parts in the memory of the host: 0 in a world of one node. */
  readonly hostBytes: number;
  /** Without those of no bytes. */
  readonly parts: readonly MemoryPart[];
}

/** The memory that `create` would ask for with these options. The plan is the same one, so it refuses by the same numbers. */
export function memoryFor(options: MemoryOptions): MemoryUse {
  requireMembers('options', options, knownOptions);
  const { ranks, nodes = 1, device = 'cuda' } = options;
  requireInteger('ranks', ranks, 1, limits.ranks);
  const layer = layerOf(ranks, options);
  const topology = topologyOf(evenNodes(ranks, nodes), 0);
  const target = targetOf({ kind: device, ...usualChip, rank: 0, topology }, options);
  const unmeasured = { kind: device, model: 'a GPU that was not measured' };
  const { family, tuning } = choose(layer, target, unmeasured, options);
  return memoryOf(family.plan(layer, target, tuning), options);
}

/** The memory of the layer's plan, once for each round in flight. `side`: where its wire's messages lie. */
export function memoryOf(
  { windows, wire, buffers, ofLayer }: Plan,
  options: ExpertParallelOptions,
  side: WireSide = 'host',
): MemoryUse {
  const once: MemoryPart[] = [
    ...windows.flatMap((window) => sectionsOf(window)),
    ...(wire === null ? [] : sectionsOf(wire, side === 'host' ? wire.layout.bytes : wire.front)),
    ...[...buffers, ...(ofLayer === null ? [] : [ofLayer])].map(({ purpose, bytes }) => ({
      purpose,
      section: null,
      bytes,
    })),
  ];
  return useOf(once.map((part) => ({ ...part, bytes: (options.rounds ?? 1) * part.bytes })));
}

/** `ofHost`: so many bytes of it lie in the host's memory. */
const sectionsOf = (
  { purpose, layout: { fields, bytes } }: WindowPlan | WirePlan,
  ofHost = 0,
): MemoryPart[] =>
  fields.map(({ name, offset }, i) => ({
    purpose,
    section: name,
    bytes: (fields[i + 1]?.offset ?? bytes) - offset,
    ...(offset < ofHost && { host: true }),
  }));

/** The memory that parts take together; those of no bytes are left out. */
export function useOf(all: readonly MemoryPart[]): MemoryUse {
  const parts = all.filter(({ bytes }) => bytes > 0);
  const sum = (of: readonly MemoryPart[]): number => of.reduce((total, { bytes }) => total + bytes, 0);
  return {
    bytes: sum(parts.filter(({ host }) => !host)),
    hostBytes: sum(parts.filter(({ host }) => host)),
    parts,
  };
}

/** Refuses a layer that the device's memory cannot hold. `taken`: what it would take with fewer tokens. */
export function requireRoom(
  { bytes }: MemoryUse,
  layer: Layer,
  { memoryBytes, description }: Pick<Device, 'memoryBytes' | 'description'>,
  taken: (maxTokens: number) => MemoryUse,
): void {
  if (bytes <= memoryBytes) return;
  const { maxTokens } = layer;
  const { groups, replicas } = sharing(layer);
  const slots = groups * maxTokens;
  // Flags take as much however many tokens there are, so this may be a few too many.
  let fitting = Math.floor((maxTokens * (memoryBytes / bytes)) / replicas) * replicas;
  while (fitting > 0 && taken(fitting).bytes > memoryBytes) fitting -= replicas;
  const gibibytes = (n: number): string => `${(n / 2 ** 30).toFixed(1)} GiB`;
  const why = `its window of ${slots} slots would take ${gibibytes(bytes)} of ${gibibytes(memoryBytes)}`;
  throw new ArgumentError('maxTokens', maxTokens, `at most ${fitting} on the ${description}: ${why}`);
}

/**
 * The least that a rank's window must hold: ids, weights, payloads and one partial row for each slot. Layouts add
 * flags and alignment to that.
 */
export function leastWindowBytes(shape: Shape): number {
  const slotBytes = 2 * 4 * shape.topK + dispatchRowBytes(shape) + combineRowBytes(shape);
  return sharing(shape).groups * shape.maxTokens * slotBytes;
}
