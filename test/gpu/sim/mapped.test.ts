import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import type { MappedMemory } from '../../../src/gpu/index.js';
import type { Finding } from '../../../src/gpu/sim/index.js';
import { kernel, pointer, type Scope } from '../../../src/lang/index.js';
import { launch, machineOf, type Rank } from './harness.js';

// Mapped memory of 64 bytes: words 0 and 1 are flags, 8 bytes from byte 16 on what they vouch for.
const [asked, answered, question, answer] = [0, 4, 16, 20];

/** Waits for the host's question and answers with twice its number. */
const twice = (scope: Scope, inTime = true) =>
  kernel(
    { name: 'twice', params: { words: pointer('u32'), limit: 'u32' }, using: { scope, inTime } },
    (g, { words, limit }, { scope, inTime }) => {
      g.awaitEpoch(words, 1, { order: 'acquire', scope: 'sys', limit });
      if (inTime) g.store(words.at(5), 2 * g.load(words.at(4)));
      g.store(words.at(1), 1, { order: 'release', scope });
      if (!inTime) g.store(words.at(5), 2 * g.load(words.at(4)));
    },
  );

interface Asking {
  readonly kernel?: ReturnType<typeof twice>;
  ask?(mapped: MappedMemory): void;
  look?(mapped: MappedMemory): boolean;
}

const ask = ({ host }: MappedMemory) => {
  host.write(question, Uint8Array.of(21, 0, 0, 0));
  host.store(asked, 1);
};

/** The answer that the host reads, and what the checker found, under a schedule of each seed. */
async function talk(options: Asking): Promise<{ answers: Set<number>; findings: Finding[] }> {
  const answers = new Set<number>();
  const findings: Finding[] = [];
  for (let seed = 0; seed < 20; seed++) {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked', seed: `${seed}` });
    const mapped = rank.device.allocateMapped(64, 'mailbox');
    await launch(
      rank,
      (options.kernel ?? twice('sys')).ir(),
      { block: 1 },
      { words: mapped, limit: 1_000_000 },
    );
    (options.ask ?? ask)(mapped);
    const look = options.look ?? (({ host }) => host.load(answered) === 1);
    while (!look(mapped)) await new Promise(setImmediate);
    const found = new Uint8Array(4);
    mapped.host.read(answer, found);
    answers.add(found[0]!);
    await rank.stream.synchronize();
    findings.push(...machine.findings);
  }
  return { answers, findings };
}

const accesses = (findings: readonly Finding[]) =>
  findings.map((finding) =>
    finding.kind === 'race' ? [finding.location, finding.first.kernel, finding.second.kernel] : finding.kind,
  );

describe('memory that host and kernels share', () => {
  it('carries a question and an answer in order', async () => {
    const { answers, findings } = await talk({});
    expect(accesses(findings)).toEqual([]);
    expect([...answers]).toEqual([42]);
  });

  const flag = new Uint8Array(4);
  const [first, second] = [{ kernel: twice('gpu') }, { kernel: twice('sys', false) }];
  it.each<[string, Asking, readonly string[]]>([
    ['the kernel releases at a scope without the host', first, ['byte 20', 'twice', 'the host']],
    ['the kernel writes what it has already announced', second, ['byte 20', 'twice', 'the host']],
    [
      'the host writes what it has already announced',
      {
        ask({ host }) {
          host.store(asked, 1);
          host.write(question, Uint8Array.of(21, 0, 0, 0));
        },
      },
      ['byte 16', 'the host', 'twice'],
    ],
    [
      'the host looks without acquiring',
      {
        look({ host }) {
          host.read(answered, flag);
          return flag[0] === 1;
        },
      },
      ['byte 20', 'twice', 'the host'],
    ],
  ])('is a race where %s', async (_, asking, access) => {
    const { findings } = await talk(asking);
    expect(accesses(findings)).toContainEqual(access);
    for (const finding of findings)
      for (const { kernel, where } of finding.kind === 'race' ? [finding.first, finding.second] : [])
        if (kernel === 'the host') expect(where).toMatch(/^test\/gpu\/sim\/mapped\.test\.ts:\d+:\d+$/);
  });

  it('is ordered by launches and synchronisation alone, too', async () => {
    const copy = kernel({ name: 'copy', params: { words: pointer('u32') } }, (g, { words }) => {
      g.store(words.at(1), g.load(words));
    });
    const { machine, ranks } = machineOf({ ranks: 1, mode: 'checked' });
    const rank = ranks[0] as Rank;
    const mapped = rank.device.allocateMapped(8, 'mailbox');
    const word = new Uint8Array(4);
    for (const value of [7, 8]) {
      mapped.host.write(0, Uint8Array.of(value));
      await launch(rank, copy.ir(), { block: 1 }, { words: mapped });
      await rank.stream.synchronize();
      mapped.host.read(4, word);
      expect(word[0]).toBe(value);
    }
    expect(machine.findings).toEqual([]);
    await launch(rank, copy.ir(), { block: 1 }, { words: mapped });
    mapped.host.write(0, Uint8Array.of(9));
    await rank.stream.synchronize();
    expect(accesses(machine.findings)).toEqual([['byte 0', 'the host', 'copy']]);
  });

  it('refuses what lies outside or across words', () => {
    const { ranks } = machineOf({ ranks: 1 });
    const { host, raw } = ranks[0]!.device.allocateMapped(20, 'mailbox');
    expect(raw).toHaveLength(20);
    expect(() => host.load(2)).toThrow(
      new ArgumentError('offset', 2, 'a multiple of 4 from 0 to 16').message,
    );
    expect(() => host.store(20, 1)).toThrow(ArgumentError);
    expect(() => host.write(18, new Uint8Array(3))).toThrow(/offset is 18; it must be from 0 to 17/);
    expect(() => host.read(-1, new Uint8Array(1))).toThrow(ArgumentError);
  });
});
