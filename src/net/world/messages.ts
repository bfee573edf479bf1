import { HeddleError, printable, valueOr } from '../../base/errors.js';
import { type CallKind, kinds, LONGEST_TIMEOUT_MS, MAX_NAME, MAX_PAYLOAD, MAX_RANKS } from './exchange.js';

/** Changes when two builds could misunderstand each other. */
export const PROTOCOL_VERSION = 8;

/** The other side does not speak the protocol. The message completes 'it sent …'. */
export class ProtocolError extends HeddleError {
  constructor(what: string) {
    super('HEDDLE_PROTOCOL', what);
  }
}

const fail = (what: string): never => {
  throw new ProtocolError(`a message without ${what}`);
};

const integer =
  (min: number, max: number) =>
  (value: unknown): number =>
    typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max
      ? value
      : fail(`an integer from ${min} to ${max}`);

const text =
  (max: number) =>
  (value: unknown): string =>
    typeof value === 'string' && value.length <= max ? value : fail(`a text of at most ${max} characters`);

/** What somebody says happened: it will be printed. */
const reason = (value: unknown): string => printable(text(2000)(value));

const digest = (value: unknown): string =>
  typeof value === 'string' && /^[0-9a-f]{64}$/.test(value) ? value : fail('32 bytes in hexadecimal');

const kind = (value: unknown): CallKind => kinds.find((kind) => kind === value) ?? fail('a kind of call');

const integers =
  (min: number, max: number) =>
  (value: unknown): readonly number[] =>
    Array.isArray(value) && value.length <= MAX_RANKS
      ? value.map(integer(min, max))
      : fail(`at most ${MAX_RANKS} integers`);

const distinct =
  (max: number) =>
  (value: unknown): readonly number[] => {
    const ranks = integers(0, max)(value);
    return new Set(ranks).size === ranks.length ? ranks : fail('ranks that are each named once');
  };
const members = distinct(MAX_RANKS - 1);

const flag = (value: unknown): boolean => (typeof value === 'boolean' ? value : fail('a flag'));

const id = integer(0, Number.MAX_SAFE_INTEGER);
const rank = integer(0, MAX_RANKS - 1);
const duration = integer(1, LONGEST_TIMEOUT_MS);
const loss = { ranks: members, operation: text(MAX_NAME), why: reason };

/** Every message and its fields. The comment says who sends it. */
const SHAPES = {
  /** host, first: its version and challenge. */
  hello: { version: integer(0, 2 ** 31), nonce: digest },
  /** joiner: who it is, its own challenge, and the proof that it knows the secret. */
  join: {
    version: integer(0, 2 ** 31),
    world: text(MAX_NAME),
    rank,
    ranks: integer(1, MAX_RANKS),
    outside: flag,
    lossTimeoutMs: duration,
    nonce: digest,
    proof: digest,
  },
  /** host: the joiner is in, and here is the host's own proof. */
  welcome: { proof: digest },
  /** host: the joiner is not in, and why. */
  refused: { why: reason },
  /** joiner: it made a call; the frame's bytes are what it brings. */
  arrive: { id, kind, operation: text(MAX_NAME), timeoutMs: duration },
  /** host: a call is complete; the frame's bytes are the parts, one after the other. */
  completed: { id, lengths: integers(0, MAX_PAYLOAD) },
  /** host: a call can never complete. */
  failed: { id, ...loss },
  /** host: ranks are lost. */
  lost: loss,
  /** outsider: it is ready, and waits to be admitted. The name is its process's, for its launcher. */
  wait: { name: text(MAX_NAME) },
  /** host: so many outsiders wait. */
  waiting: { outsiders: integer(0, 2 ** 31) },
  /** host: these go on, the receiver as `rank`, and all that follows is of their circle. */
  regrouped: { rank, origins: distinct(Number.MAX_SAFE_INTEGER) },
  /** joiner: it cannot go on, or not with these others. */
  abandon: { ranks: members, why: reason },
  /** The joiner says that it leaves cleanly. */
  leave: {},
  /** The host says that it leaves cleanly, and the rendezvous ends with it. */
  farewell: {},
  /** host, regularly; the joiner answers with pong. */
  ping: {},
  pong: {},
};

type Shapes = typeof SHAPES;
type Fields<S> = { [F in keyof S]: S[F] extends (value: unknown) => infer T ? T : never };
/** A message, told apart by its `type`. */
export type Message = {
  [K in keyof Shapes]: { readonly type: K } & Readonly<Fields<Shapes[K]>>;
}[keyof Shapes];

export type Join = Extract<Message, { type: 'join' }>;

/** Reads a frame's head. Throws ProtocolError unless it is exactly one of the messages. */
export function parseMessage(head: string): Message {
  const value: unknown = valueOr(undefined, () => JSON.parse(head));
  if (value === undefined) throw new ProtocolError('a frame whose head is not JSON');
  if (typeof value !== 'object' || value === null) throw new ProtocolError('a head that is not an object');
  const given = value as Record<string, unknown>;
  const { type } = given;
  if (typeof type !== 'string' || !Object.hasOwn(SHAPES, type))
    throw new ProtocolError('a message of unknown type');
  const message: Record<string, unknown> = { type };
  for (const [field, read] of Object.entries(SHAPES[type as keyof Shapes])) {
    message[field] = (read as (value: unknown) => unknown)(given[field]);
  }
  return message as unknown as Message;
}

/** The largest head that any message needs. */
export const MAX_HEAD = 32 << 10;
