/** Ranks that disagree would write over each other: they are refused before anything is mapped. */
import { ArgumentError } from '../../base/errors.js';
import type { World } from '../../net/world/index.js';

/** Requires that every rank brings the same values by the same names. */
export async function requireSameEverywhere(world: World, mine: object): Promise<void> {
  const text = JSON.stringify(mine);
  const all = await world.allGather(new TextEncoder().encode(text), 'comparing shapes');
  for (const [rank, bytes] of all.entries()) {
    const theirs = new TextDecoder().decode(bytes);
    if (theirs === text) continue;
    const other = JSON.parse(theirs) as Record<string, unknown>;
    for (const [name, value] of Object.entries(mine)) {
      if (JSON.stringify(other[name]) === JSON.stringify(value)) continue;
      const possible = `the same on all ranks; rank ${rank} has ${JSON.stringify(other[name])}`;
      throw new ArgumentError(name, JSON.stringify(value), possible);
    }
  }
}
