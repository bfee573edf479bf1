/** `--replay` runs exactly what a finding names, or says what there is. */
import { describe, expect, test } from 'vitest';
import { runCheck } from '../../../src/cli/check.js';
import { kernel } from '../../../src/lang/index.js';
import {
  check,
  checkSubjects,
  configuration as ownConfiguration,
  WrongResult,
} from '../../../src/verify/check/index.js';
import { ringSubject } from './ring.js';

const subjects = [ringSubject()];
const names = ['ring of 2, 3 rounds', 'ring of 3, 3 rounds'];

const printed = 'rank 0, block 0, thread 0: epoch 7';
/** A kernel that prints, and what its program does behind it. */
function printing(then: () => void) {
  const talks = kernel({ name: 'talks', params: { epoch: 'u32' } }, (g, { epoch }) => {
    g.print('epoch', epoch);
  });
  const one = ownConfiguration('one block', { ranks: 1 }, async ({ device, rank }) => {
    const stream = device.createStream();
    const launcher = (await device.load(talks.ir())).launcher({ grid: 1, block: 1, rank });
    launcher.set('epoch', 7);
    launcher.launch(stream);
    await stream.synchronize();
    then();
  });
  return { name: 'talk', kernels: ['talks'], configurations: [one] };
}

describe('a replay', () => {
  test('runs one schedule of one configuration', async () => {
    const report = await check(subjects, { replay: 'ring of 3, 3 rounds/priority-17' });
    expect(report).toMatchObject({ configurations: 1, schedules: 1 });
  });

  test('without a configuration runs one schedule of each', async () => {
    const report = await check(subjects, { replay: 'random-4' });
    expect(report).toMatchObject({ configurations: 2, schedules: 2 });
  });

  test('that the documentation shows exists', async () => {
    const { text, clean } = await runCheck(checkSubjects, [], { replay: 'push, 3 ranks/priority-17' });
    expect(clean).toBe(true);
    expect(text).toMatch(/^4 kernels, 1 configuration, 1 schedule: no finding\n/);
  });

  test('shows what kernels print, as no other check does', async () => {
    const subject = printing(() => {});
    for (const replay of ['one block/random-0', 'priority-1']) {
      expect((await runCheck([subject], [], { replay })).text.split('\n')[0]).toBe(printed);
      const { text } = await runCheck([subject], [], { replay, json: true });
      expect(JSON.parse(text).prints).toEqual([printed]);
    }
    expect((await runCheck([subject], [], { seeds: 1 })).text).not.toContain('epoch');
  });

  test('shows once what kernels print, where something is found too', async () => {
    const subject = printing(() => {
      throw new WrongResult('it is wrong');
    });
    for (const replay of ['random-0', 'one block/random-0']) {
      const { text } = await runCheck([subject], [], { replay, json: true });
      expect(JSON.parse(text)).toMatchObject({ prints: [printed], findings: [{ kind: 'wrong-result' }] });
    }
  });

  const wrong = [
    ['nothing', '', names],
    ['a configuration without its seed', 'ring of 3, 3 rounds', names.toReversed()],
    ['a configuration with an empty seed', 'ring of 3, 3 rounds/', names.toReversed()],
    ['a configuration that is not there', 'ring of 4, 3 rounds/random-1', names],
    ['a seed that is none', 'ring of 2, 3 rounds/random', names],
    ['a seed that is none, alone', 'tuesday', names],
  ] as const;
  test.each(wrong)('of %s says what there is, the nearest first', async (_, replay, there) => {
    await expect(check(subjects, { replay })).rejects.toThrow(
      `replay is ${JSON.stringify(replay)}; it must be '<configuration>/<seed>' as a finding names it: a seed is random-17 or priority-17; a configuration is one of${there.map((name) => `\n  ${name}`).join('')}`,
    );
  });
});

test('of many configurations an error shows the five nearest, and where all are listed', async () => {
  const [only] = ringSubject().configurations;
  const many = Array.from({ length: 300 }, (_, n) => ({ ...only!, name: `ring ${n}` }));
  const subject = { name: 'rings', kernels: ['ring'], configurations: many };
  await expect(check([subject], { replay: 'ring 17/random-1' })).resolves.toMatchObject({ schedules: 1 });
  await expect(check([subject], { replay: 'rung 17/random-1' })).rejects.toThrow(
    /a configuration is one of 300 \(heddle check --list <kernel> names Heddle's own\), such as\n {2}ring 17(\n {2}ring \d+){4}$/,
  );
});

test('a name that contains what was asked for is nearer than any other', async () => {
  const [only] = ringSubject().configurations;
  const many = ['a', 'b', 'c', 'd', 'e', 'the router, one token'].map((name) => ({ ...only!, name }));
  await expect(
    check([{ name: 'rings', kernels: ['ring'], configurations: many }], { replay: 'Router/random-1' }),
  ).rejects.toThrow(/such as\n {2}the router, one token\n/);
});

test('configurations have names of their own, so that a replay means one', () => {
  const all = checkSubjects.flatMap(({ configurations }) => configurations.map(({ name }) => name));
  expect(all.filter((name, i) => all.indexOf(name) !== i)).toEqual([]);
});
