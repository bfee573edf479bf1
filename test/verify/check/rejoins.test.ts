/** `heddle check` runs ranks that come back, and finds nothing; each step and message of that left out or changed it must see. */
import { afterEach, expect, test, vi } from 'vitest';
import type { PeerMemory } from '../../../src/gpu/index.js';
import { SimDevice } from '../../../src/gpu/sim/device.js';
import { LoadedPlan } from '../../../src/moe/rounds/loaded-plan.js';
import { Exchange } from '../../../src/net/world/exchange.js';
import { LocalCircle } from '../../../src/net/world/index.js';
import { LastingProxy } from '../../../src/net/world/proxy/start.js';
import { runOnce } from '../../../src/verify/check/index.js';
import { checkSubjects } from '../../../src/verify/check/subjects/index.js';

const all = checkSubjects.flatMap(({ configurations }) => configurations);
const back = 'a rank left out and back';
const subjects = {
  moved: all.find(({ name }) => name === `push, ${back}, experts moved meanwhile`)!,
  graph: all.find(({ name }) => name === `hybrid, ${back}, a graph`)!,
  anew: all.find(({ name }) => name === 'push, a rank left out, and a new process in its place, a graph')!,
};

/** Whether the ranks of the run are in the circle to which one has come back. */
let rejoined = false;
afterEach(() => void vi.restoreAllMocks());

async function findingsOf(subject: keyof typeof subjects, seed: number) {
  rejoined = false;
  const options = { seed: `random-${seed}`, schedule: 'random', stepLimit: 1e6 } as const;
  return (await runOnce(subjects[subject], options)).findings;
}

type Method = (...given: never[]) => unknown;

/** Calls of the method, once a rank has come back, are made by `otherwise`. Returns how many were. */
function mutate(prototype: object, method: string, otherwise: (original: Method, given: never[]) => unknown) {
  const become = Exchange.prototype.become;
  vi.spyOn(Exchange.prototype, 'become').mockImplementation(function (this: Exchange, origins) {
    rejoined = origins.length === 3;
    return become.call(this, origins);
  });
  const original = Reflect.get(prototype, method) as Method;
  let changed = 0;
  vi.spyOn(prototype as Record<string, Method>, method).mockImplementation(function (this: object, ...given) {
    if (!rejoined) return original.apply(this, given);
    changed++;
    return otherwise(original.bind(this) as Method, given);
  });
  return () => changed;
}

async function requireFound(subject: keyof typeof subjects, changed: () => number): Promise<void> {
  let found = false;
  for (let seed = 0; seed < 10 && !found; seed++) found = (await findingsOf(subject, seed)).length > 0;
  expect(changed()).toBeGreaterThan(0);
  expect(found).toBe(true);
}

test.each([
  ['its proxies do not end', LastingProxy.prototype, 'pause', 'graph'],
  ['its proxies do not begin', LastingProxy.prototype, 'begin', 'graph'],
  ['counters do not begin anew', LoadedPlan.prototype, 'beginAnew', 'graph'],
] as const)('%s: that is found', async (_, prototype, method, subject) => {
  await requireFound(
    subject,
    mutate(prototype, method, () => Promise.resolve()),
  );
});

/** What a rank says when ranks meet again, said otherwise: in which subject, by which of its ranks. The one that comes back is 1, or 0. */
const lies = {
  'that it was not out': ['moved', 1, (said: Standing) => ({ ...said, out: false })],
  'another rank': ['moved', 1, (said: Standing) => ({ ...said, rank: 2 })],
  'another world': ['moved', 1, (said: Standing) => ({ ...said, world: '' })],
  'other origins': ['graph', 1, (said: Standing) => ({ ...said, origins: said.origins.toReversed() })],
  'another placement': [
    ...(['moved', 0] as const),
    (said: Standing) => ({
      ...said,
      states: said.states.map((state) => ({ ...state, places: state.places.map((of) => of.toReversed()) })),
    }),
  ],
} as const;

interface Standing {
  readonly out: boolean;
  readonly rank: number;
  readonly world: string;
  readonly origins: readonly number[];
  readonly states: readonly { readonly done: number; readonly places: readonly (readonly number[])[] }[];
}

test.each(Object.entries(lies))('a rank that says %s is found', async (_, [subject, rank, lie]) => {
  const changed = mutate(LocalCircle.prototype, 'allGather', (original, given) => {
    const [bytes, operation] = given as unknown as [Uint8Array, string];
    const said = operation === 'rejoining' ? JSON.parse(Buffer.from(bytes).toString()) : null;
    if (said?.rank !== rank) return original(...given);
    return original(...([Buffer.from(JSON.stringify(lie(said))), operation] as never[]));
  });
  await requireFound(subject, changed);
});

test.each([
  ['of the process that fell stay mapped', 'openWindow'],
  ['of the others are not mapped', 'reserveWindow'],
] as const)('windows %s: that is found', async (_, method) => {
  let changed = 0;
  const original = SimDevice.prototype[method] as (...given: unknown[]) => PeerMemory | Promise<PeerMemory>;
  const keeps = (memory: PeerMemory): PeerMemory => ({ ...memory, map: async () => void changed++ });
  vi.spyOn(SimDevice.prototype, method).mockImplementation(function (this: SimDevice, ...given: unknown[]) {
    const memory = original.apply(this, given);
    return (memory instanceof Promise ? memory.then(keeps) : keeps(memory)) as never;
  });
  await requireFound('anew', () => changed);
});

test('ranks that do not wait until all are ready are found', async () => {
  const changed = mutate(LocalCircle.prototype, 'allGather', (original, given) => {
    const [bytes, operation] = given as unknown as [Uint8Array, string];
    return operation === 'mask' ? Promise.resolve([bytes]) : original(...given);
  });
  await requireFound('moved', changed);
});
