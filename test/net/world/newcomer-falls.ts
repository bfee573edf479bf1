/** A newcomer that falls at a point that it passes on its way into a world, and what the ranks of the world see of it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';
import { RankLostError } from '../../../src/base/errors.js';
import type { JoinOptions } from '../../../src/net/world/environment.js';
import { World } from '../../../src/net/world/index.js';
import { Rendezvous } from '../../../src/net/world/rendezvous.js';
import { transpiled } from '../../tree.js';

/** What the process of the newcomer is told. */
export interface Coming {
  readonly join: JoinOptions;
  readonly fall: { readonly point: string; readonly signal: 'SIGKILL' | 'SIGSTOP' } | null;
}

const ranks = 2;
const children = new Set<ChildProcess>();

export const endNewcomers = (): void => {
  for (const child of children) child.kill('SIGKILL');
};

/** Whether it has ended or stands still. */
function hasFallen({ pid, exitCode, signalCode }: ChildProcess): boolean {
  if (exitCode !== null || signalCode !== null) return true;
  try {
    return /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return true;
  }
}

/** Ranks of one process, from the coming of the newcomer on. What they were in at last, as origins, and whom they missed. */
async function members(join: JoinOptions, child: ChildProcess) {
  return World.join({ device: 'sim', ...join, rank: 0, ranks, ranksHere: ranks }, async (began) => {
    const missed: number[] = [];
    const allKnowOf = async (fallen: boolean) =>
      (await began.allGather(Uint8Array.of(fallen ? 1 : 0), 'fallen')).some(([said]) => said === 1);
    while ((await began.newcomers()) === 0 && !(await allKnowOf(hasFallen(child)))) await delay(20);
    let world = await began.renew();
    const grown = world.ranks;
    for (;;) {
      try {
        await world.createWindow(64, 'window');
        await world.barrier('all is made');
        return { grown, origins: world.circle.origins, missed };
      } catch (error) {
        if (!(error instanceof RankLostError)) throw error;
        missed.push(...error.ranks.map((rank) => world.circle.origins[rank]!));
        world = await world.renew();
      }
    }
  });
}

async function run(fall: Coming['fall']) {
  const world = `newcomer falls at ${fall?.point}`;
  const rendezvous = await Rendezvous.listen({ ranks, world });
  const address = `127.0.0.1:${rendezvous.address.port}`;
  // Silence of a newcomer that stands still would tell too late.
  const join = { address, world, hosted: true, lossTimeoutMs: 60_000 };
  const child = spawn(process.execPath, [transpiled('test/net/world/programs/newcomer.ts')], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  children.add(child);
  const said = new Promise<readonly string[]>((resolve) => {
    child.once('message', resolve);
    child.once('exit', () => resolve([]));
  });
  await once(child, 'spawn');
  child.send({ join: { ...join, newcomer: 'spare' }, fall } satisfies Coming);
  const reports = await members(join, child);
  if (fall !== null) child.kill('SIGKILL');
  const passed = await said;
  await rendezvous.close();
  return { reports, passed };
}

/** What it passes where it does not fall. */
export async function findNewcomerPoints(): Promise<readonly string[]> {
  const { reports, passed } = await run(null);
  const report = { grown: ranks + 1, origins: [0, 1, 2], missed: [] };
  expect(reports).toEqual([report, report]);
  return passed;
}

/** The ranks go on without it, and nobody is missed but the newcomer. */
export async function expectUndisturbed(point: string, signal: 'SIGKILL' | 'SIGSTOP'): Promise<void> {
  const { reports } = await run({ point, signal });
  for (const { origins, missed } of reports) {
    expect(origins).toEqual([0, 1]);
    for (const origin of missed) expect(origin).toBe(2);
  }
}
