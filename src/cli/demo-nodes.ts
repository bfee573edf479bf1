/** The round of `heddle demo` in a world of processes, each of which simulates the GPUs of a node; libfabric is between them. */
import { createHash } from 'node:crypto';
import { extname, join } from 'node:path';
import { requireInteger, requireOneOf, requireText, UnavailableError } from '../base/errors.js';
import type { Bits, Shape } from '../moe/layer/index.js';
import { listProviders, type ProviderName, providers } from '../net/fabric/index.js';
import { launchReporting } from '../net/world/index.js';

/** What a process of it is told. */
export interface NodeRound {
  readonly shape: Shape;
  readonly seed: number;
  readonly provider: ProviderName;
}

/** What it says of each of its ranks. */
export interface NodeSays {
  readonly rank: number;
  readonly digest: string;
}

/**
 * What ranks of different nodes would reach each other by here: HEDDLE_PROVIDER, else the best that reaches beyond a machine;
 * null where there is no libfabric.
 */
export function networkHere(): ProviderName | null {
  const { HEDDLE_PROVIDER: asked } = process.env;
  if (asked) return requireOneOf('HEDDLE_PROVIDER', asked, providers);
  try {
    const usable = listProviders().filter(({ devices }) => devices.length > 0);
    const beyond = usable.filter(({ provider }) => provider !== 'shm');
    return [...beyond, ...usable][0]?.provider ?? null;
  } catch (error) {
    if (error instanceof UnavailableError) return null;
    throw error;
  }
}

/** By rank, the digest of what combine brought it. */
export async function runNodes(nodes: number, round: NodeRound): Promise<string[]> {
  const digests: string[] = [];
  const launch = {
    ranks: round.shape.ranks,
    nodes,
    device: 'sim',
    program: join(import.meta.dirname, `demo-node${extname(import.meta.filename)}`),
    args: [JSON.stringify(round)],
  } as const;
  await launchReporting('the demo', launch, (report) => {
    const { rank, digest } = report as NodeSays;
    digests[requireInteger('rank', rank, 0, round.shape.ranks - 1)] = requireText('digest', digest);
  });
  return digests;
}

/** Equal where all bits are. */
export const digestOf = (bits: Bits): string => createHash('sha256').update(bits).digest('hex');
