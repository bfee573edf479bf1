import type { TransportName } from '../../src/moe/families/index.js';
import { type FamilyName, largeCases, type RoundTripCase, roundTripCases } from '../suite/round-trip.js';

/** The cases that differ by the number of ranks; the others would only repeat themselves. */
const notable =
  /^(bf16|f16$|payloads|rows of 77|uneven|nobody|holes|all remote|one rank|fewer|push, rows|pull, rows)/;

/** All small cases with 2 ranks, the notable ones with others. */
export function smallCases(
  ranks: number,
  replays: number,
  family: FamilyName = 'one-sided',
  transport: TransportName = 'windows',
): RoundTripCase[] {
  return roundTripCases(ranks, { family, transport, replays }).filter(
    ({ name }) => ranks === 2 || notable.test(name),
  );
}

/** The cases that worlds of so many GPUs run, in one process and in several. */
export function casesOnGpus(ranks: number): RoundTripCase[] {
  const replays = 50;
  const small = ranks === 4 ? roundTripCases(ranks, { replays }) : smallCases(ranks, replays);
  const large = (family: FamilyName) => (ranks >= 4 ? largeCases(ranks, { family }) : []);
  const portable = [...smallCases(ranks, replays, 'portable'), ...large('portable')];
  return [
    ...small,
    ...large('one-sided'),
    ...portable.map((one) => ({ ...one, name: `portable: ${one.name}` })),
  ];
}

/** The cases of worlds over NVSHMEM, which have a process for each rank. */
export const casesOverNvshmem = (ranks: number): RoundTripCase[] =>
  roundTripCases(ranks, { family: 'portable', transport: 'nvshmem', replays: 50 });
