/**
 * The points that a rank passes when it joins a world, makes something there with the others, renews it or leaves. Tests make a
 * rank fall at each of them. Nobody else listens, and then a point costs a comparison.
 */
type Listener = (what: string, step: string) => void;

let listener: Listener | null = null;

/** A rank is at this step of what it does. */
export function passing(what: string, step: string): void {
  if (listener !== null) listener(what, step);
}

/** For tests alone: hears of every point, in the middle of what the rank does. */
export function onPassing(hear: Listener): void {
  listener = hear;
}
