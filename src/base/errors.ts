/**
 * Every error that Heddle throws on purpose: a class with a stable `code`, and a message that says what was
 * found, what was expected and what to do about it.
 */
export class HeddleError extends Error {
  /** Stable, for programs: 'HEDDLE_ARGUMENT', 'HEDDLE_RANK_LOST', … */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** An argument that cannot be used. Names the argument, what it was and what it must be. */
export class ArgumentError extends HeddleError {
  /** Its name as the caller wrote it: 'topkIds[3, 1]'. */
  readonly argument: string;

  constructor(argument: string, was: unknown, mustBe: string) {
    super('HEDDLE_ARGUMENT', `${argument} is ${show(was)}; it must be ${mustBe}`);
    this.argument = argument;
  }
}

/** Something that was already disposed, closed or freed is used again. Says what to do. */
export class DisposedError extends HeddleError {
  constructor(what: string, remedy = 'create a new one') {
    super('HEDDLE_DISPOSED', `${what} was disposed; ${remedy}`);
  }
}

/** The machine lacks something (a GPU, a library, a compiler). Says what would provide it. */
export class UnavailableError extends HeddleError {
  constructor(what: string, remedy: string, options?: ErrorOptions) {
    super('HEDDLE_UNAVAILABLE', `${what}. ${remedy}`, options);
  }
}

/** A file cannot be read or written. Says which, and why. */
export class FileError extends HeddleError {
  /** 'ENOENT: no such file or directory' */
  readonly reason: string;

