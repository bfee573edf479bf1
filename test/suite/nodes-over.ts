/** The common suite in a world of processes, each of which simulates the GPUs of a node, with libfabric between them. */
import { describe, expect, it } from 'vitest';
import type { ProviderName } from '../../src/net/fabric/index.js';
import { needing, type TestedProvider } from '../needs.js';
import { launched } from '../net/world/launched.js';
import { transpiled } from '../tree.js';
import { casesAcross } from './round-trip.js';

/** Half a minute of two processors goes into one of these, and others may want them. */
const timeout = 240_000;

/** Requires what programs/nodes-rank says where every rank had the bits of the reference in all cases. `errors`: what a test shows when it fails. */
export function requireAllRight(
  out: string,
  provider: ProviderName,
  ranks: number,
  ranksOfNode: number,
  errors: string,
  wanted = '',
): void {
  const all = casesAcross(ranks, ranks / ranksOfNode).map(({ name }) => name);
  const names = all.filter((name) => new RegExp(wanted).test(name));
  const done = Array.from({ length: ranks }, (): string[] => []);
  for (const line of out.trim().split('\n')) {
    const { rank, name } = JSON.parse(line) as { rank: number; name: string };
    done[rank]!.push(name);
  }
  const wires = (rank: number) =>
    rank < ranksOfNode
      ? 'host: HEDDLE_WIRES, or fabric.wires, says so'
      : `gpu: a write over ${provider} landed there (simulated)`;
  expect(done, errors).toEqual(done.map((_, rank) => [wires(rank), ...names]));
}

export function testNodesOver(provider: TestedProvider, nodes: number, ranksOfNode: number): void {
  const ranks = nodes * ranksOfNode;
  describe(
    `${nodes} processes of ${ranksOfNode} simulated GPUs each, over ${provider}`,
    needing(provider),
    () => {
      it('bring the same bits as the reference', { timeout }, async () => {
        const { exitCode, out, errors } = await launched({
          ...{ ranks, nodes, device: 'sim', args: [provider] },
          program: transpiled('test/suite/programs/nodes-rank.ts'),
          timeoutMs: timeout - 10_000,
          prefix: false,
        });
        requireAllRight(out, provider, ranks, ranksOfNode, errors);
        expect(exitCode).toBe(0);
      });
    },
  );
}
