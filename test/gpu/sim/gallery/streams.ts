/** Mistakes between programmatic launches. Two streams without an event are a program that the playground shows too. */
import { kernel, pointer } from '../../../../src/lang/index.js';
import { launch } from '../harness.js';
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

/** One kernel writes, perhaps another awaits it and then releases, and the last one reads. */
const exhibit = (name: string, readers: Twins, hint: RegExp, relayed = false): Exhibit => ({
  ...{ name, ranks: 1 },
  async run([rank], variant) {
    const { device, stream } = rank!;
    const input = device.allocate(128, 'input');
    const between = device.allocateWindow(128, 'between');
    const out = device.allocate(128, 'output');
    stream.fill(input.address, 128, 1);
    await launch(rank!, produce.ir(), { programmatic: relayed }, { from: input, to: between });
    if (relayed) await launch(rank!, relay.ir(), { programmatic: true }, { from: input, to: out });
    await launch(rank!, readers[variant].ir(), { programmatic: true }, { from: between, to: out });
    await stream.synchronize();
  },
  expect: {
    ...{ kind: 'race', buffer: 'between', hint },
    statements: ['g.store(to.at(g.threadIdx.x)', 'const got = g.load(from'],
  },
});

export const streams: readonly Exhibit[] = [
  exhibit(
    'read by way of L1 before awaitPrevious',
    less(readEarly, 'g.load', 'relaxed → weak'),
    /read_early was launched programmatically.*L1 may still answer.*order: 'relaxed', scope: 'gpu'/,
    true,
  ),
  exhibit(
    'read before awaitPrevious',
    { wrong: consume('consume_at_once', false), right: consume('consume', true) },
    /consume_at_once was launched programmatically.*not behind its g\.awaitPrevious/,
  ),
];
