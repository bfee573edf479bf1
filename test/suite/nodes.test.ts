/** The common suite where ranks are of several nodes, in one simulated machine; nodes-over-*.test.ts have real networks. */
import { describe, expect, it } from 'vitest';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { World } from '../../src/net/world/index.js';
import { casesAcross } from './round-trip.js';

describe('hybrid, in one machine', () => {
  const cases = casesAcross(4, 2);
  it.each(cases)('2 nodes: $name', async ({ ranks, run }) => {
    await World.local({ ranks, nodes: 2, device: 'sim' }, run);
  });

  it('is free of races', async () => {
    const { ranks, run } = cases.find(({ name }) => name.startsWith('uneven'))!;
    const machine = SimMachine.create({ ranks, mode: 'checked', seed: 'nodes', hostLines: false });
    await World.local({ ranks, nodes: 2, device: 'sim', sim: machine }, run);
    expect(machine.findings.map(formatFinding)).toEqual([]);
  });
});
