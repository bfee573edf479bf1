import { largeCases, type RoundTripCase, roundTripCases } from '../suite/round-trip.js';

/** The cases that differ by the number of ranks; the others would only repeat themselves. */
const notable =
  /^(bf16|f16$|eight|rows of 77|uneven|nobody|holes|all remote|one rank|fewer|push, rows|pull, rows)/;

/** All small cases with 2 ranks, the notable ones with others. */
export function smallCases(ranks: number, replays: number): RoundTripCase[] {
  return roundTripCases(ranks, { replays }).filter(({ name }) => ranks === 2 || notable.test(name));
}

/** The cases that worlds of so many GPUs run, in one process and in several. */
export function casesOnGpus(ranks: number): RoundTripCase[] {
  const replays = 1000;
  if (ranks === 4) return [...roundTripCases(ranks, { replays }), ...largeCases(ranks)];
  return [...smallCases(ranks, replays), ...(ranks > 4 ? largeCases(ranks) : [])];
}
