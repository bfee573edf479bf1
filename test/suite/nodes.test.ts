/** The common suite where ranks are of several nodes: in one simulated machine, and in processes with libfabric between them. */
import { readdirSync, rmSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { formatFinding, SimMachine } from '../../src/sim/index.js';
import { Launch, World } from '../../src/world/index.js';
import { familiesAcross, roundTripCases } from './round-trip.js';

const notable =
  /^(bf16$|eight payloads|uneven and empty|nobody brings|ids out of range|combine weighs$|a graph of)/;

describe.each(familiesAcross)('$family, in one machine', (how) => {
  const cases = roundTripCases(4, { ...how, replays: 3 }).filter(({ name }) => notable.test(name));
  it.each(cases)('2 nodes: $name', async ({ ranks, run }) => {
    await World.local({ ranks, nodes: 2, device: 'sim' }, run);
  });

  it('is free of races', async () => {
    const { ranks, run } = cases.find(({ name }) => name.startsWith('uneven'))!;
    const machine = SimMachine.create({ ranks, mode: 'checked', seed: 'nodes' });
    await World.local({ ranks, nodes: 2, device: 'sim', sim: machine }, run);
    expect(machine.findings.map(formatFinding)).toEqual([]);
  });
});

describe.each(['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'])(
  '2 processes of 2 simulated GPUs each, over %s',
  (provider) => {
    it('bring the same bits as the reference', async () => {
      const [stdout, stderr] = [new PassThrough(), new PassThrough()];
      const said = Promise.all([text(stdout), text(stderr)]);
      const launch = await Launch.start({
        ranks: 4,
        nodes: 2,
        device: 'sim',
        program: fileURLToPath(new URL('./programs/nodes-rank.ts', import.meta.url)),
        args: [provider, notable.source],
        timeoutMs: 50_000,
        prefix: () => '',
        stdout,
        stderr,
      });
      const { exitCode } = await launch.finished;
      stdout.end();
      stderr.end();
      for (const name of readdirSync('/dev/shm')) {
        if (launch.pids.some((pid) => name.startsWith(`${pid}:`)))
          rmSync(`/dev/shm/${name}`, { force: true });
      }
      const [out, errors] = await said;
      const done = out
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { rank: number; name: string });
      const names = familiesAcross.flatMap((how) =>
        roundTripCases(4, { ...how, replays: 3 })
          .filter(({ name }) => notable.test(name))
          .map(({ name }) => `${how.family}: ${name}`),
      );
      for (const rank of [0, 1, 2, 3]) {
        expect(
          done.filter((one) => one.rank === rank).map(({ name }) => name),
          errors,
        ).toEqual(names);
      }
      expect(exitCode).toBe(0);
    });
  },
);
