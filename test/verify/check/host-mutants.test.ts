/** Mutants of what a thread of the host does in mapped memory, and of proxies at the network. */
import { describe, expect, it } from 'vitest';
import { kernel, pointer } from '../../../src/lang/index.js';
import { hostMutantsOf, mutateHosts } from '../../../src/verify/check/host-mutants.js';
import {
  type CheckSubject,
  check,
  checkSubjects,
  runOnce,
  WrongResult,
} from '../../../src/verify/check/index.js';
import { launch } from '../../gpu/sim/harness.js';

/** Bytes: what is asked, the question, what is answered. */
const [asked, question, answered] = [0, 4, 8];

const asks = kernel({ name: 'asks', params: { words: pointer('u32') } }, (g, { words }) => {
  g.store(words.at(1), 20);
  g.store(words, 1, { order: 'release', scope: 'sys' });
  const limit = 1_000_000;
  g.awaitEpoch(words.at(2), 21, { order: 'acquire', scope: 'sys', limit });
  g.store(words.at(1), 0); // the answer says that it was read
});

/**
 * A kernel asks a thread of its host something; `look` reads the question, which the word before it vouches for. `late`: it reads
 * the question once more when it has answered.
 */
const asking = (look: 'load' | 'read', late = false): CheckSubject => ({
  name: 'asking',
  kernels: ['asks'],
  configurations: [
    {
      name: 'one question',
      ranks: 1,
      async run(machine) {
        const device = machine.device(0);
        const mailbox = device.allocateMapped(64, 'mailbox');
        const { host } = mailbox;
        const word = new Uint32Array(1);
        let done = false;
        const step = () => {
          if (done || host.load(asked) !== 1) return false;
          if (look === 'load') word[0] = host.load(question);
          else host.read(question, new Uint8Array(word.buffer));
          host.store(answered, word[0]! + 1);
          if (late) host.read(question, new Uint8Array(4));
          done = true;
          return true;
        };
        const end = machine.startHost(0, { name: 'answers', hearsOutside: false, step, onError: () => {} });
        const rank = { rank: 0, device, stream: device.createStream() };
        await launch(rank, asks.ir(), { block: 1 }, { words: mailbox });
        await rank.stream.synchronize();
        end();
        const answer = host.load(answered);
        if (answer !== 21) throw new WrongResult(`the answer is ${answer}`);
      },
    },
  ],
});

const ofHost = /^answers test\/verify\/check\/host-mutants\.test\.ts:\d+:\d+ /;

it('a check tells the line of a thread of the host that races', async () => {
  const { findings } = await check([asking('load', true)], { seeds: 4 });
  const line = { kernel: 'answers', text: 'if (late) host.read(question, new Uint8Array(4));' };
  expect(findings).toContainEqual(
    expect.objectContaining({ kind: 'race', first: expect.objectContaining(line) }),
  );
});

describe('mutants of a thread of the host', () => {
  it('are all caught where it needs all that it does', async () => {
    const { findings, mutants } = await check([asking('read')], { seeds: 4, mutants: true });
    expect(findings).toEqual([]);
    expect(mutants).toMatchObject({ total: 12, killed: 12 }); // 5 of the kernel
  });

  it('name an order that is superfluous', async () => {
    const { mutants } = await check([asking('load')], { seeds: 4, mutants: true, schedulesPerMutant: 20 });
    expect(mutants.survivors.filter(({ id }) => ofHost.test(id))).toEqual([
      expect.objectContaining({
        id: expect.stringMatching(/acquire → relaxed$/),
        text: "if (look === 'load') word[0] = host.load(question);",
      }),
    ]);
  });
});

it('what NICs wrote into the memory of a GPU races where nobody flushes it', async () => {
  const inGpu = checkSubjects
    .flatMap(({ configurations }) => configurations)
    .find(({ name }) => name === 'hybrid, messages in GPU memory')!;
  const options = { seed: 'random-0', schedule: 'random' } as const;
  const { findings, machine } = await runOnce(inGpu, { ...options, hostLines: true });
  expect(findings).toEqual([]);
  const flushes = hostMutantsOf(machine.hostSites).filter(
    ({ description }) => description === 'flush removed',
  );
  expect(flushes.map(({ where }) => where.replace(/:.*/, ''))).toEqual(['src/net/world/proxy/network.ts']);
  const mutated = await runOnce(inGpu, { ...options, substituteHost: mutateHosts(flushes[0]!) });
  expect(mutated.findings.map(({ kind }) => kind)).toContain('race');
});
