import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ArgumentError, RankLostError, RendezvousError } from '../../../src/base/errors.js';
import { Channel } from '../../../src/net/world/channel.js';
import type { JoinOptions } from '../../../src/net/world/environment.js';
import { encodeFrame, FrameReader } from '../../../src/net/world/frame.js';
import { type Message, PROTOCOL_VERSION, parseMessage } from '../../../src/net/world/messages.js';
import { ProcessCircle } from '../../../src/net/world/process-circle.js';
import { Rendezvous, type RendezvousOptions } from '../../../src/net/world/rendezvous.js';
import { newNonce, prove } from '../../../src/net/world/secret.js';
import { spoiltJson } from '../../hostile.js';
import { freePort, joinAll } from './circles.js';
import { messages } from './messages.js';

const SECRET = 'a secret of these tests';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function host(options: Partial<RendezvousOptions> = {}) {
  const rendezvous = await Rendezvous.listen({ ranks: 2, world: 'w', secret: SECRET, ...options });
  ends.push(() => rendezvous.close());
  return rendezvous;
}

async function join(rendezvous: Rendezvous, rank: number, options: JoinOptions = {}) {
  const circle = await ProcessCircle.join({
    rank,
    ranks: 2,
    address: `127.0.0.1:${rendezvous.address.port}`,
    world: 'w',
    secret: SECRET,
    hosted: true,
    ...options,
  });
  ends.push(() => circle.dispose());
  return circle;
}

const both = (rendezvous: Rendezvous) => Promise.all([join(rendezvous, 0), join(rendezvous, 1)]);

/** Joins as rank 1 of 2 where somebody else listens. */
const joinAt = (address: string, options: JoinOptions = {}) =>
  ProcessCircle.join({ rank: 1, ranks: 2, address, ...options });

/** What a rank says of itself, but for the proof. */
const claimOf = (rank: number) => ({
  ...{ version: PROTOCOL_VERSION, world: 'w', rank, ranks: 2, outside: false },
  ...{ lossTimeoutMs: 20_000, nonce: newNonce() },
});

const framed = (head: string, bytes = 0): Buffer =>
  Buffer.concat(encodeFrame({ head, bytes: new Uint8Array(bytes) }));

