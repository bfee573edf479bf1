/** Mistakes between programmatic launches. Two streams without an event are a program that the playground shows too. */
import { kernel, pointer } from '../../../../src/lang/index.js';
import { launch, type Rank } from '../harness.js';
import { type Exhibit, less, type Twins } from './exhibit.js';

const params = { from: pointer('u32'), to: pointer('u32') } as const;

const produce = kernel({ name: 'produce', params }, (g, { from, to }) => {
  g.releaseNext();
  g.store(to.at(g.threadIdx.x), g.load(from.at(g.threadIdx.x)));
});
const consume = (name: string, awaits: boolean) =>
  kernel({ name, params, using: { AWAITS: awaits } }, (g, { from, to }, { AWAITS }) => {
    if (AWAITS) g.awaitPrevious();
    const got = g.load(from.at(g.threadIdx.x));
    if (!AWAITS) g.awaitPrevious();
    g.store(to.at(g.threadIdx.x), got);
  });

const relay = kernel({ name: 'relay', params }, (g) => {
  g.awaitPrevious();
  g.releaseNext();
});
/** It reads, before `awaitPrevious`, what the launch before the last one left. */
const readEarly = kernel({ name: 'read_early', params }, (g, { from, to }) => {
  const got = g.load(from.at(g.threadIdx.x), { order: 'relaxed', scope: 'gpu' });
  g.awaitPrevious();
  g.store(to.at(g.threadIdx.x), got);
});

function threeBuffers({ device, stream }: Rank) {
  const input = device.allocate(128, 'input');
  const between = device.allocateWindow(128, 'between');
  const out = device.allocate(128, 'output');
  stream.fill(input.address, 128, 1);
  return { input, between, out };
}

/** Between the kernel that writes and the one that reads lies one that awaits the first, and then releases. */
const relayed: Exhibit['run'] = async ([rank], variant) => {
  const { input, between, out } = threeBuffers(rank!);
  const module = less(readEarly, 'g.load', 'relaxed → weak')[variant].ir();
  await launch(rank!, produce.ir(), { programmatic: true }, { from: input, to: between });
  await launch(rank!, relay.ir(), { programmatic: true }, { from: input, to: out });
  await launch(rank!, module, { programmatic: true }, { from: between, to: out });
  await rank!.stream.synchronize();
};

const programmatic =
  (consumers: Twins): Exhibit['run'] =>
  async ([rank], variant) => {
    const { input, between, out } = threeBuffers(rank!);
    await launch(rank!, produce.ir(), {}, { from: input, to: between });
    const module = consumers[variant].ir();
    await launch(rank!, module, { programmatic: true }, { from: between, to: out });
    await rank!.stream.synchronize();
  };

export const streams: readonly Exhibit[] = [
  {
    name: 'read by way of L1 before awaitPrevious',
    ranks: 1,
    run: relayed,
    expect: {
      kind: 'race',
      buffer: 'between',
      statements: ['g.store(to.at(g.threadIdx.x)', 'const got = g.load(from'],
      hint: /read_early was launched programmatically.*L1 may still answer.*order: 'relaxed', scope: 'gpu'/,
    },
  },
  {
    name: 'read before awaitPrevious',
    ranks: 1,
    run: programmatic({ wrong: consume('consume_at_once', false), right: consume('consume', true) }),
    expect: {
      kind: 'race',
      buffer: 'between',
      statements: ['g.store(to.at(g.threadIdx.x)', 'const got = g.load(from'],
      hint: /consume_at_once was launched programmatically.*not behind its g\.awaitPrevious/,
    },
  },
];
