/** `heddle check` runs weights that move, and finds nothing; each of a move's steps left out it must see. */
import { afterEach, expect, test, vi } from 'vitest';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { World } from '../../../src/net/world/index.js';
import { runOnce } from '../../../src/verify/check/index.js';
import { moves } from '../../../src/verify/check/subjects/moves.js';

afterEach(() => void vi.restoreAllMocks());

async function findingsOf(seed: number) {
  const options = { seed: `random-${seed}`, schedule: 'random', stepLimit: 1e6 } as const;
  return (await runOnce(moves.configurations[0]!, options)).findings;
}

const streams = Object.getPrototypeOf(SimMachine.create({ ranks: 1 }).device(0).createStream());

/** Calls that moves make of `method` do nothing: those before experts are carried, or each first or second of those that carry them. */
function without(prototype: object, method: 'barrier' | 'synchronize', which: 'before' | 'first' | 'second') {
  const original = Reflect.get(prototype, method);
  const carried = new WeakMap<object, number>();
  let left = 0;
  vi.spyOn(prototype as Record<string, () => Promise<void>>, method).mockImplementation(async function (
    this: object,
    ...given: unknown[]
  ) {
    const stack = new Error().stack!;
    const carrying = stack.includes('#carry');
    const n = carried.get(this) ?? 0;
    if (carrying) carried.set(this, n + 1);
    const step = !carrying ? 'before' : n % 2 === 0 ? 'first' : 'second';
    if (step === which && stack.includes('moving-weights')) left++;
    else await original.apply(this, given);
  });
  return () => left;
}

test.each([
  ['barrier', 'first'],
  ['barrier', 'second'],
  ['synchronize', 'before'],
  ['synchronize', 'first'],
  ['synchronize', 'second'],
] as const)('a move without its %s, %s, is found', async (method, which) => {
  const left = without(method === 'barrier' ? World.prototype : streams, method, which);
  let found = false;
  for (let seed = 0; seed < 20 && !found; seed++) found = (await findingsOf(seed)).length > 0;
  expect(left()).toBeGreaterThan(0);
  expect(found).toBe(true);
});
