/** Mistakes between ranks: rank 0 puts numbers into the window of rank 1 and tells it by a flag. More are programs that the playground shows too. */
import { device, field, kernel, layout, peers, pointer } from '../../../../src/lang/index.js';
import { type Exhibit, less, onWindow, type Twins } from './exhibit.js';

const Post = layout('Post', { data: field('u32', 32), arrived: field('u32', 1), taken: field('u32', 1) });

const params = { win: peers(Post), out: pointer('u32'), epoch: 'u32' } as const;
const sending = { params: { win: peers(Post), epoch: 'u32' } } as const;

const send = device(sending, (g, { win, epoch }) => {
  const lane = g.threadIdx.x;
  g.store(win.at(1).data.at(lane), lane);
  g.barrier();
  if (lane === 0) g.store(win.at(1).arrived, epoch, { order: 'release', scope: 'sys' });
});

/** Waits until rank 1 has taken what the round before sent. */
const sendWhenTaken = device(
  { params: { win: peers(Post), epoch: 'u32' }, using: { send } },
  (g, { win, epoch }, { send }) => {
    if (g.threadIdx.x === 0) {
      g.awaitEpoch(win.at(0).taken, epoch - 1, { order: 'acquire', scope: 'sys', limit: 1000 });
    }
    g.barrier();
    send({ win, epoch });
  },
);

const receive = device({ params }, (g, { win, out, epoch }) => {
  const lane = g.threadIdx.x;
  if (lane === 0) g.awaitEpoch(win.at(1).arrived, epoch, { order: 'acquire', scope: 'sys', limit: 1000 });
  g.barrier();
  g.store(out.at(lane), g.load(win.at(1).data.at(lane)));
});

/** Tells rank 0 that the numbers have been read. */
const receiveAndSay = device({ params, using: { receive } }, (g, { win, out, epoch }, { receive }) => {
  receive({ win, out, epoch });
  g.barrier();
  if (g.threadIdx.x === 0) g.store(win.at(0).taken, epoch, { order: 'release', scope: 'sys' });
});

/** Waits for exactly this epoch: when the sender is two rounds ahead, its flag has moved past it. */
const countExactly = device({ params }, (g, { win, epoch }) => {
  if (g.threadIdx.x === 0) {
    let seen = g.load(win.at(1).arrived, { order: 'acquire', scope: 'sys' });
    while (seen !== epoch) seen = g.load(win.at(1).arrived, { order: 'acquire', scope: 'sys' });
  }
});

const countAtLeast = device({ params }, (g, { win, epoch }) => {
  if (g.threadIdx.x === 0) {
    g.awaitEpoch(win.at(1).arrived, epoch, { order: 'acquire', scope: 'sys', limit: 1000 });
  }
});

const announce = device(sending, (g, { win, epoch }) => {
  if (g.threadIdx.x === 0) g.store(win.at(1).arrived, epoch, { order: 'release', scope: 'sys' });
});

function pass(name: string, using: { send: typeof send; receive: typeof receive }) {
  return kernel({ name, params, using }, (g, { win, out, epoch }, { send, receive }) => {
    if (g.rank === 0) send({ win, epoch });
    else receive({ win, out, epoch });
  });
}

const right = pass('pass', { send, receive });
const dataWrite = 'g.store(win.at(1).data.at(lane)';
const dataRead = 'g.store(out.at(lane), g.load(win.at(1).data';

const exhibit = (name: string, twins: Twins, hint: RegExp, rounds = 1): Exhibit => ({
  ...{ name, ranks: 2, run: onWindow(twins, Post.bytes, { rounds }) },
  expect: { kind: 'race', buffer: 'window', location: /^data\[/, statements: [dataWrite, dataRead], hint },
});

const flag = 'g.store(win.at(1).arrived';

export const flags: readonly Exhibit[] = [
  exhibit('missing release', less(right, flag, 'release → relaxed'), /releases nothing: make it a release/),
  exhibit(
    'release at too narrow a scope',
    less(right, flag, 'sys → gpu'),
    /store.*gpu scope.*another rank: use sys/,
  ),
  exhibit(
    'barrier missing after the wait',
    less(right, 'g.barrier', 'removed', 1),
    /nothing orders thread \d+ after that: a barrier must come after it and before the load/,
  ),
  exhibit(
    'reuse one round too early',
    { wrong: right, right: pass('pass_and_say', { send: sendWhenTaken, receive: receiveAndSay }) },
    /overwrites what rank 1 read before, and nothing orders the reuse/,
    3,
  ),
  {
    name: 'a wait for exact equality that is overtaken',
    ranks: 2,
    run: onWindow(
      {
        wrong: pass('count_exactly', { send: announce, receive: countExactly }),
        right: pass('count_at_least', { send: announce, receive: countAtLeast }),
      },
      Post.bytes,
      { rounds: 2 },
    ),
    expect: { kind: 'stuck-wait', location: /arrived\[0\]/, statements: ['while (seen !== epoch)'] },
  },
];
