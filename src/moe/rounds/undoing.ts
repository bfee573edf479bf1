/** Parts that all ranks make, or none: where a step fails on one rank, all throw, and undo what they have made until then. */
import { allOrNone, type World } from '../../net/world/index.js';

/** How steps are undone, in their order. */
export type Undo = (() => unknown)[];

/** Makes something in steps, each of which notes how it is undone. Where one fails, those before it are undone. */
export async function undoing<T>(make: (undo: Undo) => Promise<T>): Promise<T> {
  const undo: Undo = [];
  try {
    return await make(undo);
  } catch (error) {
    await undoAll(undo);
    throw error;
  }
}

/** Undoes the last step first, and each once. */
export async function undoAll(undo: Undo): Promise<void> {
  for (const step of undo.splice(0).reverse()) await step();
}

/** Takes a step that needs no other rank, while each of those takes its own. Where one fails, all throw. */
export async function everywhere<T>(world: World, doing: string, step: () => T | Promise<T>): Promise<T> {
  let made!: T;
  await allOrNone(world.allGather.bind(world), doing, async () => {
    made = await step();
  });
  return made;
}
