import { largeCases, type RoundTripCase, roundTripCases } from '../suite/round-trip.js';

/** Beyond 2 and 4 ranks, the cases that differ by the number of ranks. */
const notable =
  /^(bf16|f16$|eight|rows of 77|uneven|nobody|holes|all remote|one rank|fewer|push, rows|pull, rows)/;

/** The cases that worlds of so many GPUs run, in one process and in several. */
export function casesOnGpus(ranks: number): RoundTripCase[] {
  const cases = roundTripCases(ranks, { replays: 1000 });
  if (ranks === 2) return cases;
  if (ranks === 4) return [...cases, ...largeCases(ranks)];
  return [...cases.filter(({ name }) => notable.test(name)), ...(ranks > 4 ? largeCases(ranks) : [])];
}
