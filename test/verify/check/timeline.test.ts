/** What `--replay` shows of a schedule: its last steps, and all of them as a timeline. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runCheck } from '../../../src/cli/check.js';
import { heddle } from '../../../src/cli/program.js';
import { kernel, pointer } from '../../../src/lang/index.js';
import { type CheckSubject, check, configuration } from '../../../src/verify/check/index.js';
import { temporaryFolder } from '../../temporary.js';
import { ringSubject } from './ring.js';

const folder = temporaryFolder();

interface Event {
  readonly ph: string;
  readonly name: string;
  readonly cat: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
  readonly id: number;
}

/** A replay with a trace: what is printed, and the events of the file. */
async function traced(subject: CheckSubject, replay: string) {
  const trace = join(folder, 'trace.json');
  const { text } = await runCheck([subject], [], { replay, trace });
  const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as { traceEvents: readonly Event[] };
  const of = (ph: string) => traceEvents.filter((event) => event.ph === ph);
  return { text, of, slices: of('X') };
}

test('a race: its two steps are marked, and come last', async () => {
  const wrong = ringSubject({ waitsUntilTaken: false });
  const { findings } = await check([wrong], { seeds: 20 });
  const race = findings.find(({ kind }) => kind === 'race')!;
  const { text, slices } = await traced(wrong, `${race.configuration}/${race.seed}`);
  const [first] = text.split('  before it:\n').slice(1);
  const lines = first!.split('\n\n')[0]!.split('\n');
  expect(lines.filter((line) => line.startsWith('→'))).toHaveLength(2);
  expect(lines.at(-1)).toMatch(
    /^→ +\d+ {2}rank \d, block 0, thread \d: \w+ \d+ \w+ Ring|window, .*\(.*ring\.ts:\d+:\d+\)$/,
  );
  expect(slices.filter(({ cat }) => cat === 'finding').length).toBeGreaterThanOrEqual(2);
});

test('a timeline has every rank, what was read, how long waits took, and whose stores ended them', async () => {
  const { slices, of, text } = await traced(ringSubject(), 'ring of 3, 3 rounds/random-4');
  expect(text).not.toContain('before it');
  expect(of('M').filter(({ name }) => name === 'process_name')).toHaveLength(3);
  const waits = slices.filter(({ name }) => name.startsWith('waited, reads'));
  // Of two waits in each of three rounds of three ranks, the first for what is there from the beginning.
  expect(waits).toHaveLength(18);
  expect(
    waits
      .map(({ name }) => /reads (\d)/.exec(name)![1])
      .sort()
      .join(''),
  ).toBe('000111111222222333');
  expect(waits.some(({ dur }) => dur > 5)).toBe(true);
  expect(slices.filter(({ name }) => name === 'a barrier of the block')).toHaveLength(18);
  expect(slices.some(({ name }) => /^stores 311 to .*row\[1\]/.test(name))).toBe(true);
  const ends = of('f').map(({ pid, tid, ts }) =>
    waits.find((w) => w.pid === pid && w.tid === tid && w.ts < ts && ts < w.ts + w.dur),
  );
  expect(ends.filter((wait) => wait !== undefined).length).toBeGreaterThanOrEqual(15);
});

test('a wait that nobody ends lasts to the end of the timeline', async () => {
  const stuck = kernel({ name: 'stuck', params: { flag: pointer('u32') } }, (g, { flag }) => {
    g.awaitEpoch(flag, 5, { order: 'acquire', scope: 'gpu', limit: 1000 });
    g.store(flag.at(1), 1);
  });
  const one = configuration('alone', { ranks: 1 }, async ({ device, rank }) => {
    const flag = device.allocate(8, 'flag');
    const stream = device.createStream();
    stream.fill(flag.address, 8, 0);
    const launcher = (await device.load(stuck.ir())).launcher({ grid: 1, block: 1, rank });
    launcher.set('flag', flag.address);
    launcher.launch(stream);
    await stream.synchronize();
  });
  const { text, slices } = await traced(
    { name: 'one', kernels: ['stuck'], configurations: [one] },
    'alone/random-0',
  );
  expect(text).toMatch(/before it:\n[\s\S]*rank 0, block 0, thread 0: waits for 5 in flag/);
  expect(slices.at(-1)!.name).toMatch(/^waits for 5 in flag/);
});

test('a trace is of one schedule', async () => {
  for (const replay of [[], ['--replay', 'random-4']])
    expect(await heddle(['check', 'router', '--trace', join(folder, 'none.json'), ...replay])).toBe(2);
});
