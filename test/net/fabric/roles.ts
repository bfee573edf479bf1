import { type EngineOptions, TransferEngine } from '../../../src/net/fabric/index.js';
import type { TestRank } from './ranks.js';

/** What the ranks of the tests do; each function runs in a process of its own. */

/**
 * Opens an engine, meets everybody, and exchanges a region of `bytes` each. Peers and regions are by rank, this rank's own undefined;
 * the group is of everybody else's.
 */
async function meet(rank: TestRank, options: EngineOptions, bytes: number) {
  const engine = await TransferEngine.open(options);
  const region = engine.allocate(bytes);
  const all = await rank.exchange({ address: engine.address, descriptor: region.descriptor });
  const peers = all.map(({ address }, r) =>
    r === rank.rank ? undefined : engine.addPeer(address, `rank ${r}`),
  );
  const remotes = all.map(({ descriptor }, r) =>
    peers[r] ? engine.remote(peers[r], descriptor) : undefined,
  );
  const group = engine.group(remotes.filter((remote) => remote !== undefined));
  return { engine, peers, region, remotes, group };
}

export interface LossReport {
  /** The error of the writes to the victim. */
  readonly error: string;
  readonly code: string;
  readonly peers: readonly string[];
  /** From the victim's end to the error. */
  readonly afterMs: number;
  /** The error of one more write to it, and of a wait for something from it. */
  readonly refused: string;
  readonly waited: string;
  /** Writes to the bystander that ended well after the loss, and all that failed. */
  readonly bystanderWrites: number;
  readonly bystanderFailures: number;
  /** Operations left when everything was over. */
  readonly underway: number;
}

/**
 * Rank 1 is the victim, rank 2 a bystander, rank 0 writes to both all the time. When the writes to the victim
 * flow, the starting process ends the victim one way or another and tells when.
 */
export async function losesAPeer(rank: TestRank): Promise<LossReport | { landed: number } | null> {
  const { options, bytes } = rank.args as { options: EngineOptions; bytes: number };
  const { engine, peers, region, remotes } = await meet(rank, options, 2 * bytes);
  if (rank.rank > 0) {
    await rank.told();
    const landed = engine.immediate(5).landed;
    await engine.close();
    return { landed };
  }

  const victim = engine.counter();
  const bystander = engine.counter();
  const write = { source: region, sourceOffset: 0, targetOffset: bytes, bytes, immediate: 5 };
  let endedAt = Number.POSITIVE_INFINITY;
  rank.told().then((when) => {
    endedAt = when as number;
  });
  let told = false;
  while (victim.error === null) {
    // A few under way to each, all the time.
    if (victim.posted - victim.completed - victim.failed < 8) {
      engine.write({ ...write, target: remotes[1]!, counter: victim });
    }
    if (bystander.posted - bystander.completed - bystander.failed < 8) {
      engine.write({ ...write, target: remotes[2]!, counter: bystander });
    }
    if (!told && victim.completed >= 100) {
      told = true;
      rank.tell('flowing');
    }
    engine.poll();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const afterMs = Date.now() - endedAt;
  const { error } = victim;
  const before = bystander.completed;
  for (let i = 0; i < 100; i++) engine.write({ ...write, target: remotes[2]!, counter: bystander });
  await bystander.wait();
  const refused = messageOf(() => engine.write({ ...write, target: remotes[1]! }));
  const waited = await engine
    .immediate(6)
    .wait(1, { from: [peers[1]!], timeoutMs: 500 })
    .then(() => 'landed', String);
  engine.removePeer(peers[1]!);
  const report: LossReport = {
    error: error.message,
    code: (error as { code?: string }).code ?? '',
    peers: (error as { peers?: string[] }).peers ?? [],
    afterMs,
    refused,
    waited,
    bystanderWrites: bystander.completed - before,
    bystanderFailures: bystander.failed,
    underway: engine.underway,
  };
  region.close();
  rank.tell('over');
  await engine.close();
  return report;
}

function messageOf(call: () => void): string {
  try {
    call();
    return 'nothing was thrown';
  } catch (error) {
    return (error as Error).message;
  }
}

/** All to all: every rank scatters a slice to every other, and checks every byte it gets. */
export async function allToAll(rank: TestRank): Promise<{ bytesChecked: number }> {
  const { options, slice, rounds } = rank.args as { options: EngineOptions; slice: number; rounds: number };
  const { ranks, rank: me } = rank;
  // Two halves take turns: a rank may send round r+1 while another still reads round r, but not r+2, because it
  // needs everybody's r+1 first. Each half holds what goes out and what comes in.
  const half = slice * ranks;
  const { engine, region, group } = await meet(rank, options, 4 * half);
  const counter = engine.counter();
  const bytes = new Uint8Array(region.buffer);
  const others = Array.from({ length: ranks }, (_, r) => r).filter((r) => r !== me);
  // The halves have a tag each: with one tag, a quick rank's next round would be counted for a slow rank's this.
  const landed = [engine.immediate(70), engine.immediate(71)] as const;
  // The content of each place in round 0; a round only adds to it, so checking is one comparison of whole slices.
  const expected = Buffer.alloc(slice);
  let bytesChecked = 0;
  for (let round = 0; round < rounds; round++) {
    const out = (round & 1) * half;
    const into = 2 * half + (round & 1) * half;
    for (const to of others) fill(bytes.subarray(out + to * slice, out + (to + 1) * slice), me, to, round);
    engine.scatter({
      source: region,
      group,
      sourceOffsets: others.map((to) => out + to * slice),
      targetOffsets: others.map(() => into + me * slice),
      bytes: others.map(() => slice),
      immediate: 70 + (round & 1),
      counter,
    });
    await landed[(round & 1) as 0 | 1].wait(ranks - 1, { from: group.peers });
    for (const from of others) {
      fill(expected, from, me, round);
      const got = bytes.subarray(into + from * slice, into + (from + 1) * slice);
      if (expected.compare(got) !== 0) {
        const at = expected.findIndex((byte, i) => byte !== got[i]);
        throw new Error(`round ${round}: byte ${at} from rank ${from} is ${got[at]}, not ${expected[at]}`);
      }
      bytesChecked += slice;
    }
    await counter.wait();
  }
  await rank.exchange(null);
  await engine.close();
  return { bytesChecked };
}

/** Bytes that depend on who wrote them, to whom, in which round and where; quick, because the tests check gigabytes. */
function fill(slice: Uint8Array, from: number, to: number, round: number): void {
  const period = Math.min(slice.length, 1 << 16);
  const own = from * 31 + to * 17 + round * 7;
  for (let at = 0; at < period; at++) slice[at] = (own + at * 13 + (at >> 8)) & 0xff;
  for (let at = period; at < slice.length; at += period)
    slice.copyWithin(at, 0, Math.min(period, slice.length - at));
  // Repeats must not hide a slice that landed shifted by a period.
  for (let at = 0, n = 0; at + 4 <= slice.length; at += period, n++) slice[at] = n;
}
