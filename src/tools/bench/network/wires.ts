/** Where the messages of all ranks lie, in words. */
import type { World } from '../../../net/world/index.js';

const places = { host: 'in host memory', gpu: 'in the GPU’s memory' } as const;

/** Every rank calls it. Ranks that say the same are told together. */
export async function wiresOf(world: Pick<World, 'wires' | 'allGather'>): Promise<string> {
  const { placement, why } = await world.wires();
  const gathered = await world.allGather(Buffer.from(`${places[placement]} (${why})`), 'where wires lie');
  const said = gathered.map((bytes) => Buffer.from(bytes).toString());
  const different = [...new Set(said)];
  if (different.length === 1) return different[0]!;
  const ranks = (words: string) => said.flatMap((of, rank) => (of === words ? [rank] : [])).join(', ');
  return different.map((words) => `of ranks ${ranks(words)} ${words}`).join('; ');
}
