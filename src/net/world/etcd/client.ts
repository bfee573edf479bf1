/**
 * etcd's own gateway: its calls as JSON over HTTP. All of it that Heddle needs are transactions, leases and a watch, so
 * there is no client library between them.
 */
import { once } from 'node:events';
import * as http from 'node:http';
import * as https from 'node:https';
import { HeddleError, messageOf, printable } from '../../../base/errors.js';
import { formatAddress } from '../address.js';
import type { EtcdAddress } from './address.js';

/** Not reached, or refused by etcd: then `status` is what gRPC calls it. */
export class EtcdError extends HeddleError {
  constructor(
    message: string,
    readonly status: number | null,
  ) {
    super('HEDDLE_RENDEZVOUS', printable(message));
  }
}

const UNAUTHENTICATED = 16;
/** etcd cannot answer at present, perhaps because it has no leader: another endpoint may, or the same one later. */
const transient = [4, 10, 13, 14];
/** Whether trying again may bring something else. */
export const mayPass = (error: unknown): boolean =>
  error instanceof EtcdError && (error.status === null || transient.includes(error.status));

/** A key and what lies there; numbers as etcd's JSON has them. */
export interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly create_revision?: string;
  readonly mod_revision: string;
  readonly lease?: string;
}

export interface Answer {
  readonly header: { readonly revision: string };
  readonly succeeded?: boolean;
  readonly responses?: readonly { readonly response_range?: RangeAnswer }[];
}
export interface RangeAnswer {
  readonly kvs?: readonly KeyValue[];
  readonly count?: string;
}
export interface WatchEvent {
  readonly type?: 'DELETE';
  readonly kv: KeyValue;
}
interface WatchAnswer {
  readonly result?: { readonly events?: readonly WatchEvent[]; readonly compact_revision?: string };
  readonly error?: { readonly message: string };
}

export const text64 = (text: string | Uint8Array): string => Buffer.from(text).toString('base64');

/** The keys that begin so; the last character of `prefix` is '/'. */
export const under = (prefix: string) => ({
  key: text64(prefix),
  range_end: text64(`${prefix.slice(0, -1)}0`),
});

export class EtcdClient {
  readonly #address: EtcdAddress;
  readonly #requestMs: number;
  readonly #agent: http.Agent;
  /** Sockets and timers keep nobody alive; this does, where it is asked to. */
  readonly #alive = setInterval(() => {}, 2 ** 30);
  #endpoint = 0;
  #closed = false;
  #token: Promise<string> | null = null;

  /** `requestMs`: how long one endpoint has for an answer, and a watch to say anything. */
  constructor(address: EtcdAddress, requestMs: number) {
    this.#address = address;
    this.#requestMs = requestMs;
    const { tls } = address;
    this.#agent = tls ? new https.Agent({ ...tls, keepAlive: true }) : new http.Agent({ keepAlive: true });
  }

  /** Where it is, for messages. */
  get where(): string {
    return this.#address.endpoints.map(formatAddress).join(',');
  }

  keepAlive(yes: boolean): void {
    if (yes) this.#alive.ref();
    else this.#alive.unref();
  }

  /** Asks one endpoint after the other until one answers. @throws EtcdError */
  async call<T = Answer>(path: string, body: object): Promise<T> {
    const response = await this.#ask(path, body);
    try {
      type Said = T & Partial<Answer>;
      const said = await bodyOf<Said & { readonly result?: Said }>(response);
      const answer = said.result ?? said; // of a stream of one answer
      if (answer.header === undefined) throw new Error('the answer has no header');
      return answer;
    } catch (error) {
      throw new EtcdError(`${path}: ${messageOf(error)}`, null);
    }
  }

