/** Configurations by what each rank does and how its result compares with what it should be. */
import { HeddleError } from '../../../base/errors.js';
import { World } from '../../../net/world/index.js';
import { type Comparison, mergeComparisons } from '../../testing/index.js';
import { type CheckConfiguration, WrongResult } from '../subject.js';

/** @throws WrongResult where anything differs. */
export function requireSame(...comparisons: readonly Comparison[]): void {
  const { different, first } = mergeComparisons(comparisons);
  if (different > 0) throw new WrongResult(`${first} (${different} values differ)`);
}

/** A function that makes something once: inputs and results of the reference are the same in every schedule. */
export function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** The end of a world in which ranks are killed: that is no error of their programs. */
export const exceptKilled = (world: Promise<unknown>): Promise<unknown> =>
  world.catch((error: unknown) => {
    if (!(error instanceof HeddleError && error.code === 'HEDDLE_KILLED')) throw error;
  });

/** Work that a rank does alone, of which one is enough. */
export const ofOneRank = (
  name: string,
  work: (world: World) => Promise<Comparison>,
  on: Pick<CheckConfiguration, 'residentBlocks'> = {},
): CheckConfiguration => ({
  ...on,
  name,
  ranks: 1,
  async run(machine) {
    requireSame(...(await World.local({ ranks: 1, device: 'sim', sim: machine }, work)));
  },
});
