/** Processes of a world that are killed or stopped, and started anew: all of them, or one in its place. */
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { transpiled } from '../../tree.js';
import { EtcdServer } from './etcd/server.js';
import { launched } from './launched.js';

describe('a process', () => {
  /** What its ranks say, one line each, and the launcher. `all`: what a test shows when it fails. */
  const launch = async (program: string, options: object) => {
    const notes: string[] = [];
    const { exitCode, results, out, errors } = await launched({
      ...{ ranks: 3, nodes: 3, device: 'sim', restarts: 1, ...options },
      program: transpiled(`test/net/world/programs/${program}.ts`),
      ...{ timeoutMs: 50_000, prefix: false, onNote: (note) => notes.push(note) },
    });
    const ends = results.map((result) => JSON.stringify(result));
    const all = [errors, ...notes, ...ends].join('\n');
    return { exitCode, lines: out.trim().split('\n').sort(), all, notes, results };
  };

  let server: EtcdServer | undefined;
  afterEach(async () => {
    vi.unstubAllEnvs();
    await server?.end();
    server = undefined;
  });

  it('that is killed ends the world, which begins anew', needing('libfabric'), async () => {
    const folder = temporaryFolder(onTestFinished);
    const { exitCode, lines, all, notes, results } = await launch('restart', {
      ...{ ranks: 3, nodes: 3, args: [join(folder, 'fell')] },
    });
    expect(lines, all).toEqual([0, 1, 2].map((rank) => `${rank} of 3: the same bits`));
    expect(notes[0]).toBe('rank 1 was ended by SIGKILL; the others have 5 s to end');
    expect(notes.at(-1)).toBe('the world begins anew, start 2');
    expect(exitCode).toBe(0);
    expect(results).toHaveLength(6);
  });

  it('is not started for nobody but others that wait to be admitted', needing('libfabric'), async () => {
    const { results, all } = await launch('nobody', { restarts: 5, rejoin: true });
    // Three processes, and at most one more in the place of each that fell.
    expect(results.length, all).toBeLessThanOrEqual(5);
  });

  /** What the program rejoin says: in two of three rounds the ranks that were lost are out. */
  const roundsOf = (ranks: number, lost: readonly number[]) =>
    Array.from({ length: ranks }, (_, rank) => rank).flatMap((rank) =>
      [1, 2, 3, 4, 5, 6, 7]
        .filter((round) => round % 3 === 1 || !lost.includes(rank))
        .map((round) => `${rank}: round ${round} without ${round % 3 === 1 ? '' : lost}: right`),
    );

  for (const [where, of, lost, ...needs] of [
    ['of two ranks', { ranks: 4, nodes: 2 }, [0, 1], 'libfabric'],
    ['in etcd', { ranks: 3, nodes: 3 }, [1], 'libfabric', 'etcd'],
  ] as const)
    it(`${where} takes its place again, twice, and the others keep theirs`, needing(...needs), async () => {
      if (where === 'in etcd') {
        server = await EtcdServer.start();
        vi.stubEnv('HEDDLE_RENDEZVOUS', server.rendezvous);
      }
      const { exitCode, lines, all } = await launch('rejoin', { ...of, rejoin: true, restarts: 2 });
      expect(lines, all).toEqual(roundsOf(of.ranks, lost));
      expect(exitCode).toBe(0);
    });

  it(
    'that stands still and goes on, twice, finds itself out and comes back',
    needing('libfabric'),
    async () => {
      const { exitCode, lines, all, results } = await launch('rejoin', {
        ...{ restarts: 0, keepGoing: true, graceMs: 60_000, args: ['stops'] },
      });
      expect(lines, all).toEqual(roundsOf(3, [1]));
      expect(exitCode).toBe(0);
      expect(results).toHaveLength(3);
    },
  );
});
