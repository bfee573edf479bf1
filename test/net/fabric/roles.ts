import type { EngineOptions } from '../../../src/net/fabric/index.js';
import { meet } from '../../../src/tools/bench/fabric/roles.js';
import type { TestRank } from './ranks.js';

/** What the ranks of the tests do; each function runs in a process of its own. */

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
