/**
 * The checks of every family, as far as it carries it: whole rounds on one node and on several, split phases, groups,
 * ways for rows to come back, all transports, rows that are there before, a rank that is lost.
 */
import {
  type Family,
  type Place,
  type TransportName,
  type Tuning,
  transports,
} from '../../../moe/families/index.js';
import { placed } from '../../../moe/layer/index.js';
import { topologyOf } from '../../../net/world/index.js';
import { familyKernels } from '../../kernels/index.js';
import { shapeOfRounds } from '../../testing/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { givenLayer, givenRows } from './given-rows.js';
import { lossLayer, lossOf, ranksOfLoss } from './losses.js';
import {
  type Carrier,
  common,
  commonElsewhere,
  commonNodes,
  commonSplit,
  configurationsOf,
  type Rounds,
  roundsOf,
  wayOf,
} from './rounds.js';

const rowsBack: Readonly<Record<string, Partial<Rounds>>> = {
  'combine weighs': { weighting: 'combine', topK: 3, experts: 5 },
  e4m3: { wire: 'e4m3', hidden: 144, ranks: 3, topK: 3, counts: true },
};

/** A subject for each transport that the family takes. */
export function generalOf(family: Family): CheckSubject[] {
  const kernels = [...familyKernels(family).map(({ name }) => name), 'example_experts'];
  return transports.flatMap((transport) => {
    const configurations = over(family, transport);
    const name = transport === 'windows' ? family.name : `${family.name}_${transport}`;
    return configurations.length === 0 ? [] : [{ name, kernels, configurations }];
  });
}

function over(family: Family, transport: TransportName): CheckConfiguration[] {
  const way = wayOf(family.name, transport);
  const carriedBy = (of: Rounds) => carrierOf(family, transport, of);
  const here = transport === 'windows' ? { ...common, ...commonSplit, ...rowsBack } : commonElsewhere;
  const given = carriedBy(roundsOf(givenLayer));
  return [
    ...configurationsOf(way, here, carriedBy),
    ...configurationsOf(`${way}, on nodes`, commonNodes, carriedBy),
    ...(given === null
      ? []
      : [
          givenRows(`${way}, nothing between dispatch and combine`, given),
          givenRows(`${way}, rows written again behind combine`, given, { reusedBehind: 'combine' }),
        ]),
    ...lossesOf(way, carriedBy),
  ];
}

/** On one node where the family is for that, else on several. */
function lossesOf(way: string, carriedBy: (of: Rounds) => Carrier | null): CheckConfiguration[] {
  const changes: readonly Partial<Rounds>[] = [{}, { split: true }, { replicas: 2 }];
  return changes.flatMap((change) => {
    const ranks = ranksOfLoss(change.replicas);
    for (const nodes of [1, ranks / (change.replicas ?? 1)]) {
      const carrier = carriedBy(roundsOf({ ...lossLayer, ...change, ranks, nodes }));
      if (carrier === null) continue;
      const name = change.split ? `${way}, split` : way;
      const how = { ...carrier, ...change, nodes, goesOn: true };
      return [lossOf(name, 'dispatch', how), lossOf(name, 'combine', how)];
    }
    return [];
  });
}

/** How the family carries these rounds: spread as they say, otherwise by its rules of thumb. Null where it refuses to, also without counts. */
function carrierOf(family: Family, transport: TransportName, of: Rounds): Carrier | null {
  if (of.adds && !family.adds) return null;
  const place: Place = {
    ...{ kind: 'sim', multiprocessors: of.residentBlocks, split: of.split, sms: null, transport, rank: 0 },
    topology: topologyOf(
      Array.from({ length: of.ranks }, (_, rank) => Math.floor((rank * of.nodes) / of.ranks)),
      0,
    ),
  };
  for (const counts of of.counts ? [true, false] : [false]) {
    const layer = { ...placed(shapeOfRounds(of), of.placements[0]), weights: of.weights, counts };
    if (family.refuses(layer, place) !== null) continue;
    const tuning = spreadAs(of, family.defaults(layer, place));
    if (family.refuses(layer, place, tuning) !== null) continue;
    return { family: family.name, transport, tuning, counts };
  }
  return null;
}

const spreadAs = ({ blocks, threads, parts }: Rounds, tuning: Tuning): Tuning =>
  Object.fromEntries(
    Object.entries(tuning).map(([phase, knobs]) => {
      const known = Object.entries({ blocks, threads, parts }).filter(([knob]) => knob in knobs);
      return [phase, { ...knobs, ...Object.fromEntries(known) }];
    }),
  );
