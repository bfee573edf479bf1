/**
 * Every public function, called wrongly: with other types, other shapes, things that were disposed, things of another
 * world. Whatever comes of it is a result or one of Heddle's own errors: no crash, no hang, no TypeError.
 */
import { afterAll, afterEach, beforeAll, describe, expect, expectTypeOf, test } from 'vitest';
import { HeddleError } from '../../src/base/errors.js';
import { World } from '../../src/index.js';
import { random } from '../../src/verify/testing/public.js';
import { needing } from '../needs.js';
import { withArguments } from './arguments.js';
import type { Call } from './call.js';
import { type Engines, engines, ofEngines } from './engines.js';
import { inWorld, things } from './in-world.js';
import type { Excused, PublicName } from './names.js';
import { spoiled, wrongValues } from './wrong.js';

type Called =
  | keyof typeof withArguments
  | keyof Awaited<ReturnType<typeof inWorld>>
  | keyof Awaited<ReturnType<typeof ofEngines>>;

test('every public name is called, or excused with a reason', () => {
  // What compiles is the test: an error here has the names that are neither, or both.
  expectTypeOf<Exclude<PublicName, Called | Excused> | (Called & Excused)>().toBeNever();
});

/** The call that has not ended yet: one that never does keeps its test from ending. */
let underWay = '';
afterEach(({ task }) => {
  if (task.result?.state === 'fail') console.error(`the last call was ${underWay}`);
});

/** How a call ended that was neither a result nor one of Heddle's errors; null where all is well. */
async function complaint(name: string, { of }: Call, args: unknown[]): Promise<string | null> {
  underWay = `${name}(${args.map(shown).join(', ')})`;
  try {
    await of(...(args as never[]));
    return null;
  } catch (error) {
    if (error instanceof HeddleError) return null;
    const threw = error instanceof Error ? (error.stack ?? error.message) : `threw ${typeof error}`;
    return `${underWay}: ${threw}`;
  }
}

function shown(value: unknown): string {
  try {
    return (
      JSON.stringify(value, (_, part: unknown) =>
        typeof part === 'object' || typeof part === 'string' || typeof part === 'number'
          ? part
          : String(part),
      ) ?? String(value)
    );
  } catch {
    return String(Object.prototype.toString.call(value));
  }
}

/** Calls that many times, each function as often as any other. */
async function fuzz(
  table: Readonly<Record<string, Call>>,
  times: number,
  seed: number,
  foreign: readonly unknown[],
): Promise<string[]> {
  const calls = Object.entries(table);
  const draw = random(seed);
  const wrong = wrongValues(foreign);
  const complaints: string[] = [];
  for (let i = 0; i < times; i++) {
    const [name, call] = calls[i % calls.length]!;
    const what = await complaint(name, call, spoiled(call.good, wrong, draw));
    if (what !== null) complaints.push(what);
  }
  return complaints;
}

test('functions that need only their arguments', async () => {
  expect(await fuzz(withArguments, 2_000, 1, [])).toEqual([]);
});

test('a world and what is made in it, and once it is gone', { timeout: 240_000 }, async () => {
  const foreign: unknown[] = [];
  const [calls] = await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const here = await things(world);
    const calls = await inWorld(here);
    await World.local({ ranks: 1, device: 'sim' }, async (other) => {
      foreign.push(...Object.values(here), ...Object.values(await things(other)));
      expect(await fuzz(calls, 2_000, 2, foreign)).toEqual([]);
    });
    return calls;
  });
  expect(await fuzz(calls!, 400, 4, foreign)).toEqual([]);
});

describe('between machines', needing('tcp;ofi_rxm'), () => {
  let of: Engines;
  beforeAll(async () => {
    of = await engines();
  });
  afterAll(async () => {
    for (const engine of of.opened) await engine.close();
  });

  test('an engine, its regions, peers and operations', { timeout: 240_000 }, async () => {
    const { opened, ...foreign } = of;
    expect(await fuzz(await ofEngines(of), 600, 3, [...opened, ...Object.values(foreign)])).toEqual([]);
  });
});
