/**
 * The checks of a family, as far as it carries them: whole rounds on one node and on several, split phases, groups,
 * ways for rows to come back, all transports, rows that are there before, a rank that is lost.
 */
import { type Family, type Operation, type TransportName, transports } from '../../../moe/families/index.js';
import { familyKernels } from '../../kernels/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { givenRows } from './given-rows.js';
import { type Loss, lossOf, ranksOfLoss } from './losses.js';
import {
  carriedBy,
  configurationsOf,
  type Rounds,
  roundsOnNodes,
  roundsOverNvshmem,
  splitRounds,
  wholeRounds,
} from './rounds.js';

const rowsBack: Readonly<Record<string, Partial<Rounds>>> = {
  'combine weighs rows of a plan': { weighting: 'plan', topK: 3, experts: 5 },
  e4m3: { combineFormat: 'e4m3', hidden: 144, ranks: 3, topK: 3, counts: true },
};

/** Checks of a family over a transport, with these knobs of its own. */
export function checksOf(...how: Parameters<typeof carriedBy>) {
  const carried = carriedBy(...how);
  return {
    rounds: (way: string, all: Readonly<Record<string, Partial<Rounds>>>) =>
      configurationsOf(way, all, carried),
    given: (name: string, how?: Parameters<typeof givenRows>[2]) => givenRows(name, carried, how),
    loss: (name: string, operation: Operation, how?: Loss) => lossOf(name, operation, carried, how),
  };
}

/** A subject for each transport that any family takes. */
export function generalOf(family: Family): CheckSubject[] {
  const kernels = [...familyKernels(family).map(({ name }) => name), 'example_experts', 'other_work'];
  return transports.flatMap((transport) => {
    const configurations = over(family, transport);
    const name = transport === 'windows' ? family.name : `${family.name}_${transport}`;
    return configurations.length === 0 ? [] : [{ name, family: family.name, kernels, configurations }];
  });
}

function over(family: Family, transport: TransportName): CheckConfiguration[] {
  const { name } = family;
  const way = { windows: name, nvshmem: `${name} over nvshmem` }[transport];
  const checks = checksOf(family, transport);
  const here = transport === 'windows' ? { ...wholeRounds, ...splitRounds, ...rowsBack } : roundsOverNvshmem;
  return [
    ...checks.rounds(way, here),
    ...checks.rounds(`${way}, on nodes`, roundsOnNodes),
    ...checks.given(`${way}, nothing between dispatch and combine`),
    ...checks.given(`${way}, rows written again behind combine`, { reusedBehind: 'combine' }),
    ...lossesOf(way, checks),
  ];
}

/** On one node where the family is for that, else on several. */
function lossesOf(way: string, checks: ReturnType<typeof checksOf>): CheckConfiguration[] {
  const changes: readonly Loss[] = [{}, { split: true }, { replicas: 2 }];
  return changes.flatMap((change) => {
    const name = change.split ? `${way}, split` : way;
    const on = (nodes: number) =>
      (['dispatch', 'combine'] as const).flatMap((operation) =>
        checks.loss(name, operation, { ...change, nodes, goesOn: true }),
      );
    const here = on(1);
    return here.length > 0 ? here : on(ranksOfLoss(change.replicas) / (change.replicas ?? 1));
  });
}