  /** The events under `prefix` from a revision on, as lists of events that belong together. Ends only by throwing. */
  async *watch(prefix: string, from: number): AsyncGenerator<readonly WatchEvent[]> {
    const response = await this.#ask('watch', {
      create_request: { ...under(prefix), start_revision: from },
    });
    try {
      let line: Buffer[] = [];
      for await (const part of response as AsyncIterable<Buffer>) {
        let rest = part;
        for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
          const { result, error } = answerIn<WatchAnswer>(Buffer.concat([...line, rest.subarray(0, end)]));
          if (error) throw new EtcdError(error.message, null);
          if (result?.compact_revision)
            throw new EtcdError('etcd has compacted what was to be watched', null);
          if (result?.events) yield result.events;
          line = [];
          rest = rest.subarray(end + 1);
        }
        line.push(rest);
      }
    } finally {
      response.destroy();
    }
    throw new EtcdError('the watch ended', null);
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#alive);
    this.#agent.destroy();
  }

  async #ask(path: string, body: object): Promise<http.IncomingMessage> {
    let failure: unknown;
    for (const _ of this.#address.endpoints) {
      try {
        return await this.#authorised(path, body);
      } catch (error) {
        failure = error;
        if (this.#closed || !mayPass(error)) throw error;
        this.#endpoint = (this.#endpoint + 1) % this.#address.endpoints.length;
      }
    }
    throw failure;
  }

  async #authorised(path: string, body: object): Promise<http.IncomingMessage> {
    const { user } = this.#address;
    if (user === undefined) return this.#post(path, body);
    const authenticate = async () =>
      (await bodyOf<{ readonly token: string }>(await this.#post('auth/authenticate', user))).token;
    for (let again = false; ; again = true) {
      this.#token ??= authenticate();
      try {
        return await this.#post(path, body, await this.#token);
      } catch (error) {
        this.#token = null; // they pass away, and with a restart
        if (again || !(error instanceof EtcdError && error.status === UNAUTHENTICATED)) throw error;
      }
    }
  }

  async #post(path: string, body: object, token?: string): Promise<http.IncomingMessage> {
    const { endpoints, tls } = this.#address;
    const { host, port } = endpoints[this.#endpoint]!;
    const headers = { 'Content-Type': 'application/json', ...(token && { Authorization: token }) };
    const options = { host, port, path: `/v3/${path}`, method: 'POST', headers, agent: this.#agent };
    try {
      if (this.#closed) throw new Error('nobody asks any more');
      // Of silence, from the connecting on to the last byte of the answer.
      const request = (tls ? https : http).request({ ...options, timeout: this.#requestMs });
      request.on('timeout', () => request.destroy(new Error(`silence for ${this.#requestMs} ms`)));
      request.on('error', () => {}); // after the answer has begun, who reads that hears of it
      request.on('socket', (socket) => socket.unref());
      request.end(JSON.stringify(body));
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      if (response.statusCode === 200) return response;
      const { message, code } = await bodyOf<{ readonly message: string; readonly code: number }>(response);
      throw new EtcdError(`etcd at ${host}:${port} refuses: ${message}`, code);
    } catch (error) {
      if (error instanceof EtcdError) throw error;
      throw new EtcdError(`etcd at ${host}:${port} does not answer: ${messageOf(error)}`, null);
    }
  }
}

async function bodyOf<T>(response: http.IncomingMessage): Promise<T> {
  return answerIn<T>(Buffer.concat((await response.toArray()) as Buffer[]));
}

type Members = Readonly<Record<string, unknown>>;
const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): boolean => typeof value === 'string';
const isNumber = (value: unknown): boolean => typeof value === 'string' && /^-?\d{1,20}$/.test(value);
const isRevision = (value: unknown): boolean =>
  isText(value) && /^\d+$/.test(value as string) && Number.isSafeInteger(Number(value));
const isKeyValue = (value: unknown): boolean =>
  isObject(value) && isText(value.key) && isRevision(value.mod_revision);
const listOf = (is: (value: unknown) => boolean) => (value: unknown) =>
  Array.isArray(value) && value.every(is);

/** The form of each member that is used here, wherever it stands. */
const forms = new Map<string, (value: unknown) => boolean>([
  // Zeros are left out: a watch that is refused is told of at no revision.
  ['header', (value) => isObject(value) && isRevision(value.revision ?? '0')],
  ['responses', listOf(isObject)],
  ['events', listOf((value) => isObject(value) && isKeyValue(value.kv))],
  ['kvs', listOf(isKeyValue)],
  ...['result', 'response_range'].map((name) => [name, isObject] as const),
  ...['value', 'token', 'version', 'message'].map((name) => [name, isText] as const),
  ...['create_revision', 'compact_revision'].map((name) => [name, isRevision] as const),
  ...['lease', 'count', 'ID', 'TTL'].map((name) => [name, isNumber] as const),
]);

/** An answer in etcd's JSON. Another program may listen there, or a proxy before it. @throws Error */
export function answerIn<T>(bytes: Uint8Array): T {
  const answer: unknown = JSON.parse(Buffer.from(bytes).toString(), (name, value: unknown) => {
    if (forms.get(name)?.(value) === false) throw new Error(`its ${name} is not what etcd says`);
    return value;
  });
  if (!isObject(answer)) throw new Error('what it says is no object');
  return answer as T;
}
