import { createHmac, timingSafeEqual } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { RendezvousError, valueOr } from '../../../base/errors.js';
import type { Membership, Place } from '../environment.js';
import { MAX_PAYLOAD } from '../exchange.js';
import { encodeFrame, FrameReader } from '../frame.js';
import { MAX_HEAD, type Message, PROTOCOL_VERSION, parseMessage } from '../messages.js';
import { requireSecret } from '../secret.js';
import type { EtcdAddress } from './address.js';
import {
  type Answer,
  EtcdClient,
  EtcdError,
  type KeyValue,
  mayPass,
  type RangeAnswer,
  text64,
  under,
  type WatchEvent,
} from './client.js';

/** Which world, and how long silence lasts until its rank is lost. */
export interface WorldPlace
  extends Pick<Membership, 'world' | 'ranks' | 'secret'>,
    Partial<Pick<Place, 'outside'>> {
  readonly etcd: EtcdAddress;
  readonly lossTimeoutMs: number;
}

/** Hears what ranks did, in the order in which etcd took it: the same for all. Ranks count as when the world began. */
export interface Reader {
  came(rank: number): void;
  /** `read`: up to which revision the rank had read when it said so. */
  said(rank: number, message: Message, bytes: Uint8Array, read: number): void;
  /** The ranks of these origins go on, and some of them were outsiders. */
  regrouped(origins: readonly number[]): void;
  left(rank: number): void;
  lost(ranks: readonly number[], why: string): void;
  /** The world is no longer in etcd. */
  over(error: RendezvousError): void;
}

interface JudgeOptions {
  /** The rank that says so. */
  readonly by?: number;
  /** Under which conditions, of etcd's transactions. */
  readonly given?: (rank: number) => readonly object[];
  /** To be forgotten where etcd does not answer. */
  readonly once?: boolean;
}

const ANSWER_MS = 10_000;
/** The first and the longest pause between attempts. */
const PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1_000;
/** Signs of life in each loss timeout: ranks of a process share an event loop, and it may stand still for all but one. */
const BEATS = 10;
/** A prefix that tells etcd's requests of several keys from each other. */
const SEQUENCE_DIGITS = 12;

type Kind = 'world' | 'alive' | 'said' | 'regrouped' | 'left' | 'lost';

const absent = (key: string) => ({ key: text64(key), target: 'VERSION', result: 'EQUAL', version: 0 });

/**
 * A world in etcd. Below PREFIX/WORLD/ lie
 *
 *   world          what the ranks must agree on
 *   alive/RANK     that a rank lives: on the rank's lease
 *   said/RANK/N    its calls, before them that it waits to be admitted; what all have read it deletes with a later one
 *   regrouped/RANK who goes on together with outsiders, of whom RANK is the first
 *   left/RANK      that it went in good order
 *   lost/RANK      that it is lost, and why
 *
 * All but `alive` lie on a lease of the world, which everybody keeps: it ends after the last of them. Every key is written once,
 * by a transaction that says under which condition. So the keys in the order of their revisions are all that happened, also for
 * a rank that has to read anew because etcd has compacted its history.
 */
export class EtcdWorld {
  /** The last revision that the reader has been told. */
  applied = 0;
  /** When etcd answered last, and when it did not. */
  answeredAt = performance.now();
  failedAt = Number.NEGATIVE_INFINITY;
  readonly #client: EtcdClient;
  readonly #place: WorldPlace;
  readonly #base: string;
  /** The revision at which the world began, and the leases: of the world, and of this rank. */
  #created = '';
  #lease = '';
  #own: string | null = null;
  /** The life of the shorter lease, in seconds. The world's is as long as whoever began it said. */
  #shortestTtl = 0;
  #reader: Reader | null = null;
  #beat: ReturnType<typeof setInterval> | undefined;
  #closed = false;
  #ranks = 0;
  /** By rank, the number of the call that was read last. One that is there again was put back by somebody else. */
  readonly #lastCall = new Map<number, number>();

  private constructor(place: WorldPlace) {
    const { etcd, world, secret, lossTimeoutMs } = place;
    for (const { host } of etcd.endpoints) requireSecret(host, secret);
    this.#place = place;
    this.#client = new EtcdClient(etcd, Math.ceil(Math.min(lossTimeoutMs, 3 * ANSWER_MS) / 3));
    this.#base = `${etcd.prefix}/${encodeURIComponent(world)}/`;
  }

