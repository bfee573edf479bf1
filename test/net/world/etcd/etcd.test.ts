/** Worlds that meet in a real etcd, of which anything falls. */
import { spawn, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { RendezvousError } from '../../../../src/base/errors.js';
import { parseEtcdAddress } from '../../../../src/net/world/etcd/address.js';
import { type RangeAnswer, text64, under } from '../../../../src/net/world/etcd/client.js';
import { EtcdWorld } from '../../../../src/net/world/etcd/world.js';
import { ProcessCircle } from '../../../../src/net/world/process-circle.js';
import { examineRendezvous } from '../../../../src/tools/doctor/index.js';
import { needing } from '../../../needs.js';
import { temporaryFolder } from '../../../temporary.js';
import { transpiled } from '../../../tree.js';
import { joinInEtcd } from '../circles.js';
import { Detour, EtcdServer, Gateway } from './server.js';

const fixture = (name: string) => transpiled(`test/net/world/programs/${name}.ts`);
const disposeAll = (circles: readonly ProcessCircle[]) =>
  Promise.all(circles.map((circle) => circle.dispose()));
const longMs = 20_000;
const nothing = () => {};
/** Hears what a test says alone. */
const deaf = {
  ...{ came: nothing, said: nothing, regrouped: nothing },
  left: nothing,
  lost: nothing,
  over: nothing,
};

describe('in etcd', { ...needing('etcd'), timeout: 60_000 }, () => {
  let server: EtcdServer;
  beforeAll(async () => {
    server = await EtcdServer.start();
  });
  afterAll(() => server.end());

  /** Ranks in processes of their own, started by nobody in particular. */
  const startRanks = (ranks: number, program: string, args: readonly string[], world: string) =>
    Array.from({ length: ranks }, (_, rank) =>
      spawn(process.execPath, [fixture(program), ...args], {
        stdio: ['ignore', 'pipe', 'inherit'],
        env: {
          ...process.env,
          ...{ HEDDLE_RANK: String(rank), HEDDLE_WORLD: String(ranks), HEDDLE_WORLD_ID: world },
          HEDDLE_RENDEZVOUS: server.rendezvous,
        },
      }),
    );

  it.each([
    [0, 'between calls'],
    [2, 'in a barrier'],
    [1, 'in the middle of a frame'],
    [0, 'stopped'],
  ])('every rank hears by its name of rank %i, killed or stopped %s', async (victim, point) => {
    const ranks = startRanks(3, 'fall', [String(victim), point, '1000'], `${victim} ${point}`);
    const said = await Promise.all(
      ranks.filter((_, rank) => rank !== victim).map(({ stdout }) => text(stdout!)),
    );
    ranks[victim]!.kill('SIGKILL');
    for (const line of said)
      expect(JSON.parse(line)).toMatchObject({
        ...{ ranks: [victim], heard: true, aborted: true },
        why: expect.stringContaining('no sign of life'),
      });
  });

  it('a world goes on without its launcher, and then without rank 0', async () => {
    const folder = temporaryFolder(onTestFinished);
    const there = (what: string) => readdirSync(folder).filter((name) => name.startsWith(what));
    const launcher = spawn(
      process.execPath,
      [fixture('cli'), 'run', '-n', '3', '--keep-going', fixture('outlive'), folder, '1000'],
      { stdio: 'ignore', env: { ...process.env, HEDDLE_RENDEZVOUS: server.rendezvous } },
    );
    await vi.waitFor(() => expect(there('ready')).toHaveLength(3), longMs);
    launcher.kill('SIGKILL');
    await vi.waitFor(() => expect(there('done')).toHaveLength(2), longMs);
    for (const rank of [1, 2])
      expect(JSON.parse(readFileSync(join(folder, `done ${rank}`), 'utf8'))).toEqual({
        lost: [0],
        origins: [1, 2],
        parts: [1, 2],
      });
  });

  it('a joiner is refused a place that is taken, and a world of another size or secret', async () => {
    const circles = await joinInEtcd(server, 2, { world: 'taken' });
    const join = (options: object) =>
      ProcessCircle.join({ ranks: 2, rank: 1, rendezvous: server.rendezvous, world: 'taken', ...options });
    await expect(join({ lossTimeoutMs: 500 })).rejects.toThrow('rank 1 has already joined');
    await expect(join({ ranks: 3, rank: 2 })).rejects.toThrow('has 2 ranks, this rank was started for 3');
    await expect(join({ secret: 'another secret of theirs' })).rejects.toThrow('another secret');
    await disposeAll(circles);
  });

  it('doctor says whether it answers', async () => {
    vi.stubEnv('HEDDLE_RENDEZVOUS', server.rendezvous);
    const detail = expect.stringMatching(/^etcd \d+\.\d+\.\d+ answers$/);
    expect(await examineRendezvous()).toMatchObject([{ state: 'found', detail }]);
    vi.stubEnv('HEDDLE_RENDEZVOUS', 'etcd://127.0.0.1:9/heddle');
    expect(await examineRendezvous()).toMatchObject([{ state: 'broken' }]);
    vi.unstubAllEnvs();
  });

  it('leaves nothing behind', async () => {
    await disposeAll(await joinInEtcd(server, 3, { world: 'gone' }));
    expect(await server.count('heddle/tests/gone/')).toBe(0);
  });

  it('keeps of the calls what somebody may still have to read', async () => {
    const circles = await joinInEtcd(server, 3, { world: 'long' });
    for (let call = 0; call < 20; call++) await Promise.all(circles.map((circle) => circle.barrier()));
    expect(await server.count('heddle/tests/long/said/')).toBeLessThanOrEqual(3 * 4);
    await disposeAll(circles);
  });

  const recordOf = async (world: string, call: string) => {
    const key = text64(`heddle/tests/${world}/said/0/${call}`);
    const [kv] = (await server.ask<RangeAnswer>('kv/range', { key })).kvs ?? [];
    return { key, value: kv!.value };
  };

  it('who does not know the secret cannot put back what a rank said before', async () => {
    const circles = await joinInEtcd(server, 2, { world: 'back', secret: 'the secret of this test' });
    const say = (n: number) => Promise.all(circles.map((circle) => circle.allGather(Uint8Array.of(n), 'n')));
    await say(1);
    const old = await recordOf('back', '000000000001');
    await say(2);
    await server.ask('kv/put', old);
    for (const n of [3, 4])
      expect(await say(n)).toEqual([0, 1].map(() => [Uint8Array.of(n), Uint8Array.of(n)]));
    await disposeAll(circles);
  });

  it('who does not know the secret cannot let a rank say what it said in an earlier world of the same name', async () => {
    const said: number[] = [];
    const open = async () => {
      const place = { world: 'again', ranks: 1, secret: 'the secret of this test', lossTimeoutMs: longMs };
      const etcd = parseEtcdAddress('rendezvous', server.rendezvous);
      const world = await EtcdWorld.open({ ...place, etcd }, longMs);
      await world.join(0, longMs);
      world.start({ ...deaf, said: (_, __, bytes) => said.push(bytes[0]!) });
      return world;
    };
    const call = { type: 'arrive', id: 0, kind: 'barrier', operation: 'it', timeoutMs: longMs } as const;
    const before = await open();
    await before.say(0, 0, 0, call, Uint8Array.of(1), 0);
    const old = await recordOf('again', '000000000000');
    // The end of the world may cut off the call that ends it.
    await before.leave(0).catch(() => {});
    before.close();
    const after = await open();
    await server.ask('kv/put', old);
    await after.say(0, 1, 0, call, Uint8Array.of(2), 0);
    await vi.waitFor(() => expect(said).toContain(2), longMs);
    expect(said.slice(-1)).toEqual([2]);
    expect(said.filter((n) => n === 1).length).toBeLessThanOrEqual(1);
    after.close();
  });
});

describe('an etcd', { ...needing('etcd'), timeout: 60_000 }, () => {
  const servers: EtcdServer[] = [];
  const start = async (...options: string[]) => {
    servers.push(await EtcdServer.start(...options));
    return servers.at(-1)!;
  };
  afterEach(async () => {
    for (const server of servers.splice(0)) await server.end();
  });
  const meet = (circles: readonly ProcessCircle[]) =>
    Promise.all(circles.map((circle) => circle.allGather(Uint8Array.of(circle.rank))));
  const allMet = (ranks: number) =>
    Array.from({ length: ranks }, () => Array.from({ length: ranks }, (_, rank) => Uint8Array.of(rank)));

  it('that stands still costs that time; for longer than a lease, it ends the world and blames no rank', async () => {
    const server = await start();
    const circles = await joinInEtcd(server, 3, { lossTimeoutMs: 2000 });
    server.stop();
    const meeting = meet(circles);
    await delay(500);
    server.signal('SIGCONT');
    expect(await meeting).toEqual(allMet(3));
    server.stop();
    const over = circles.map((circle) => expect(circle.barrier()).rejects.toThrow(RendezvousError));
    await delay(6000);
    server.signal('SIGCONT');
    await Promise.all(over);
    await disposeAll(circles);
  });

  it('that is killed, and started again after longer than a lease, goes on with the world', async () => {
    const server = await start();
    const circles = await joinInEtcd(server, 3, { lossTimeoutMs: 1000 });
    await server.kill();
    const meeting = meet(circles);
    await delay(3000);
    await server.restart();
    expect(await meeting).toEqual(allMet(3));
    expect(circles.map(({ signal }) => signal.aborted)).toEqual([false, false, false]);
    await disposeAll(circles);
  });

  it('that is slow makes calls slow, and loses nobody', async () => {
    const server = await start();
    const slow = await Detour.to(server.port, 150);
    const circles = await joinInEtcd(slow, 3, { lossTimeoutMs: 2000 });
    for (let round = 0; round < 2; round++) expect(await meet(circles)).toEqual(allMet(3));
    await disposeAll(circles);
  });

  it('that has nothing to tell is not taken for one that does not answer, which would delay a loss', async () => {
    const server = await start();
    const detour = await Detour.to(server.port, 0);
    const etcd = parseEtcdAddress('rendezvous', detour.rendezvous);
    // A request has a third of it.
    const lossTimeoutMs = 3000;
    const world = await EtcdWorld.open(
      { etcd, world: 'quiet', ranks: 1, secret: undefined, lossTimeoutMs },
      longMs,
    );
    await world.join(0, longMs);
    const came: number[] = [];
    const timers = vi.spyOn(globalThis, 'setInterval');
    world.start({ ...deaf, came: (rank) => came.push(rank) });
    // Its process may stand still for nine tenths of it, wherever that falls between two signs of life.
    expect(timers.mock.calls[0]![1]).toBeLessThanOrEqual(lossTimeoutMs / 10);
    timers.mockRestore();
    await vi.waitFor(() => expect(came).toEqual([0]), longMs);
    const before = detour.connections;
    await vi.waitFor(() => expect(detour.connections).toBeGreaterThan(before + 1), longMs);
    expect(world.failedAt).toBe(Number.NEGATIVE_INFINITY);
    world.close();
  });

  it('that has forgotten its history tells it anew, from what lies there', async () => {
    const server = await start();
    const detour = await Detour.to(server.port, 0);
    const options = { world: 'compacted', ranks: 3, lossTimeoutMs: 20_000 };
    const [a, b, c] = await Promise.all(
      [server, server, detour].map(({ rendezvous }, rank) =>
        ProcessCircle.join({ ...options, rank, rendezvous }),
      ),
    );
    detour.cut();
    const meeting = meet([a!, b!]);
    await vi.waitFor(() => expect(server.count('heddle/tests/compacted/said/')).resolves.toBe(5));
    await server.compact();
    detour.mend();
    expect([...(await meet([c!])), ...(await meeting)]).toEqual(allMet(3));
    await disposeAll([a!, b!, c!]);
  });

  it('that is gone for good is named where a call waits for it, and not before', async () => {
    const server = await start();
    const [circle, other] = await joinInEtcd(server, 2, { lossTimeoutMs: 500, timeoutMs: 1000 });
    await server.kill();
    await delay(2000);
    expect(circle!.signal.aborted).toBe(false);
    await expect(circle!.barrier()).rejects.toThrow(/has not answered for \d+ ms/);
    await expect(circle!.regroup()).rejects.toThrow(RendezvousError);
    await disposeAll([circle!, other!]);
  });

  it('whose watches end at once, behind a proxy that does not stream, is read instead', async () => {
    const { rendezvous } = await Gateway.to(await start(), (path, body) => (path === 'watch' ? '' : body));
    const circles = await joinInEtcd({ rendezvous }, 2, { lossTimeoutMs: longMs });
    expect(await meet(circles)).toEqual(allMet(2));
    await disposeAll(circles);
  });

  it("that does not tell a rank of its own call is named, once the call's time is over", async () => {
    let told = '';
    let stale = false;
    const { rendezvous } = await Gateway.to(await start(), (path, body, asked) => {
      if (path === 'watch') return '';
      if (path !== 'kv/range' || !asked.includes('range_end')) return body;
      if (!stale) told = body;
      return told;
    });
    const [circle, other] = await joinInEtcd({ rendezvous }, 2, { lossTimeoutMs: 1000, timeoutMs: 2000 });
    stale = true;
    await expect(circle!.barrier()).rejects.toThrow(/has not told of this rank's own call for \d+ ms/);
    await disposeAll([circle!, other!]);
  });

  it('whose transactions never succeed is asked with pauses, and not for ever', async () => {
    let asked = 0;
    const { rendezvous } = await Gateway.to(await start(), (path, body) => {
      asked++;
      return path === 'kv/txn' ? '{"header":{"revision":"1"}}' : body;
    });
    await expect(joinInEtcd({ rendezvous }, 1, { timeoutMs: 1000 })).rejects.toThrow(RendezvousError);
    expect(asked).toBeLessThan(100);
  });

  it('that has lost its data has lost the world', async () => {
    const server = await start();
    const circles = await joinInEtcd(server, 2, { lossTimeoutMs: 1000 });
    const over = expect(circles[0]!.barrier()).rejects.toThrow('no longer in etcd');
    await server.ask('kv/deleterange', under('heddle/'));
    await over;
    await disposeAll(circles);
  });

  it('is one of several that may answer', async () => {
    const server = await start();
    const rendezvous = `etcd://127.0.0.1:9,${server.address}/heddle`;
    const circles = await joinInEtcd({ rendezvous }, 2);
    expect(await meet(circles)).toEqual(allMet(2));
    await disposeAll(circles);
  });

  it('that speaks TLS is believed by its certificate alone', needing('openssl'), async () => {
    const folder = temporaryFolder(onTestFinished);
    const [cert, key] = ['cert.pem', 'key.pem'].map((name) => join(folder, name)) as [string, string];
    const of = ['-subj', '/CN=etcd', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '2', '-nodes'];
    const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', ...of];
    expect(spawnSync('openssl', [...made, '-keyout', key, '-out', cert]).status).toBe(0);
    const server = await start('--cert-file', cert, '--key-file', key);
    const rendezvous = `etcds://${server.address}/heddle`;
    const circles = await joinInEtcd({ rendezvous: `${rendezvous}?cacert=${cert}` }, 2);
    expect(await meet(circles)).toEqual(allMet(2));
    await disposeAll(circles);
    await expect(joinInEtcd({ rendezvous }, 1, { timeoutMs: 1000 })).rejects.toThrow('self-signed');
  });

  it('that asks for a user and a password is given them', async () => {
    const server = await start();
    for (const [path, body] of [
      ['user/add', { name: 'root', password: 'a:b' }],
      ['role/add', { name: 'root' }],
      ['user/grant', { user: 'root', role: 'root' }],
      ['enable', {}],
    ] as const)
      await server.ask(`auth/${path}`, body);
    const rendezvous = `etcd://root:a%3Ab@${server.address}/heddle`;
    const circles = await joinInEtcd({ rendezvous }, 2);
    expect(await meet(circles)).toEqual(allMet(2));
    await disposeAll(circles);
    const wrong = { rendezvous: `etcd://root:wrong@${server.address}/heddle` };
    await expect(joinInEtcd(wrong, 1)).rejects.toThrow(/authentication failed.*HEDDLE_RENDEZVOUS/);
  });
});
