/**
 * Processes that fall at the points that a rank passes on its way into a world, through a loss and out again, and what the others
 * see of it. The points are found by passing them: nobody lists them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { JoinWorldOptions } from '../../../src/net/world/index.js';
import { Rendezvous } from '../../../src/net/world/rendezvous.js';
import { heard, isThere } from '../../processes.js';
import { root, transpiled } from '../../tree.js';
import { freePort } from './circles.js';

/** What a process is told. */
export interface Told {
  readonly join: JoinWorldOptions & { readonly rank: number; readonly ranksHere: number };
  /** The rank that falls first, so that the others leave it out. */
  readonly first: number;
  /** Whether it also creates a layer over proxies, for which it needs libfabric. */
  readonly layers: boolean;
  readonly fall: { readonly point: string; readonly signal: Fault } | null;
}

export type Fault = 'SIGKILL' | 'SIGSTOP';

/** An error that a rank was given. */
export interface Thrown {
  readonly name: string;
  readonly message: string;
  readonly lost: readonly number[];
}

/** How a rank ended: what it was thrown, and the world that it was in at last; null if in none. */
export interface Report {
  readonly rank: number;
  readonly heard: readonly Thrown[];
  readonly members: readonly number[] | null;
  /** By its process, in order. */
  readonly passed: readonly string[];
}

export interface Falling {
  /** Where the rendezvous is: in this process, as under `heddle run`, or in that of rank 0. Rank 0 falls, or the last. */
  readonly host: 'launcher' | 'rank 0';
  readonly layers: boolean;
}

const ranks = 4;
/**
 * Processes by their first ranks. When the first has fallen, those behind it are numbered anew. Layers need nodes of equal size, here
 * processes.
 */
const crewOf = ({ layers }: Falling) =>
  (layers ? [0, 1, 2, 3] : [0, 1, 3]).map((rank, i, firsts) => ({
    rank,
    ranksHere: (firsts[i + 1] ?? ranks) - rank,
  }));
const first = 1;

/**
 * Silence tells of a rank that is stopped, never of one that is killed. A rank that has not joined looks for its host until its time
 * is over.
 */
const patience = {
  SIGKILL: { timeoutMs: 15_000, lossTimeoutMs: 60_000, mostMs: 50_000 },
  SIGSTOP: { timeoutMs: 6_000, lossTimeoutMs: 2_000, mostMs: 50_000 },
} as const;
/** Of stopped ones in a world with layers: a process that opens a network is silent meanwhile, and is not to be lost for it. */
const networkPatience = { timeoutMs: 30_000, lossTimeoutMs: 10_000, mostMs: 90_000 } as const;

const patienceFor = ({ layers }: Falling, signal: Fault) =>
  layers && signal === 'SIGSTOP' ? networkPatience : patience[signal];

/** Processes that wait for a world to be in. */
const idle: ChildProcess[] = [];
const all = new Set<ChildProcess>();

export const endFalls = (): void => {
  for (const member of all) member.kill('SIGKILL');
};

export const victimOf = ({ host }: Falling): number => (host === 'launcher' ? ranks - 1 : 0);

/** What the process that will fall passes where it does not fall. */
export async function findPoints(falling: Falling): Promise<readonly string[]> {
  const reports = await run(falling, null);
  for (const { rank, members } of reports) expect(members).toEqual(rank === first ? null : [0, 2, 3]);
  return reports.find(({ rank }) => rank === victimOf(falling))!.passed;
}

/** The points that the sources name. A call's are its operation's, wherever it is made. */
export function namedPoints(): string[] {
  const folder = join(root, 'src/net/world');
  const sources = readdirSync(folder).filter((name) => name.endsWith('.ts'));
  return sources.flatMap((name) =>
    [...readFileSync(join(folder, name), 'utf8').matchAll(/\bpassing\('(.+?)', '(.+?)'\)/g)].map(
      ([, what, step]) => `${what}, ${step}`,
    ),
  );
}

/** At these not all ranks have joined. */
const joining = /^(join|the places|the nodes: processes), /;

/** Survivors all end alike and in time, in a world if there is still who hosts it, and no error names a rank that lives. */
export async function expectSurvived(falling: Falling, point: string, signal: Fault): Promise<void> {
  const victim = victimOf(falling);
  const since = performance.now();
  const survivors = (await run(falling, { point, signal })).filter(({ rank }) => rank !== victim);
  const told = JSON.stringify(survivors.map(({ rank, heard, members }) => ({ rank, heard, members })));
  expect(performance.now() - since, told).toBeLessThan(patienceFor(falling, signal).mostMs);
  const here = survivors.filter(
    ({ rank, heard, members }) => (rank !== first || members) ?? heard.length > 0,
  );
  expect(new Set(here.map(({ members }) => JSON.stringify(members))).size, told).toBe(1);
  for (const { heard, members } of here) {
    if (members === null) expect(heard, told).not.toEqual([]);
    if (falling.host === 'launcher' && !joining.test(point)) expect(members, told).not.toBeNull();
    for (const { name, lost } of heard) {
      expect(['RankLostError', 'RendezvousError'], told).toContain(name);
      for (const rank of lost) expect([victim, first], told).toContain(rank);
    }
  }
}

/** What all ranks report. A victim that was stopped goes on when the others have ended, and comes to its end as well. */
async function run(falling: Falling, fall: Told['fall']): Promise<Report[]> {
  const { timeoutMs, lossTimeoutMs } = patienceFor(falling, fall?.signal ?? 'SIGKILL');
  const world = `world of ${fall?.point}`;
  const hosted = falling.host === 'launcher';
  const rendezvous = hosted ? await Rendezvous.listen({ ranks, world }) : null;
  const address = `127.0.0.1:${rendezvous?.address.port ?? (await freePort())}`;
  const crew = crewOf(falling);
  const members = await Promise.all(crew.map(() => idle.pop() ?? start()));
  const ended = members.map((member) => heard<readonly Report[]>(member));
  for (const [i, member] of members.entries()) {
    const { rank } = crew[i]!;
    const told: Told = {
      join: { ...crew[i]!, ranks, address, world, hosted, timeoutMs, lossTimeoutMs },
      ...{ first, layers: falling.layers },
      fall: rank === victimOf(falling) ? fall : null,
    };
    member.send(told);
    // The launcher knows of an end before a rank has come.
    void ended[i]!.then((reports) => reports ?? rendezvous?.lose(rank, 'its process ended'));
  }
  const victim = crew.findIndex(({ rank }) => rank === victimOf(falling));
  const others = await Promise.all(ended.filter((_, i) => i !== victim));
  // At its last point nobody waits for the victim any more: the others may have ended before it has stopped.
  const goOn = setInterval(() => members[victim]!.kill('SIGCONT'), 20);
  const reports = [...others, await ended[victim]!].flatMap((of) => of ?? []);
  clearInterval(goOn);
  for (const member of members) if (isThere(member)) idle.push(member);
  await rendezvous?.close();
  return reports;
}

async function start(): Promise<ChildProcess> {
  const member = spawn(process.execPath, [transpiled('test/net/world/programs/falling.ts')], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  all.add(member);
  await heard(member); // that it is here
  return member;
}