  /** Finds the world, or begins it. */
  static async open(place: WorldPlace, timeoutMs: number): Promise<EtcdWorld> {
    const world = new EtcdWorld(place);
    const deadline = performance.now() + timeoutMs;
    try {
      await world.#persist(() => world.#enter(), deadline);
      return world;
    } catch (error) {
      world.close();
      throw error;
    }
  }

  /** Where it is, for messages. */
  get where(): string {
    return `etcd://${this.#client.where}/${this.#base}`;
  }

  /** How many ranks it began with. */
  get ranks(): number {
    return this.#ranks;
  }

  /** Takes a number that no rank has had. */
  async joinAnew(timeoutMs: number): Promise<number> {
    const deadline = performance.now() + timeoutMs;
    const own = await this.#persist(() => this.#grant(this.#ttl), deadline);
    this.#own = own;
    const take = async () => {
      const all = { ...under(this.#base), keys_only: true };
      const found = (await this.#client.call<RangeAnswer>('kv/range', all)).kvs ?? [];
      // Where an answer was lost on its way, it has one already.
      const mine = found.find(({ lease }) => lease === own);
      if (mine !== undefined) return rankIn(keyOf(mine));
      const rank = Math.max(this.#ranks, ...found.map((kv) => rankIn(keyOf(kv)) + 1));
      if ((await this.#take(rank)).succeeded) return rank;
      throw new EtcdError(`nobody gets a number below ${this.#base}`, null);
    };
    return this.#persist(take, deadline);
  }

  /** Takes the rank's place. A world whose processes have all fallen without a word is waited for until it has passed away. */
  async join(rank: number, timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    const stale = performance.now() + 2 * this.#ttl * 1000;
    this.#own = await this.#persist(() => this.#grant(this.#ttl), deadline);
    const alive = text64(this.#key('alive', rank));
    const said = { ...under(this.#key('said', rank, '')), target: 'VERSION', result: 'EQUAL', version: 0 };
    for (;;) {
      const answer = await this.#persist(() => this.#take(rank, [said]), deadline);
      const found = kvsOf(answer);
      // Where an answer was lost on its way, the place is this rank's already.
      const mine = found.find(({ key }) => key === alive)?.lease === this.#own;
      if (answer.succeeded || mine) break;
      if (performance.now() > Math.min(deadline, stale)) {
        const others = found.map(({ key }) => Buffer.from(key, 'base64').toString());
        const lostRanks = others.filter((key) => key.startsWith(this.#key('lost', ''))).map(rankIn);
        throw new RendezvousError(
          `rank ${rank} cannot join at ${this.where}: ${
            lostRanks.length > 0
              ? `its world is stale: it lost rank ${lostRanks.join(', ')}; start a new one (HEDDLE_WORLD_ID names it)`
              : `rank ${rank} has already joined; give every process its own rank, and every start its own HEDDLE_WORLD_ID`
          }`,
        );
      }
      await delay(LONGEST_PAUSE_MS / 4);
      await this.#persist(() => this.#enter(), deadline);
    }
  }

  /** Says that the rank is alive, where nobody has been it; otherwise the answer has all keys. */
  #take(rank: number, given: readonly object[] = []): Promise<Answer> {
    const keys = (['alive', 'lost', 'left'] as const).map((what) => this.#key(what, rank));
    return this.#txn(
      [this.#same(), ...keys.map(absent), ...given],
      [this.#put(keys[0]!, { type: 'pong' }, this.#own!)],
      [{ request_range: { ...under(this.#base), keys_only: true } }],
    );
  }

  /** Tells everything from the beginning on, and from then on what happens. */
  start(reader: Reader): void {
    this.#reader = reader;
    const beat = () => {
      for (const ID of [this.#lease, this.#own]) if (ID !== null) void this.#keep(ID);
    };
    this.#beat = setInterval(beat, (this.#shortestTtl * 1000) / BEATS).unref();
    void this.#follow();
  }

  /** Writes a call, and deletes those before `kept`. Returns its revision. */
  async say(
    rank: number,
    n: number,
    kept: number,
    message: Message,
    bytes: Uint8Array,
    read: number,
  ): Promise<number> {
    const key = this.#key('said', rank, n);
    const range_end = text64(this.#key('said', rank, kept));
    const gone = { request_delete_range: { key: text64(this.#key('said', rank, 0)), range_end } };
    const put = this.#put(key, message, this.#lease, bytes, read);
    const answer = await this.#persist(() =>
      this.#txn([this.#same(), absent(key)], kept > 0 ? [put, gone] : [put], [
        { request_range: { key: text64(key), keys_only: true } },
      ]),
    );
    return Number(kvsOf(answer)[0]?.mod_revision ?? answer.header.revision);
  }

  /** Says to outsiders, of whom `first` is the first, that they are admitted. All ranks that were in the world before say the same. */
  async regrouped(origins: readonly number[], first: number): Promise<void> {
    const key = this.#key('regrouped', first);
    const put = this.#put(key, { type: 'regrouped', rank: 0, origins }, this.#lease);
    await this.#persist(() => this.#txn([this.#same(), absent(key)], [put]));
  }

  /**
   * Says that ranks are lost, each of which is judged by itself: not where it is already, or has left. Nor is a rank believed that
   * is lost itself: who speaks first is right.
   */
  async judge(
    ranks: readonly number[],
    why: string,
    { by, given = () => [], once = false }: JudgeOptions = {},
  ): Promise<void> {
    const message: Message = { type: 'abandon', ranks, why: why.slice(0, 1000) };
    const verdicts = [...new Set(ranks)].map((rank) => {
      const lost = this.#key('lost', rank);
      const compare = [absent(lost), absent(this.#key('left', rank)), ...given(rank)];
      return { request_txn: { compare, success: [this.#put(lost, message, this.#lease)] } };
    });
    const trusted = by === undefined ? [] : [absent(this.#key('lost', by))];
    const attempt = () => this.#txn([this.#same(), ...trusted], verdicts);
    await (once ? attempt() : this.#persist(attempt));
  }

  /** The rank has said nothing since that revision. */
  silentSince(rank: number, revision: number): object {
    return {
      ...under(this.#key('said', rank, '')),
      ...{ target: 'MOD', result: 'LESS', mod_revision: revision + 1 },
    };
  }

  /** Says that the rank went in good order. The last one takes the world with it. */
  async leave(rank: number): Promise<void> {
    const left = this.#key('left', rank);
    const alive = text64(this.#key('alive', rank));
    const answer = await this.#persist(() =>
      this.#txn(
        [this.#same(), absent(left)],
        [this.#put(left, { type: 'leave' }, this.#lease), { request_delete_range: { key: alive } }],
      ),
    );
    if (answer.succeeded) await this.endIfEmpty();
  }

  async endIfEmpty(): Promise<void> {
    const answer = await this.#client.call('kv/range', {
      ...under(this.#key('alive', '')),
      count_only: true,
    });
    if (Number((answer as RangeAnswer).count ?? 0) === 0)
      await this.#client.call('lease/revoke', { ID: this.#lease });
  }

  keepAlive(yes: boolean): void {
    this.#client.keepAlive(yes);
  }

  /** Closes once that is written, or after so long. */
  async closeAfter(writing: Promise<unknown>, ms: number): Promise<void> {
    this.keepAlive(true);
    const timer = setTimeout(() => this.close(), ms);
    await writing;
    clearTimeout(timer);
    this.close();
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#beat);
    this.#client.close();
  }

  get #ttl(): number {
    return Math.ceil(this.#place.lossTimeoutMs / 1000);
  }

  #key(what: Kind, rank: number | '', n?: number | ''): string {
    const call = typeof n === 'number' ? String(n).padStart(SEQUENCE_DIGITS, '0') : n;
    return [`${this.#base}${what}`, rank, call].filter((part) => part !== undefined).join('/');
  }

  /** That it is still the world that was entered. */
  #same(): object {
    const key = text64(this.#key('world', ''));
    return { key, target: 'CREATE', result: 'EQUAL', create_revision: this.#created };
  }

  async #enter(): Promise<void> {
    const { ranks, outside } = this.#place;
    const key = this.#key('world', '');
    const origins = Array.from({ length: ranks }, (_, rank) => rank);
    const message: Message = { type: 'regrouped', rank: 0, origins };
    const ask = () => this.#client.call<RangeAnswer>('kv/range', { key: text64(key) });
    let [there] = (await ask()).kvs ?? [];
    if (there === undefined) {
      if (outside) throw new EtcdError('there is no world to come to', null);
      // Longer than the ranks', so that it ends after them.
      const lease = await this.#grant(this.#ttl + 1);
      const { succeeded } = await this.#txn([absent(key)], [this.#put(key, message, lease)]);
      if (!succeeded) await this.#client.call('lease/revoke', { ID: lease });
      [there] = (await ask()).kvs ?? [];
    }
    if (there === undefined) throw new EtcdError('etcd has no world there, and takes none', null);
    const written = this.#read(there)?.message;
    if (written?.type !== 'regrouped')
      throw new RendezvousError(
        `the world at ${this.where} was begun with another secret, or by another version of heddle; HEDDLE_SECRET must be the same on every rank, and HEDDLE_WORLD_ID another one for every start`,
      );
    this.#ranks = written.origins.length;
    if (this.#ranks !== ranks && !outside)
      throw new RendezvousError(
        `the world at ${this.where} has ${this.#ranks} ranks, this rank was started for ${ranks}; HEDDLE_WORLD_ID must be another one for every start`,
      );
    this.#created = there.create_revision!;
    this.#lease = there.lease!;
    const kept = await this.#client.call<{ readonly TTL?: string }>('lease/keepalive', { ID: this.#lease });
    this.#shortestTtl = Math.min(this.#ttl, Number(kept.TTL ?? this.#ttl));
  }

  async #grant(TTL: number): Promise<string> {
    return (await this.#client.call<{ readonly ID: string }>('lease/grant', { TTL })).ID;
  }

  /** A sign of life. That a lease has ended the reader hears by the keys that went with it, or here if etcd has forgotten them. */
  async #keep(ID: string): Promise<void> {
    try {
      const { TTL } = await this.#client.call<{ readonly TTL?: string }>('lease/keepalive', { ID });
      this.answeredAt = performance.now();
      if (TTL === undefined && ID === this.#lease) this.#over();
    } catch {
      this.failedAt = performance.now();
    }
  }

  /** Reads what is there, then hears what happens. What a watch does not bring (something before etcd may not stream) is read soon. */
  async #follow(): Promise<void> {
    for (let pause = PAUSE_MS; !this.#closed; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const began = performance.now();
      if (await this.#readAll())
        try {
          for await (const events of this.#client.watch(this.#base, this.applied + 1)) {
            pause = PAUSE_MS;
            this.answeredAt = performance.now();
            this.#tell(events);
          }
        } catch {
          // A watch of a world in which nothing happens is cut off for its silence. History may be compacted.
          if (performance.now() - began > LONGEST_PAUSE_MS) pause = PAUSE_MS;
        }
      await delay(pause, undefined, { ref: false });
    }
  }

  /** All that lies there and was not told yet; false where etcd does not say. A rank that is not alive any more is judged as if that had been heard. */
  async #readAll(): Promise<boolean> {
    const kvs: KeyValue[] = [];
    try {
      const answer = await this.#client.call<Answer & RangeAnswer>('kv/range', under(this.#base));
      this.answeredAt = performance.now();
      kvs.push(...(answer.kvs ?? []));
      if (!kvs.some((kv) => kv.create_revision === this.#created)) {
        this.#over();
        return false;
      }
      kvs.sort((a, b) => Number(a.mod_revision) - Number(b.mod_revision));
      this.#tell(kvs.filter((kv) => Number(kv.mod_revision) > this.applied).map((kv) => ({ kv })));
      this.applied = Math.max(this.applied, Number(answer.header.revision));
    } catch {
      this.failedAt = performance.now();
      return false;
    }
    const ranksAt = (...what: Kind[]) =>
      new Set(
        kvs
          .map(keyOf)
          .filter((key) => what.some((kind) => key.startsWith(this.#key(kind, ''))))
          .map(rankIn),
      );
    const known = ranksAt('alive', 'left', 'lost');
    for (const rank of ranksAt('said')) if (!known.has(rank)) void this.#fell(rank);
    return true;
  }

  /** Tells the reader; what one transaction did is told together. */
  #tell(events: readonly WatchEvent[]): void {
    const reader = this.#reader!;
    for (let i = 0; i < events.length && !this.#closed; ) {
      const revision = events[i]!.kv.mod_revision;
      const lost: number[] = [];
      let why = '';
      for (; events[i]?.kv.mod_revision === revision; i++) {
        const { type, kv } = events[i]!;
        const [what, digits, call] = keyOf(kv).slice(this.#base.length).split('/');
        const rank = Number(digits);
        if (!(rank >= 0)) continue;
        if (type === 'DELETE') {
          if (what === 'world') this.#over();
          if (what === 'alive') void this.#fell(rank);
          continue;
        }
        const record = this.#read(kv);
        if (record === null) continue; // a stranger's
        const { message, bytes, read } = record;
        if (what === 'alive') reader.came(rank);
        else if (what === 'said') {
          const n = Number(call);
          if (n <= (this.#lastCall.get(rank) ?? -1)) continue;
          this.#lastCall.set(rank, n);
          reader.said(rank, message, bytes, read);
        } else if (what === 'regrouped' && message.type === 'regrouped') reader.regrouped(message.origins);
        else if (what === 'left') reader.left(rank);
        else if (what === 'lost' && message.type === 'abandon') {
          lost.push(rank);
          why = message.why;
        }
      }
      this.applied = Math.max(this.applied, Number(revision));
      if (lost.length > 0) reader.lost(lost, why);
    }
  }

  /** Its lease has ended, unless it left. Where etcd itself was silent, that says nothing yet: perhaps all leases end now. */
  async #fell(rank: number): Promise<void> {
    const { lossTimeoutMs } = this.#place;
    if (performance.now() - this.failedAt < lossTimeoutMs)
      await delay(lossTimeoutMs, undefined, { ref: false });
    const given = () => [absent(this.#key('alive', rank))];
    const why = `it gave no sign of life for ${this.#ttl} s, so its lease in etcd ended`;
    await this.judge([rank], why, { given }).catch(() => {});
  }

  #over(): void {
    if (this.#closed) return;
    this.close();
    this.#reader?.over(
      new RendezvousError(
        `the world at ${this.where} is no longer in etcd: its ranks gave no sign of life for longer than their leases, or its data were lost; this world cannot go on`,
      ),
    );
  }

  #txn(
    compare: readonly object[],
    success: readonly object[],
    failure: readonly object[] = [],
  ): Promise<Answer> {
    return this.#client.call('kv/txn', { compare, success, failure });
  }

  /** Tries again while another attempt may bring something else. */
  async #persist<T>(attempt: () => Promise<T>, deadline = Number.POSITIVE_INFINITY): Promise<T> {
    for (let pause = PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      try {
        const value = await attempt();
        this.answeredAt = performance.now();
        return value;
      } catch (error) {
        if (!(error instanceof EtcdError)) throw error;
        this.failedAt = performance.now();
        if (this.#closed || !mayPass(error) || performance.now() + pause > deadline)
          throw new RendezvousError(`${this.where}: ${error.message}; does HEDDLE_RENDEZVOUS lead to it?`, {
            cause: error,
          });
      }
      await delay(pause, undefined, { ref: false });
    }
  }

  // ---- Records: a proof, up to which revision their author had read, and a frame as it travels on connections -----------------

  #put(
    key: string,
    message: Message,
    lease: string,
    bytes: Uint8Array = new Uint8Array(0),
    read = 0,
  ): object {
    const { type, ...fields } = message;
    const head = JSON.stringify({ type, ...fields });
    const body = Buffer.concat([Buffer.alloc(8), ...encodeFrame({ head, bytes })]);
    body.writeDoubleLE(read);
    const value = text64(Buffer.concat([this.#proof(text64(key), body), body]));
    return { request_put: { key: text64(key), value, lease } };
  }

  /** Null where it is none of a rank that knows the secret. */
  #read({ key, value = '' }: KeyValue): { message: Message; bytes: Uint8Array; read: number } | null {
    const whole = Buffer.from(value, 'base64');
    const [proof, body] = [whole.subarray(0, PROOF_BYTES), whole.subarray(PROOF_BYTES)];
    if (proof.length < PROOF_BYTES || !timingSafeEqual(proof, this.#proof(key, body))) return null;
    return valueOr(null, () => {
      const [frame] = [...new FrameReader({ head: MAX_HEAD, bytes: MAX_PAYLOAD }).read(body.subarray(8))];
      return { message: parseMessage(frame!.head), bytes: frame!.bytes, read: body.readDoubleLE() };
    });
  }

  /** Holds for this key of this world alone: one of the same name that came before began at another revision. */
  #proof(key: string, body: Uint8Array): Buffer {
    const hmac = createHmac('sha256', this.#place.secret ?? '');
    const began = key === text64(this.#key('world', '')) ? '' : this.#created;
    return hmac.update(`heddle ${PROTOCOL_VERSION} ${began} ${key} `).update(body).digest();
  }
}

const PROOF_BYTES = 32;

const keyOf = ({ key }: KeyValue): string => Buffer.from(key, 'base64').toString();
const rankIn = (key: string): number => Number(key.split('/').at(key.includes('/said/') ? -2 : -1));
const kvsOf = ({ responses = [] }: Answer): readonly KeyValue[] =>
  responses.flatMap(({ response_range }) => response_range?.kvs ?? []);
