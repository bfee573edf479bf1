/** A round in which each rank goes by a placement of its own: some still by the old one, some already by the next. */
import {
  type Bits,
  type Placement,
  placed,
  reference,
  type Shape,
  type Source,
} from '../../moe/layer/index.js';
import { expectedRound, placedSources } from '../testing/index.js';

/** What each rank gets back. `placements[rank]`; `masked`: ranks that the round leaves out. */
export function expectedPlacedRound(
  shape: Shape,
  sources: readonly Source[],
  placements: readonly Placement[],
  masked: readonly number[] = [],
): Bits[] {
  const inPlaces = placed(shape, placements[0]);
  const routed = sources.map((_, rank) => placedSources(shape, sources, placements[rank])[rank]!);
  // A place that is empty to some ranks already, or still, has an expert to others.
  const lives = placements[0]!.places.map((_, place) =>
    Math.max(...placements.map((of) => of.places[place]!)),
  );
  return expectedRound(inPlaces, reference.without(inPlaces, routed, masked), true, 1, lives);
}
