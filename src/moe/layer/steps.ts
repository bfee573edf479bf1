/** The way from one placement to another, where experts come only to places in which none lives. */
import { ArgumentError } from '../../base/errors.js';
import { type Placement, placesByExpert, requireSamePlaces } from './placement.js';

/** One step of it: first some experts leave places, then others, which still live elsewhere, come to them. */
export interface PlacementStep {
  readonly emptied: Placement;
  readonly filled: Placement;
}

/**
 * As few steps as it takes. No expert of `next` is without a place meanwhile. Where experts must change places with each other, one of them
 * goes by way of a place that is empty, or of one that holds what lives elsewhere too.
 */
export function stepsTo(next: Placement, now: Placement): PlacementStep[] {
  requireSamePlaces(next, now);
  const living = placesByExpert(now);
  for (const [place, expert] of next.places.entries())
    if (expert !== -1 && living[expert]!.length === 0)
      throw new ArgumentError(`placement.places[${place}]`, expert, 'an expert that lives somewhere');
  const steps: PlacementStep[] = [];
  /** Places that experts went by way of. They leave their own places first, and those last. */
  const byway = new Set<number>();
  let places = now.places;
  while (places.some((expert, place) => expert !== next.places[place])) {
    const emptied = withoutStale(places, next, byway);
    const filled = emptied.map((expert, place) => (expert === -1 ? next.places[place]! : expert));
    if (filled.every((expert, place) => expert === places[place])) byway.add(detour(next, emptied, filled));
    steps.push({ emptied: { ...now, places: emptied }, filled: { ...now, places: filled } });
    places = filled;
  }
  return steps;
}

/** Experts leave the places that `next` gives to others, as far as they live elsewhere, or nowhere later. */
function withoutStale(places: readonly number[], next: Placement, last: ReadonlySet<number>): number[] {
  const wanted = new Set(next.places);
  const left = [...places];
  for (const place of [...places.keys()].sort((a, b) => Number(last.has(a)) - Number(last.has(b)))) {
    const expert = places[place]!;
    if (expert === -1 || expert === next.places[place]) continue;
    const lives = left.indexOf(expert) !== left.lastIndexOf(expert);
    if (lives || !wanted.has(expert)) left[place] = -1;
  }
  return left;
}

/** Nobody can leave: an expert that is in another's place gets a second one, which it gives up again. Returns that. */
function detour({ places: wanted }: Placement, emptied: number[], filled: number[]): number {
  const held = emptied.findIndex((expert, place) => expert !== -1 && expert !== wanted[place]);
  const isSpare = (expert: number, place: number) =>
    expert === -1 || emptied.some((other, i) => i !== place && other === expert);
  const spare = emptied.findIndex(isSpare);
  if (spare === -1) {
    const possible =
      'one with a place to spare: experts that change places need one that is empty, or whose expert lives elsewhere too';
    throw new ArgumentError('placement', 'given', possible);
  }
  emptied[spare] = -1;
  filled[spare] = emptied[held]!;
  return spare;
}
