/** The meaning of a loss: who was lost, as all ranks are told; and why a rank that lives may seem lost. */
import { setTimeout as delay } from 'node:timers/promises';
import { getOrMake } from '../../base/maps.js';
import type { Circle } from '../../net/world/index.js';
import type { Operation } from '../families/index.js';
import { firstOf, type Layer, sharing } from '../layer/index.js';
import type { RoundInFlight } from './in-flight.js';

/** The longest wait for the circle's verdict. It comes in a fraction of that, unless more is wrong than one lost rank. */
const patienceMs = 1000;

/**
 * Waits until the circle has said whom it lost, but not for long. A rank's own proxy may blame a rank that only left because it was told of a loss
 * before this rank was, and has left because of it. The circle has heard of that first, if that one's proxy told it.
 */
export const verdictOf = ({ signal }: Circle): Promise<void> =>
  delay(patienceMs, undefined, { signal }).catch(() => {});

/** The longest that a rank waits for the others' words on whom they miss. */
const othersMs = 500;

/**
 * Whom ranks miss in the end, where a kernel of this rank gave up waiting for `peer` and the circle has heard of no loss: `peer` may
 * itself have waited for another rank. All whose kernels give up tell each other whom they missed; whom `peer` missed is followed to a
 * rank that missed nobody. Where ranks missed each other in a ring, it is `peer`.
 */
export async function missedInTheEnd(
  { circle, ranks }: { readonly circle: Pick<Circle, 'ranks' | 'survey'>; readonly ranks: number },
  peer: number,
  waitMs: number,
): Promise<number> {
  // A circle of those that are left counts in another way, and of two ranks the other is missed.
  if (circle.ranks !== ranks || ranks === 2) return peer;
  const ms = Math.ceil(Math.min(othersMs, waitMs / 4));
  // The circle may hear of a loss meanwhile, which then counts instead; or the process where it meets is itself the silent one.
  const asked = circle.survey(Buffer.from(`${peer}`), ms).catch(() => []);
  const said = await Promise.race([asked, delay<Uint8Array[]>(2 * ms, [], { ref: false })]);
  const passed = new Set<number>();
  for (let at = peer; said[at] !== undefined && !passed.has(at); ) {
    passed.add(at);
    if (said[at].length === 0) return at;
    at = Number(Buffer.from(said[at]).toString());
  }
  return peer;
}

type Rounds = readonly Pick<RoundInFlight, 'changedStreams' | 'brings' | 'underWay'>[];
export type RoundsHere = Map<number, Rounds>;

/** By the place where ranks of this process meet: their layers, which all create in the same order, and how many each has created. */
const places = new WeakMap<object, { layers: Map<number, RoundsHere>; created: Map<number, number> }>();

/** The layer that this rank has just created, as all ranks of this process see it. `forget` takes the rank's rounds out again. */
export function layerHere(
  { place, rank }: Circle,
  rounds: Rounds,
): { readonly here: RoundsHere; readonly forget: () => void } {
  const { layers, created } = getOrMake(places, place, () => ({ layers: new Map(), created: new Map() }));
  const nth = created.get(rank) ?? 0;
  created.set(rank, nth + 1);
  const here = getOrMake(layers, nth, () => new Map());
  here.set(rank, rounds);
  const forget = () => {
    here.delete(rank);
    if (here.size === 0) layers.delete(nth);
  };
  return { here, forget };
}

/**
 * The likely mistake of the program when a kernel gave up waiting but the circle has heard of no loss. No call can
 * see such a mistake.
 */
export function likelyMistake(
  layer: Layer,
  rank: number,
  { operation, peer }: { readonly operation: Operation; readonly peer: number },
  here: RoundsHere,
): { readonly likely: string } | undefined {
  if (here.get(rank)!.some(({ changedStreams }) => changedStreams)) {
    return {
      likely:
        'this rank enqueued a round on more than one stream, and the likely cause is that nothing orders its halves there: ' +
        'record an event on the one stream and let the other wait for it (stream.record, stream.wait)',
    };
  }
  if (operation === 'combine' && here.get(peer)?.some(({ underWay }) => underWay)) {
    return { likely: `rank ${peer} has dispatched a round and not combined it: every rank calls combine` };
  }
  const first = firstOf(layer, rank);
  const { replicas } = sharing(layer);
  // In dispatch the ranks of a group meet however many tokens they bring.
  if (operation !== 'combine' || replicas === 1 || firstOf(layer, peer) !== first) return undefined;
  const group = Array.from({ length: replicas }, (_, member) => first + member);
  const brought = group.flatMap((member) => {
    const tokens = here.get(member)?.map(({ brings }) => brings.tokens);
    return tokens === undefined ? [] : [`rank ${member} last brought ${tokens.join(' and ')}`];
  });
  return {
    likely:
      `ranks ${first} to ${first + replicas - 1} are a group, and the likely cause is that they brought different numbers ` +
      `of tokens to a round: ${brought.join(', ')}`,
  };
}
