/**
 * What survivors see of a fault, for real: processes that simulate the GPUs of a node each, over libfabric, on hosts of their own
 * where network namespaces can be made. Every fault at every point of a round, and over both providers.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { needing, type TestedProvider } from '../needs.js';
import { createHosts, type Hosts, whyNoHosts } from '../net/fabric/hosts.js';
import { type Case, type Fault, faults, points } from './cases.js';
import { Crew, EarlyFailure } from './crew.js';

const noHosts = whyNoHosts();

/**
 * Where only a time-out tells: the network's own is half of it. A busy machine may reach a short one in the rounds before the
 * fall: they say nothing, and all is done again with the next.
 */
const shortMs = [3000, 6000, 12_000];
/** Where all must be well, or a loss is told without a time-out: nothing that a busy machine reaches. */
const longMs = 30_000;
const providers: readonly TestedProvider[] = ['tcp;ofi_rxm', 'udp;ofi_rxd'];
const shapes = [
  { processes: 3, ranksHere: 1 },
  { processes: 2, ranksHere: 2 },
] as const;

/** Each fault at each point over each provider; over the rows and columns shapes and victims take turns. */
const table = providers.flatMap((provider, i) =>
  points.flatMap((point, p) =>
    faults.map((fault, f) => ({
      ...{ fault, point, provider },
      shape: shapes[((f >> 1) + p + i) % 2]!,
      process: (f + p) % 4 === 0 ? 0 : 1,
    })),
  ),
);

/**
 * Whether its end tells of it. That a write is refused mostly tells at once over tcp, too; but the refusal ends the connection,
 * and what was not yet posted then waits for a victim that may have ended its proxy.
 */
const isToldAtOnce = (fault: Fault): boolean => fault === 'killed' || fault === 'left by its proxy';

/** The table's cases of a provider, and that all is well without a fault. */
export function testFaults(provider: TestedProvider): void {
  // A case may be run three times, each with processes of its own.
  describe(`processes over ${provider}`, { timeout: 180_000, ...needing(provider) }, () => {
    let hosts: Hosts | null = null;
    let crew: Crew;
    beforeAll(() => {
      hosts = noHosts === null ? createHosts(3) : null;
      crew = new Crew(hosts);
    });
    afterAll(async () => {
      await crew.end();
      hosts?.remove();
    });

    /** Every world meets at a port of its own. */
    let port = 20_000 + (process.pid % 500) * 20;
    const caseOf = (of: Pick<Case, 'waitMs' | 'fall'> & { shape: (typeof shapes)[number] }): Case => ({
      ...of,
      ...of.shape,
      meeting: { address: `${hosts?.address(0) ?? '127.0.0.1'}:${port++}` },
      fabric: { provider, devices: [hosts === null ? 'lo' : 'net0'] },
    });

    it.each(shapes.map((shape) => ({ shape, ...shape })))(
      'end rounds well, $processes nodes of $ranksHere',
      async ({ shape }) => {
        const said = await crew.run(caseOf({ shape, waitMs: longMs, fall: null }));
        const reports = said.flatMap((of) => of ?? []);
        expect(reports).toHaveLength(shape.processes * shape.ranksHere);
        for (const { first, wrong } of reports) expect({ first, wrong }).toEqual({ first: null, wrong: 0 });
      },
    );

    const cases = table.filter((of) => of.provider === provider);
    const title = 'survive that one is $fault in $point, and name it';
    const survive = async ({ fault, point, shape, process }: (typeof cases)[number]) => {
      const fall = { process, fault, point, cut: hosts?.cutCommand(process) ?? [] };
      const run = (waitMs: number) =>
        crew.run(caseOf({ shape, waitMs, fall })).finally(() => hosts?.mend(process));
      const [said, waitMs] = await unlessEarly(run, isToldAtOnce(fault) ? [longMs] : shortMs);
      // It ends too, whatever it thinks.
      if (fault !== 'cut off') expect(said[process] === undefined).toBe(fault === 'killed');
      // Kernels wait for waitMs at most. They leave sooner where no host of their machine can do anything for them; but a rank that is
      // told before it launches waits for the others, and of that the machine does not know. The rest is for a busy machine.
      expectNamed(said, process, shape, 3 * waitMs);
    };
    it.each(cases.filter(({ fault }) => fault !== 'cut off'))(title, survive);
    it.each(cases.filter(({ fault }) => fault === 'cut off'))(title, needing('hosts'), survive);
  });
}

type Said = Awaited<ReturnType<Crew['run']>>;

/** What is said with the first of these time-outs before which nothing fails; and that time-out. */
export async function unlessEarly(
  run: (waitMs: number) => Promise<Said>,
  [waitMs, ...longer]: readonly number[],
): Promise<[Said, number]> {
  try {
    return [await run(waitMs!), waitMs!];
  } catch (error) {
    if (!(error instanceof EarlyFailure) || longer.length === 0) throw error;
    return unlessEarly(run, longer);
  }
}

/** Every rank of the others was told a rank of the victim's process, in which operation and when, in time, and stays told. */
function expectNamed(
  said: Said,
  victim: number,
  { ranksHere }: { readonly ranksHere: number },
  mostMs: number,
): void {
  for (const [process, reports] of said.entries()) {
    if (process === victim) continue;
    expect(reports).toHaveLength(ranksHere);
    for (const { first, again, ms, wrong } of reports!) {
      const text = JSON.stringify({ first, again, ms });
      expect(first?.name, text).toBe('RankLostError');
      expect(first!.ranks.length, text).toBeGreaterThan(0);
      for (const rank of first!.ranks) expect(Math.floor(rank / ranksHere), text).toBe(victim);
      // Where kernels ended well it was a write, or the group, that told. What was under way may still end well.
      if (first!.epoch !== null)
        expect(`${first!.operation} ${first!.epoch}`).toMatch(/^(dispatch|combine) [345]$/);
      expect(again?.ranks, text).toEqual(first!.ranks);
      expect(ms, text).toBeLessThan(mostMs);
      expect(wrong).toBe(0);
    }
  }
}