  constructor(
    path: string,
    /** The participle in the message: 'read', 'written', 'made' … */
    readonly done: string,
    cause: unknown,
  ) {
    const reason = reasonOf(cause);
    super('HEDDLE_FILE', `${path} cannot be ${done}: ${reason}`, { cause });
    this.reason = reason;
  }
}

/** The weights of a model cannot be taken from its files. Names the file, or their folder, and the tensor where one is wrong. */
export class WeightsError extends HeddleError {
  constructor(
    readonly file: string,
    readonly tensor: string | null,
    wrong: string,
    remedy: string,
    options?: ErrorOptions,
  ) {
    // The name comes from the file: it may be very long, or contain line ends.
    const named = tensor === null ? '' : ` ${JSON.stringify(tensor).slice(0, 200)}:`;
    super('HEDDLE_WEIGHTS', `${file}:${named} ${wrong}; ${remedy}`, options);
  }
}

/** The reason in a message of Node.js, without the system call and the path at its end. */
const reasonOf = (cause: unknown): string => messageOf(cause).replace(/, \w+( '.*)?$/, '');

/** A rank of the world died, left or stopped answering while others needed it. */
export class RankLostError extends HeddleError {
  constructor(
    /** The ranks that did not answer. */
    readonly ranks: readonly number[],
    /** The operation of the survivors: 'dispatch', 'combine', 'barrier', … */
    readonly operation: string,
    /** The round in which the rank was missed; absent for operations without rounds. */
    readonly epoch?: number,
    /**
     * `cause` says how the loss was noticed: a closed connection, silence, a wait that ran out. `likely` is another
     * explanation, if perhaps no rank is lost, and says what to do then.
     */
    options?: ErrorOptions & { readonly likely?: string },
  ) {
    const [who, them] =
      ranks.length === 1 ? [`rank ${ranks[0]}`, 'it'] : [`ranks ${ranks.join(', ')}`, 'them'];
    const when = epoch === undefined ? '' : ` (epoch ${epoch})`;
    super(
      'HEDDLE_RANK_LOST',
      `${who} did not answer during ${operation}${when}; ` +
        (options?.likely ??
          `layers with onLoss: 'mask' go on without ${them}; without masks start the world anew`),
      options,
    );
  }
}

/** The others go on without this rank, though it runs. */
export class RankMaskedError extends HeddleError {
  constructor(
    readonly rank: number,
    options?: ErrorOptions,
  ) {
    super(
      'HEDDLE_MASKED',
      `rank ${rank} is left out: the others go on without it, and nothing that it sends counts; world.rejoin() waits until they admit it again`,
      options,
    );
  }
}

/** A forward of one of the layers that share an ExpertParallel. */
export interface LayerForward {
  /** Which of its layers, from 0, in the order in which they were added. */
  readonly layer: number;
  /** From 1. */
  readonly forward: number;
}

/** Ranks that are left agree, all alike, that rounds from one on do not count, of whichever layers: what was done there is to be done again. */
export class RepeatRoundsError extends HeddleError {
  constructor(
    /** All ranks that the world leaves out by now. */
    readonly ranks: readonly number[],
    /** The first round that does not count, from 1. */
    readonly round: number,
    /** Whose round that is. Null where rounds came of graphs, which the host does not see: they repeat what they captured. */
    readonly from: LayerForward | null = null,
  ) {
    const without = ranks.length === 0 ? 'all ranks are still here' : `without ranks ${ranks.join(', ')}`;
    const of = from === null ? '' : `, forward ${from.forward} of layer ${from.layer},`;
    super(
      'HEDDLE_REPEAT',
      `rounds from ${round}${of} on do not count, on any rank: run them again (${without})`,
    );
  }
}

/** The ranks could not meet, or the process that hosts their rendezvous is gone. Says what to check. */
export class RendezvousError extends HeddleError {
  constructor(message: string, options?: ErrorOptions) {
    super('HEDDLE_RENDEZVOUS', message, options);
  }
}

/** Requires an integer in [min, max]; returns it. */
export function requireInteger(argument: string, value: unknown, min: number, max: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    // The message prints "8" and 8n like the number 8, so it says that they are not numbers.
    const type =
      typeof value === 'string' || typeof value === 'bigint' ? `: a number, not a ${typeof value}` : '';
    throw new ArgumentError(argument, value, `an integer from ${min} to ${max}${type}`);
  }
  return value;
}

/** Reads an integer in [min, max] from a text; null if the text is none. */
export function integerIn(text: string, min: number, max: number): number | null {
  const value = Number(text);
  return /^-?\d+$/.test(text) && value >= min && value <= max ? value : null;
}

// Types cannot stop everyone: JavaScript callers, casts, values from JSON. Every public function looks at what it is
// given before it uses it, so that a mistake is an ArgumentError here and not a crash somewhere else.

export function requireThat(holds: boolean, argument: string, value: unknown, mustBe: string): asserts holds {
  if (!holds) throw new ArgumentError(argument, value, mustBe);
}

/** Requires an object, such as options. */
export function requireObject(argument: string, value: unknown, mustBe = 'an object'): void {
  if (typeof value !== 'object' || value === null) throw new ArgumentError(argument, value, mustBe);
}

/** Requires an array, and so many elements if that is said. */
export function requireArray(argument: string, value: unknown, mustBe = 'an array', length?: number): void {
  if (!Array.isArray(value) || (length !== undefined && value.length !== length))
    throw new ArgumentError(argument, value, mustBe);
}

const requireKind =
  <T>(kind: string, usual: string) =>
  (argument: string, value: unknown, mustBe = usual): T => {
    if (typeof value !== kind) throw new ArgumentError(argument, value, mustBe);
    return value as T;
  };
export const requireText = requireKind<string>('string', 'a text');
export const requireFlag = requireKind<boolean>('boolean', 'true or false');
export const requireFunction = requireKind<unknown>('function', 'a function');

export function requireOneOf<T extends string>(argument: string, value: unknown, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found !== undefined) return found;
  throw new ArgumentError(argument, value, `one of ${allowed.map((name) => `'${name}'`).join(', ')}`);
}

/** Throws an ArgumentError unless a value is as it must be. */
export type Check = (argument: string, value: unknown) => unknown;

/** What each member of an object must be where it is given; `true` where it is looked at with others. The compiler keeps the table whole. */
export type Table<T> = Readonly<Record<keyof T, Check | true>>;

export const integerFrom =
  (min: number, max: number): Check =>
  (argument, value) =>
    requireInteger(argument, value, min, max);
export const oneOf =
  (allowed: readonly string[]): Check =>
  (argument, value) =>
    requireOneOf(argument, value, allowed);

/** Requires an object as a table says, without other members: JavaScript would take a misspelt option without a word. */
export function requireMembers<T extends object>(argument: string, value: T, table: Table<T>): void {
  requireObject(argument, value);
  const known: Readonly<Record<string, Check | true>> = table;
  for (const [name, was] of Object.entries(value))
    if (!Object.hasOwn(known, name)) {
      const names = Object.keys(known);
      const [near = ''] = nearest(name, names);
      const guess = editDistance(name, near) < Math.min(3, name.length / 2) ? `; did you mean ${near}?` : '';
      throw new ArgumentError(`${argument}.${name}`, was, `left out: there are ${names.join(', ')}${guess}`);
    }
  for (const [name, check] of Object.entries(known)) {
    const is = value[name as keyof T];
    if (check !== true && is !== undefined) check(name, is);
  }
}

/** Replaces the characters of another program's text that a terminal would obey. Lines and tabs stay. */
export const printable = (text: string): string =>
  text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, (character) =>
    '\n\t'.includes(character) ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

/** What `make` returns; `otherwise` where it throws, whatever that may be. */
export function valueOr<T, U>(otherwise: U, make: () => T): T | U {
  try {
    return make();
  } catch {
    return otherwise;
  }
}

export function messageOf(error: unknown): string {
  if (error instanceof Error) return error.message;
  return typeof error === 'string' ? error : show(error);
}

/** A short, safe rendering of a value for a message. */
export function show(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}…` : value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return `function ${value.name || '(anonymous)'}`;
  if (typeof value === 'object' && value !== null)
    return valueOr('an object that cannot be looked at', () => showObject(value)); // a proxy, or a getter that throws
  return String(value);
}

function showObject(value: object): string {
  if (!ArrayBuffer.isView(value) && !Array.isArray(value)) return nameOf(value);
  const length = 'length' in value ? value.length : value.byteLength;
  return `${nameOf(value)} of length ${length}`;
}

/** The name of a value's class, where it has a usable one. */
function nameOf(value: object): string {
  const { name } = (value.constructor ?? {}) as { readonly name?: unknown };
  return typeof name === 'string' && name !== '' ? name : 'object';
}

/** How many letters two names are apart (Levenshtein's): what a slip was meant to be is near it. */
export function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(substitution, previous[j]! + 1, row[j - 1]! + 1));
    }
    previous = row;
  }
  return previous[b.length]!;
}

/** The names that contain what was asked for, then those with the fewest letters that differ: five at most. */
export function nearest(asked: string, names: readonly string[]): string[] {
  const wanted = asked.toLowerCase();
  const distance = (name: string): number => editDistance(wanted, name.toLowerCase());
  const lacks = (name: string): number => (name.toLowerCase().includes(wanted) ? 0 : 1);
  return names.toSorted((a, b) => lacks(a) - lacks(b) || distance(a) - distance(b)).slice(0, 5);
}

/** For the message about an unknown name: all names where they are few, else the nearest. */
export const oneOfListed = (asked: string, names: readonly string[]): string =>
  names.length <= 10
    ? `one of ${names.join(', ')}`
    : `one of ${names.length} names, such as ${nearest(asked, names).join(', ')} (--list shows all)`;

/** The members of an object that it has a value for; of these names where there are some. So options are handed on as they were given. */
export function onlyGiven<T extends object, const N extends keyof T = keyof T>(
  of: T,
  ...names: readonly N[]
): { readonly [K in N]?: Exclude<T[K], undefined> } {
  const wanted = names.length === 0 ? (Object.keys(of) as N[]) : names;
  const given = wanted.flatMap((name) => (of[name] === undefined ? [] : [[name, of[name]] as const]));
  return Object.fromEntries(given) as { [K in N]?: Exclude<T[K], undefined> };
}
