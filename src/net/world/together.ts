import { HeddleError } from '../../base/errors.js';

/** What `together` needs of a circle. */
type Gather = (bytes: Uint8Array, operation: string) => Promise<Uint8Array[]>;

/**
 * Gives every rank what all ranks made in a step that each of them takes. Where one fails, all throw at once: that one
 * its own error, the others one that quotes it.
 */
export async function together(
  gather: Gather,
  doing: string,
  step: () => Promise<Uint8Array>,
): Promise<Uint8Array[]> {
  const [done, failed] = [0, 1];
  const say = (what: number, bytes: Uint8Array) => gather(Buffer.concat([Buffer.of(what), bytes]), doing);
  let made: Uint8Array;
  try {
    made = await step();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    await say(failed, Buffer.from(why)).catch(() => {}); // what went wrong first says more
    throw error;
  }
  const all = await say(done, made);
  const fallen = all.findIndex(([what]) => what === failed);
  if (fallen === -1) return all.map((bytes) => bytes.subarray(1));
  const why = Buffer.from(all[fallen]!.subarray(1)).toString();
  throw new HeddleError('HEDDLE_PEER_FAILED', `rank ${fallen} failed at ${doing}: ${why}`);
}