/** Lets a server listen until the test ends. */
async function addressOf(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ends.push(() => server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A connection driven by hand: what a buggy or hostile program would do. */
class Raw {
  readonly messages: Message[] = [];
  readonly closed: Promise<void>;
  readonly #reader = new FrameReader({ head: 1 << 16, bytes: 1 << 22 });
  #wake = () => {};

  constructor(readonly socket: Socket) {
    this.closed = new Promise((resolve) => socket.on('close', () => resolve()));
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      for (const { head } of this.#reader.read(chunk)) this.messages.push(parseMessage(head));
      this.#wake();
    });
    ends.push(() => socket.destroy());
  }

  static async to(rendezvous: Rendezvous, options: { readonly allowHalfOpen?: boolean } = {}): Promise<Raw> {
    const socket = connect({ ...options, port: rendezvous.address.port, host: '127.0.0.1' });
    const raw = new Raw(socket);
    await once(socket, 'connect');
    return raw;
  }

  first<T extends Message['type']>(type: T): Promise<Extract<Message, { type: T }>> {
    return this.nth(type, 1);
  }

  /** Resolves with the nth message of a type, counted from 1, when it has come. */
  async nth<T extends Message['type']>(type: T, n: number): Promise<Extract<Message, { type: T }>> {
    for (;;) {
      const found = this.messages.filter((message) => message.type === type)[n - 1];
      if (found) return found as Extract<Message, { type: T }>;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  send(message: object, bytes = new Uint8Array(0)): void {
    for (const part of encodeFrame({ head: JSON.stringify(message), bytes })) this.socket.write(part);
  }

  /** Joins as an honest rank would, but for what is overridden. */
  async join(rank: number, overrides: Partial<Extract<Message, { type: 'join' }>> = {}, secret = SECRET) {
    const { nonce: hostNonce } = await this.first('hello');
    const claim = { ...claimOf(rank), ...overrides };
    const proof = prove(secret, 'joiner', claim, hostNonce);
    this.send({ type: 'join', proof, ...claim });
  }
}

describe('joining', () => {
  it('resolves for everybody when the last rank has come', async () => {
    const rendezvous = await host();
    const order: string[] = [];
    const first = join(rendezvous, 0).then(() => order.push('joined'));
    const probe = await Raw.to(rendezvous); // a full round trip later, rank 0 still waits
    await probe.first('hello');
    order.push('last comes');
    await Promise.all([first, join(rendezvous, 1)]);
    expect(order).toEqual(['last comes', 'joined']);
  });

  it('waits for a rendezvous that opens later', async () => {
    const port = await freePort();
    const early = joinAt(`127.0.0.1:${port}`);
    const refused = connect(port, '127.0.0.1').on('error', () => {});
    await new Promise((resolve) => refused.on('close', resolve)); // by now rank 1 has been refused as well
    const circles = await Promise.all([early, joinAt(`127.0.0.1:${port}`, { rank: 0 })]);
    await Promise.all(circles.map((circle) => circle.dispose()));
  });

  it('names the ranks that never came', async () => {
    const rendezvous = await host({ ranks: 4 });
    const options = { ranks: 4, timeoutMs: 1500 };
    const joins = await Promise.allSettled([join(rendezvous, 0, options), join(rendezvous, 2, options)]);
    for (const result of joins) {
      expect(result).toMatchObject({ reason: { ranks: [1, 3], operation: 'join' } });
      expect((result as PromiseRejectedResult).reason).toBeInstanceOf(RankLostError);
      expect((result as PromiseRejectedResult).reason.cause.message).toContain('never joined: rank 1, 3');
    }
  });

  it('says where it looked when there is no rendezvous', async () => {
    const port = await freePort();
    await expect(joinAt(`127.0.0.1:${port}`, { timeoutMs: 100 })).rejects.toThrow(
      new RegExp(
        `rank 1 found no rendezvous at 127.0.0.1:${port} within 100 ms: .*ECONNREFUSED.*is rank 0 running`,
      ),
    );
  });

  it('gives up on a listener that is no rendezvous', async () => {
    const silent = createServer((socket) => ends.push(() => socket.destroy()));
    // What it says comes when the time is over: an attempt that was begun still hears it.
    const talking = createServer((socket) => {
      socket.on('error', () => {});
      setTimeout(() => socket.end('SSH-2.0-OpenSSH_9.6\r\n'), 200);
    });
    for (const [server, complaint] of [
      [silent, /did not answer within/],
      [talking, /does not speak Heddle's protocol/],
    ] as [Server, RegExp][]) {
      const address = await addressOf(server);
      await expect(joinAt(address, { timeoutMs: 150 })).rejects.toThrow(complaint);
    }
  });

  it('tells rank 0 that its port is taken', async () => {
    const stale = await host();
    await expect(joinAt(`127.0.0.1:${stale.address.port}`, { rank: 0 })).rejects.toThrow(
      /something listens there already, perhaps an earlier start/,
    );
  });
});

describe('refusals', () => {
  const refusals: [string, JoinOptions, RegExp][] = [
    ['another secret', { secret: 'another secret than that' }, /its secret is another one; HEDDLE_SECRET/],
    ['no secret', { secret: undefined as never }, /its secret is another one/],
    ['another world', { world: 'yesterday' }, /it serves world "w", not "yesterday"; end the other world/],
    ['another number of ranks', { ranks: 3 }, /its world has 2 ranks, this rank was started for 3/],
  ];

  it.each(refusals)('%s', async (_, options, complaint) => {
    const rendezvous = await host();
    const refused = join(rendezvous, 0, options);
    await expect(refused).rejects.toBeInstanceOf(RendezvousError);
    await expect(refused).rejects.toThrow(complaint);
    await both(rendezvous); // and the world it was kept from is unharmed
  });

  it('a rank that is there already', async () => {
    const rendezvous = await host();
    const raw = await Raw.to(rendezvous);
    await raw.join(0);
    await raw.first('welcome');
    await expect(join(rendezvous, 0)).rejects.toThrow(
      /rank 0 has already joined; give every process its own rank/,
    );
  });

  it('a late joiner: the world has started', async () => {
    const rendezvous = await host();
    await both(rendezvous);
    await expect(join(rendezvous, 1)).rejects.toThrow(/its world has already started, with all its ranks/);
  });

  it('a late joiner: the world is stale', async () => {
    const rendezvous = await host();
    const [a, b] = await both(rendezvous);
    b.abandon('out of memory');
    await expect(a.barrier()).rejects.toThrow(RankLostError);
    await expect(join(rendezvous, 1)).rejects.toThrow(/its world is stale: it lost rank 1; start a new one/);
  });

  it('another version of the protocol, said by the host', async () => {
    const rendezvous = await host();
    const raw = await Raw.to(rendezvous);
    await raw.join(0, { version: 99 });
    expect((await raw.first('refused')).why).toContain(
      `it speaks protocol version ${PROTOCOL_VERSION}, this rank 99`,
    );
    await raw.closed;
  });

  it('another version of the protocol, noticed by the joiner', async () => {
    const future = createServer((socket) => {
      new Raw(socket).send({ type: 'hello', version: PROTOCOL_VERSION + 1, nonce: newNonce() });
    });
    const address = await addressOf(future);
    await expect(joinAt(address)).rejects.toThrow(
      `it speaks protocol version ${PROTOCOL_VERSION + 1}, this rank ${PROTOCOL_VERSION}`,
    );
  });
});

describe('the secret', () => {
  it('is required beyond loopback, of the host and of the joiner', async () => {
    const address = { host: '0.0.0.0', port: 0 };
    await expect(host({ address, secret: undefined })).rejects.toMatchObject({ argument: 'HEDDLE_SECRET' });
    await expect(joinAt('node7:29000')).rejects.toMatchObject({ argument: 'HEDDLE_SECRET' });
  });

  it('must have at least 16 characters, and an error does not show it', async () => {
    const short = host({ secret: 'short' });
    await expect(short).rejects.toMatchObject({ argument: 'HEDDLE_SECRET' });
    await expect(short).rejects.not.toThrow(/short/);
  });

  it('works beyond loopback', async () => {
    const rendezvous = await host({ address: { host: '0.0.0.0', port: 0 } });
    await both(rendezvous);
  });

  it('never travels, and no two joins look alike', async () => {
    const rendezvous = await host();
    const seen: Buffer[] = [];
    const proxy = createServer((near) => {
      const far = connect(rendezvous.address.port, '127.0.0.1');
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        from.on('data', (chunk) => {
          seen.push(chunk);
          to.write(chunk);
        });
        from.on('error', () => {});
        from.on('close', () => to.destroy());
      }
    });
    const address = await addressOf(proxy);
    await Promise.all([join(rendezvous, 0, { address }), join(rendezvous, 1, { address })]);
    const traffic = Buffer.concat(seen).toString('latin1');
    expect(traffic).not.toContain(SECRET);
    const proofs = traffic.match(/"proof":"[0-9a-f]{64}"/g)!;
    expect(new Set(proofs).size).toBe(4); // two joiners, two answers of the host
  });

  it('must be known to the host too: an impostor that lets everybody in is found out', async () => {
    const impostor = createServer(async (socket) => {
      const raw = new Raw(socket);
      raw.send({ type: 'hello', version: PROTOCOL_VERSION, nonce: newNonce() });
      const { proof } = await raw.first('join');
      raw.send({ type: 'welcome', proof }); // the joiner's own proof, sent back
    });
    const address = await addressOf(impostor);
    await expect(joinAt(address, { secret: SECRET })).rejects.toThrow(/does not know the secret itself/);
  });

  it('is needed afresh for every connection: an overheard join is worth nothing', async () => {
    const rendezvous = await host();
    const honest = await Raw.to(rendezvous);
    const { nonce: hostNonce } = await honest.first('hello');
    const claim = claimOf(0);
    const proof = prove(SECRET, 'joiner', claim, hostNonce);
    honest.socket.destroy();
    const replay = await Raw.to(rendezvous);
    await replay.first('hello');
    replay.send({ type: 'join', ...claim, proof });
    expect((await replay.first('refused')).why).toMatch(/its secret is another one/);
  });
});

it.each([{ outside: true }, { lossTimeoutMs: 1 }])(
  'a proof holds for all that a joiner says: not for %o',
  async (other) => {
    const raw = await Raw.to(await host());
    const { nonce: hostNonce } = await raw.first('hello');
    const honest = claimOf(0);
    raw.send({ type: 'join', ...honest, proof: prove(SECRET, 'joiner', honest, hostNonce), ...other });
    expect((await raw.first('refused')).why).toMatch(/its secret is another one/);
  },
);

describe('strangers', () => {
  it.each([
    ['a browser', Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')],
    ['zeros', Buffer.alloc(64)],
    ['ones', Buffer.alloc(64, 0xff)],
    ['a call before joining', framed('{"type":"leave"}')],
    ['bytes before joining', framed('{"type":"pong"}', 1)],
  ])('are thrown out: %s', async (_, garbage) => {
    const rendezvous = await host();
    const raw = await Raw.to(rendezvous);
    raw.socket.write(garbage);
    await raw.closed;
    await both(rendezvous);
  });

  it('end their own connection, whatever their first message holds', async () => {
    const rendezvous = await host();
    const join = messages.find(({ type }) => type === 'join')!;
    const heads = [...spoiltJson(join)].filter((head) => head !== '' && head.length <= 2048);
    for (const head of heads) {
      const raw = await Raw.to(rendezvous);
      raw.socket.write(framed(head));
      await raw.closed;
    }
    await both(rendezvous);
  });

  it.each([
    ['connect and say nothing', Buffer.alloc(0)],
    ['stop in the middle of a frame', Buffer.from([40, 0, 0])],
  ])('that %s are thrown out in time', async (_, said) => {
    const raw = await Raw.to(await host({ handshakeMs: 50 }));
    raw.socket.write(said);
    await raw.closed;
  });

  it('are bounded in number: the oldest goes, and ranks still get in', async () => {
    const rendezvous = await host({ handshakeMs: 600_000 });
    const crowd: Raw[] = [];
    for (let i = 0; i < 70; i++) crowd.push(await Raw.to(rendezvous));
    await Promise.all(crowd.slice(0, 6).map((raw) => raw.closed));
    await crowd.at(-1)!.first('hello');
    expect(crowd.at(-1)!.socket.destroyed).toBe(false);
    await both(rendezvous);
  });
});

describe('what a stranger may do', () => {
  /** A join with a name so long that its head has so many bytes. */
  const joinOf = (headBytes: number): Buffer => {
    const empty = JSON.stringify({ type: 'join', world: '' });
    return framed(JSON.stringify({ type: 'join', world: 'w'.repeat(headBytes - empty.length) }));
  };

  it.each([
    ['to send a head of 2 KiB, which is read, and found wanting', joinOf(2048), 'a message without'],
    ['not to send a byte more, nor the beginning of it', joinOf(2049).subarray(0, 8), 'of 2049 + 0 bytes'],
    ['not to send bytes behind a head', framed('{}', 1), 'a frame of 2 + 1 bytes'],
  ])('is %s', async (_, bytes, why) => {
    expect(await complaint(bytes)).toContain(why);
  });

  it('is nothing any more, once it is refused', async () => {
    const pong = framed('{"type":"pong"}');
    const accepted: Socket[] = [];
    const note = (message: unknown) => accepted.push((message as { readonly socket: Socket }).socket);
    subscribe('net.server.socket', note);
    try {
      const raw = await Raw.to(await host(), { allowHalfOpen: true });
      await raw.join(0, {}, 'another secret of these tests');
      raw.socket.write(Buffer.alloc((1 << 20) * pong.length, pong));
      await raw.closed;
      expect(accepted[0]!.bytesRead).toBeLessThan(1 << 20);
    } finally {
      unsubscribe('net.server.socket', note);
    }
  });

  it('is to stay for ten seconds, not longer', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const raw = await Raw.to(await host());
      await raw.first('hello');
      await vi.advanceTimersByTimeAsync(9_999);
      expect(raw.socket.destroyed).toBe(false);
      await vi.advanceTimersByTimeAsync(1);
      await raw.closed;
    } finally {
      vi.useRealTimers();
    }
  });

  /** What a fresh connection says of these bytes when it closes. */
  async function complaint(bytes: Uint8Array): Promise<string> {
    const server = createServer();
    await addressOf(server);
    const why = once(server, 'connection').then(
      ([socket]) =>
        new Promise<string>((closed) => {
          new Channel(socket as Socket).onClose = closed;
        }),
    );
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.on('error', () => {});
    socket.write(bytes);
    ends.push(() => socket.destroy());
    return why;
  }
});

describe('a world whose id is long', () => {
  const long = `job ${'x'.repeat(5000)}`;

  it('is joined by those who say the same, to the last character', async () => {
    const address = `127.0.0.1:${await freePort()}`;
    const circles = await Promise.all([0, 1].map((rank) => joinAt(address, { rank, world: long })));
    await Promise.all(circles.map((circle) => circle.dispose()));
  });

  it('is not joined by those who say another', async () => {
    const address = `127.0.0.1:${await freePort()}`;
    const first = joinAt(address, { rank: 0, world: `${long}a`, timeoutMs: 2_000 });
    const other = joinAt(address, { world: `${long}b`, timeoutMs: 2_000 });
    await Promise.all([
      expect(other).rejects.toThrow(/it serves world "job x+… sha256:[0-9a-f]{64}", not "job x/),
      expect(first).rejects.toThrow(RankLostError),
    ]);
  });
});

describe('joining refuses', () => {
  const address = '127.0.0.1:29000';
  const cases: Record<string, [argument: string, options: unknown]> = {
    'no options': ['options', null],
    'a secret that is a number': ['HEDDLE_SECRET', { rank: 0, ranks: 1, address, secret: 1234567890123456 }],
    'an address that is a number': ['address', { rank: 0, ranks: 1, address: 29000 }],
    'a rank that is a text': ['rank', { rank: '0', ranks: 1, address }],
    'a rank beyond the world': ['rank', { rank: 1, ranks: 1, address }],
    'too many ranks': ['ranks', { rank: 0, ranks: 1e6, address }],
    'a local rank beyond the world': ['localRank', { rank: 0, ranks: 1, localRank: 1, address }],
    'a world that is no text': ['world', { rank: 0, ranks: 1, address, world: 5 }],
    'a flag that is none': ['hosted', { rank: 0, ranks: 1, address, hosted: 'no' }],
    'an environment that is none': ['environment', { environment: 5 }],
  };
  it.each(Object.entries(cases))('%s', async (_, [argument, options]) => {
    const joining = ProcessCircle.join(options as JoinOptions);
    await expect(joining).rejects.toThrow(ArgumentError);
    await expect(joining).rejects.toMatchObject({ argument });
  });
});

describe('a member', () => {
  const arriving = (id: number, operation: string) => ({
    ...{ type: 'arrive', id, kind: 'barrier', operation, timeoutMs: 20_000 },
  });

  const noHeddle = "it does not speak Heddle's protocol";
  const lost = { type: 'lost', ranks: [0], operation: 'x', why: 'y' };
  it.each<[string, (raw: Raw) => void, string]>([
    ['closes without a good-bye', (raw) => raw.socket.end(), 'its connection closed'],
    ['breaks', (raw) => raw.socket.resetAndDestroy(), 'its connection broke'],
    ['brings garbage', (raw) => raw.socket.write(Buffer.alloc(64, 0xff)), noHeddle],
    ['brings more than 1 MiB', (raw) => raw.send({ type: 'pong' }, new Uint8Array((1 << 20) + 1)), noHeddle],
    ['brings what only the host sends', (raw) => raw.send(lost), 'it sent lost, which'],
    ['brings join once more', (raw) => void raw.join(0), 'it sent join, which'],
  ])('whose connection %s is lost at once', async (_, misbehave, why) => {
    const rendezvous = await host();
    const joining = join(rendezvous, 0);
    const raw = await Raw.to(rendezvous);
    await raw.join(1);
    await raw.first('welcome');
    raw.send(arriving(0, 'join'));
    const pending = (await joining).barrier('dispatch').catch((error: unknown) => error);
    misbehave(raw);
    const error = await pending;
    expect(error).toBeInstanceOf(RankLostError);
    const cause = { message: expect.stringContaining(why) };
    expect(error).toMatchObject({ ranks: [1], operation: 'dispatch', cause });
    await raw.closed;
  });

  it('that gives no sign of life is lost, and told so', async () => {
    const rendezvous = await host();
    const raw = await Raw.to(rendezvous);
    await raw.join(1, { lossTimeoutMs: 100 });
    const joining = join(rendezvous, 0);
    const cause = { message: 'it gave no sign of life for 100 ms' };
    await expect(joining).rejects.toMatchObject({ ranks: [1], operation: 'join', cause });
    expect(await raw.first('lost')).toMatchObject({ ranks: [1] });
    expect(raw.messages.some(({ type }) => type === 'ping')).toBe(true);
  });

  it('that answers pings stays, however long it makes no call', async () => {
    const rendezvous = await host({ handshakeMs: 100 }); // which concerns strangers only
    const joining = join(rendezvous, 0, { lossTimeoutMs: 100 });
    const raw = await Raw.to(rendezvous);
    await raw.join(1, { lossTimeoutMs: 100 });
    raw.send(arriving(0, 'join'));
    const circle = await joining;
    // A ping comes four times in a loss timeout; after twelve, silence would have been noticed long ago.
    for (let pings = 1; pings <= 12; pings++) {
      await raw.nth('ping', pings);
      raw.send({ type: 'pong' });
    }
    raw.send(arriving(1, 'late'));
    await circle.barrier('late');
  });

  it('is not blamed for a time in which this very process stood still', async () => {
    const rendezvous = await host();
    const options = { lossTimeoutMs: 100 };
    const [a, b] = await Promise.all([join(rendezvous, 0, options), join(rendezvous, 1, options)]);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
    await Promise.all([a.barrier(), b.barrier()]);
    expect(a.signal.aborted || b.signal.aborted).toBe(false);
  });
});

describe('the host', () => {
  it('that ends in good order takes the world with it', async () => {
    const { circles, rendezvous } = await joinAll(2);
    const pending = circles[0]!.barrier('dispatch');
    const heard = new Promise((resolve) => circles[1]!.onRankLost(resolve));
    const closing = rendezvous.close();
    await expect(pending).rejects.toThrow(/the launcher, which hosts the rendezvous at .* is gone/);
    expect(await heard).toBeInstanceOf(RendezvousError);
    expect(circles[1]!.signal.reason).toBe(await heard);
    await expect(circles[1]!.barrier()).rejects.toBeInstanceOf(RendezvousError);
    await closing;
    await Promise.all(circles.map((circle) => circle.dispose()));
  });

  /** Welcomes one joiner properly; what it does afterwards is up to the test. */
  async function fakeHost(afterwards: (raw: Raw) => void): Promise<JoinOptions> {
    const server = createServer(async (socket) => {
      const raw = new Raw(socket);
      const hostNonce = newNonce();
      raw.send({ type: 'hello', version: PROTOCOL_VERSION, nonce: hostNonce });
      const joining = await raw.first('join');
      const proof = prove(SECRET, 'host', joining, hostNonce);
      raw.send({ type: 'welcome', proof });
      await raw.first('arrive');
      afterwards(raw);
    });
    const address = await addressOf(server);
    return { rank: 1, ranks: 2, address, secret: SECRET };
  }

  it('that is rank 0 and falls silent is lost as rank 0', async () => {
    const options = await fakeHost(() => {});
    const cause = { message: 'it gave no sign of life for 100 ms' };
    await expect(ProcessCircle.join({ ...options, lossTimeoutMs: 100 })).rejects.toMatchObject({
      ...{ ranks: [0], operation: 'join', cause },
    });
  });

  it.each(['a rank', 'the launcher'])(
    'that is %s, loses a rank and closes its connection, is not gone for that',
    async (who) => {
      let closed: Promise<unknown> | undefined;
      const options = await fakeHost((raw) => {
        raw.send({ type: 'completed', id: 0, lengths: [0, 0] });
        raw.send({ type: 'lost', ranks: [1], operation: 'work between calls', why: 'silence' });
        raw.socket.end();
        closed = raw.closed;
      });
      const circle = await ProcessCircle.join({ ...options, hosted: who === 'the launcher' });
      const losses: unknown[] = [];
      circle.onRankLost((loss) => losses.push(loss));
      await closed;
      await new Promise(setImmediate);
      await expect(circle.regroup()).rejects.toMatchObject({ ranks: [1] });
      await circle.dispose();
      expect(losses).toMatchObject([{ ranks: [1] }]);
    },
  );

  it('that was rank 0, and falls when the others have gone on without it, is no rank', async () => {
    const options = await fakeHost(async (raw) => {
      raw.send({ type: 'completed', id: 0, lengths: [0, 0] });
      raw.send({ type: 'lost', ranks: [0], operation: 'work between calls', why: 'accused' });
      await raw.nth('arrive', 2);
      raw.send({ type: 'regrouped', rank: 0, origins: [1] });
      await raw.nth('arrive', 3);
      raw.socket.resetAndDestroy();
    });
    const circle = await ProcessCircle.join(options);
    const next = await circle.regroup();
    await expect(next.barrier()).rejects.toThrow(/the process that was rank 0, .* is gone/);
    await expect(next.regroup()).rejects.toBeInstanceOf(RendezvousError);
    expect(next.out).toBe(false);
    await next.dispose();
  });

  it('that is the launcher and is killed is no rank, but the world is over all the same', async () => {
    const options = await fakeHost((raw) => raw.socket.resetAndDestroy());
    const joining = ProcessCircle.join({ ...options, hosted: true });
    await expect(joining).rejects.toBeInstanceOf(RendezvousError);
    await expect(joining).rejects.toThrow(/the launcher, which hosts the rendezvous at .* is gone/);
  });

  it('that is an impostor fails the join, whatever it says', async () => {
    const impostor = createServer((socket) => {
      new Raw(socket).send({ type: { toString: 1, valueOf: 1 } });
    });
    const address = await addressOf(impostor);
    const joining = joinAt(address, { timeoutMs: 100 });
    await expect(joining).rejects.toBeInstanceOf(RendezvousError);
    await expect(joining).rejects.toThrow(
      /does not speak Heddle's protocol: it sent a message of unknown type/,
    );
  });

  it.each<[string, (raw: Raw) => void]>([
    ['garbage', (raw) => raw.socket.write(Buffer.alloc(64, 0xff))],
    [
      'parts that are longer than its bytes',
      (raw) => raw.send({ type: 'completed', id: 0, lengths: [1, 1] }),
    ],
    ['parts of too many ranks', (raw) => raw.send({ type: 'completed', id: 0, lengths: [0, 0, 0] })],
    ['a regrouping without this rank', (raw) => raw.send({ type: 'regrouped', ranks: [0] })],
    ['a regrouping of ranks that there are not', (raw) => raw.send({ type: 'regrouped', ranks: [1, 5] })],
    ['what only a member sends', (raw) => raw.send({ type: 'leave' })],
    ['more than all ranks can bring', (raw) => raw.send({ type: 'ping' }, new Uint8Array(3 << 20))],
  ])('that sends %s is lost', async (_, misbehave) => {
    const options = await fakeHost(misbehave);
    await expect(ProcessCircle.join(options)).rejects.toMatchObject({ ranks: [0], operation: 'join' });
  });
});

it('128 ranks join, meet and gather', async () => {
  const { circles, rendezvous } = await joinAll(128);
  const gathered = await Promise.all(
    circles.map((circle) => circle.allGather(Uint8Array.of(circle.rank), 'handles')),
  );
  const expected = Array.from({ length: 128 }, (_, rank) => rank);
  for (const parts of gathered) expect(parts.map((part) => part[0])).toEqual(expected);
  await Promise.all(circles.map((circle) => circle.dispose()));
  await rendezvous.close();
});
