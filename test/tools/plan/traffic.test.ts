/** Exact expectations against an enumeration of every choice that a router can make. */
import { describe, expect, it } from 'vitest';
import type { Travel } from '../../../src/moe/families/index.js';
import { ownerOf } from '../../../src/moe/layer/index.js';
import { hits, type RankPlacement, type RoutingLaw, traffic } from '../../../src/tools/plan/index.js';
import { interleaved } from '../../../src/verify/testing/index.js';

/** A token's choice and its probability. */
type Choice = readonly [ids: readonly number[], probability: number];

/** Every ordered draw without replacement in proportion to what is left of the weights. */
function draws(weights: readonly number[], topK: number): Choice[] {
  const next = (ids: readonly number[], p: number): Choice[] => {
    if (ids.length === topK) return [[ids, p]];
    const left = weights.reduce((sum, w, id) => (ids.includes(id) ? sum : sum + w), 0);
    return weights.flatMap((w, id) =>
      ids.includes(id) || w === 0 ? [] : next([...ids, id], (p * w) / left),
    );
  };
  return next([], 1);
}

function subsets(of: readonly number[], size: number): number[][] {
  if (size === 0) return [[]];
  return of.flatMap((first, i) => subsets(of.slice(i + 1), size - 1).map((rest) => [first, ...rest]));
}

interface Case {
  readonly name: string;
  readonly experts: number;
  readonly topK: number;
  readonly place: RankPlacement;
  readonly law: RoutingLaw;
  readonly choices: readonly Choice[];
}

const even = (n: number): number[] => new Array<number>(n).fill(1);

const cases: readonly Case[] = [
  {
    ...{ name: 'uniform', experts: 8, topK: 3, place: { ranks: 4, perNode: 2 } },
    ...{ law: { kind: 'uniform' }, choices: draws(even(8), 3) },
  },
  {
    ...{
      name: 'uniform, ranks with unequal numbers of experts',
      experts: 7,
      topK: 2,
      place: { ranks: 6, perNode: 3 },
    },
    ...{ law: { kind: 'uniform' }, choices: draws(even(7), 2) },
  },
  {
    ...{
      name: 'uniform, experts of two of three nodes',
      experts: 12,
      topK: 3,
      place: { ranks: 6, perNode: 2 },
    },
    law: { kind: 'uniform', nodesAtMost: 2 },
    choices: subsets([0, 1, 2], 2).flatMap((nodes) => {
      const open = nodes.flatMap((node) => [0, 1, 2, 3].map((i) => 4 * node + i));
      const sets = subsets(open, 3);
      return sets.map((ids): Choice => [ids, 1 / (3 * sets.length)]);
    }),
  },
  {
    ...{ name: 'uniform, two copies of each expert', experts: 4, topK: 2, place: { ranks: 8, perNode: 4 } },
    ...{ law: { kind: 'uniform' }, choices: draws(even(8), 2) },
  },
  {
    ...{ name: 'perfect', experts: 10, topK: 3, place: { ranks: 4, perNode: 2 } },
    law: { kind: 'perfect' },
    choices: even(10).map((_, start) => {
      const turn = interleaved({ experts: 10, ranks: 4 });
      return [[0, 1, 2].map((k) => turn[(start + k) % 10]!), 1 / 10];
    }),
  },
];

const ways: readonly Travel[] = (['expert', 'rank', 'rails'] as const).flatMap((rows) =>
  (['row', 'peer'] as const).map((message) => ({ rows, message, metadata: 'rows' }) as const),
);

/** Copies of a token that leave and reach every rank, counted hop by hop. */
function count({ experts, place, choices }: Case, { rows }: Travel) {
  const { ranks, perNode } = place;
  const zero = () => new Array<number>(ranks).fill(0);
  const sums = { nvlink: { out: zero(), in: zero() }, network: { out: zero(), in: zero() } };
  const nodeOf = (rank: number) => Math.floor(rank / perNode);
  const hop = (from: number, to: number, p: number) => {
    if (from === to) return;
    const link = nodeOf(from) === nodeOf(to) ? sums.nvlink : sums.network;
    link.out[from]! += p;
    link.in[to]! += p;
  };
  const shape = { experts: Math.max(experts, ranks), ranks };
  for (let source = 0; source < ranks; source++) {
    for (const [ids, p] of choices) {
      const routes = ids.map((id) => ownerOf(shape, id));
      const owners = [...new Set(routes)];
      if (rows === 'expert') for (const owner of routes) hop(source, owner, p);
      if (rows === 'rank') for (const owner of owners) hop(source, owner, p);
      if (rows === 'rails') {
        for (const node of new Set(owners.map(nodeOf))) {
          const rail = node * perNode + (source % perNode);
          hop(source, node === nodeOf(source) ? source : rail, p);
          const from = node === nodeOf(source) ? source : rail;
          for (const owner of owners.filter((o) => nodeOf(o) === node)) hop(from, owner, p);
        }
      }
    }
  }
  return sums;
}

/** What is asked about so many tokens of rows of so many bytes. */
const loadOf = (
  { experts, topK, place, law }: Omit<Case, 'name' | 'choices'>,
  tokens: number,
  rowBytes = 1,
) => ({
  ...{ hits: hits({ hidden: 1, experts, topK }, place, law), place },
  ...{ tokens, topK, rowBytes, replicas: 1 },
});

describe.each(cases)('$name', (one) => {
  const { topK, place } = one;
  const [tokens, rowBytes] = [5, 100];
  const load = loadOf(one, tokens, rowBytes);

  it.each(ways)('rows to each $rows, a message a $message', (way) => {
    const sums = count(one, way);
    const of = traffic('dispatch', way, load);
    for (const link of ['nvlink', 'network'] as const) {
      const sent = sums[link].out;
      const mean = sent.reduce((sum, n) => sum + n, 0) / place.ranks;
      const most = Math.max(...sent, ...sums[link].in);
      expect(of[link].rows).toBeCloseTo(tokens * mean, 8);
      expect(of.busiest[link].rows).toBeCloseTo(tokens * most, 8);
      expect(of[link].bytes).toBeCloseTo(tokens * mean * (rowBytes + 8 * topK), 6);
    }
    const nodes = place.ranks / place.perNode;
    const peers = way.rows === 'rails' ? nodes - 1 : place.ranks - place.perNode;
    expect(of.network.peers).toBe(peers);
    expect(of.nvlink.peers).toBe(place.perNode - 1);
    expect(of.nvlink.messages).toBe(of.nvlink.rows);
    if (way.message === 'row') expect(of.network.messages).toBe(of.network.rows);
    // Combine carries no ids or weights.
    expect(traffic('combine', way, load).network.bytes).toBeCloseTo(of.network.rows * rowBytes, 6);
  });
});

describe('messages for a peer', () => {
  const way: Travel = { rows: 'rank', message: 'peer', metadata: 'rows' };

  it('are as many as there are other ranks, or rails, with any row of two tokens', () => {
    const one = cases.find(({ name }) => name === 'uniform, ranks with unequal numbers of experts')!;
    const { experts, place, choices } = one;
    const shape = { experts, ranks: place.ranks };
    const sets = new Map<string, number>();
    for (const [ids, p] of choices) {
      const set = [...new Set(ids.map((id) => ownerOf(shape, id)))].sort().join();
      sets.set(set, (sets.get(set) ?? 0) + p);
    }
    const owners = [...sets].map(([set, p]) => [set.split(',').map(Number), p] as const);
    let [ranks, rails] = [0, 0];
    for (const [first, p] of owners) {
      for (const [second, q] of owners) {
        const met = new Set([...first, ...second]);
        const nodes = new Set([...met].map((rank) => Math.floor(rank / place.perNode)));
        for (let source = 0; source < place.ranks; source++) {
          const node = Math.floor(source / place.perNode);
          const there = [...met].filter((rank) => Math.floor(rank / place.perNode) !== node).length;
          ranks += (p * q * there) / place.ranks;
          rails += (p * q * (nodes.size - (nodes.has(node) ? 1 : 0))) / place.ranks;
        }
      }
    }
    const messages = (rows: Travel['rows']) =>
      traffic('dispatch', { ...way, rows }, loadOf(one, 2)).network.messages;
    expect(messages('rank')).toBeCloseTo(ranks, 8);
    expect(messages('expert')).toBeCloseTo(ranks, 8);
    expect(messages('rails')).toBeCloseTo(rails, 8);
  });

  it('perfect routes reach everybody once there are as many as ranks', () => {
    const place = { ranks: 8, perNode: 2 };
    const of = { experts: 16, topK: 2, place, law: { kind: 'perfect' } } as const;
    for (const tokens of [4, 2])
      expect(traffic('dispatch', way, loadOf(of, tokens)).network.messages).toBeCloseTo(1.5 * tokens, 8);
  });
});

describe('what goes beside the rows', () => {
  const place = { ranks: 8, perNode: 4 };
  const load = loadOf({ experts: 16, topK: 2, place, law: { kind: 'uniform' } }, 12, 128);
  const way: Travel = { rows: 'rank', message: 'row', metadata: 'every rank' };
  const rails: Travel = { rows: 'rails', message: 'chunk', metadata: 'every rank', chunk: () => 5 };

  it('ids and weights to every rank are counted for tokens that have no row there, too', () => {
    const { nvlink, network } = traffic('dispatch', way, load);
    expect(nvlink.bytes).toBeCloseTo(nvlink.rows * 128 + 12 * 3 * 16, 8);
    expect(network.bytes).toBeCloseTo(network.rows * 128 + 12 * 4 * 16, 8);
  });

  it('by rails every node hears of every token once, and its ranks of those of all nodes', () => {
    const { nvlink, network } = traffic('dispatch', rails, load);
    expect(network.bytes).toBeCloseTo(network.rows * 128 + 12 * 1 * 16, 8);
    expect(nvlink.bytes).toBeCloseTo(nvlink.rows * 128 + 2 * 12 * 3 * 16, 8);
  });

  it('chunks travel whether or not they hold a row, ids and weights beside rows as messages of their own', () => {
    expect(traffic('dispatch', rails, load).network.messages).toBe(1 * 3);
    expect(traffic('combine', rails, load).network.messages).toBe(1 * 3);
    const rows: Travel = { ...way, chunk: () => 32 };
    const there = traffic('dispatch', rows, load).network;
    expect(there.messages).toBeCloseTo(there.rows + 4, 8);
    const back = traffic('combine', rows, load).network;
    expect(back.messages).toBeCloseTo(back.rows, 8);
  });

  it('replicas share the sending, and each gets all of combine', () => {
    const alone = { there: traffic('dispatch', way, load), back: traffic('combine', way, load) };
    const four = { ...load, replicas: 4 };
    expect(traffic('dispatch', way, four).network.rows).toBeCloseTo(alone.there.network.rows / 4, 8);
    expect(traffic('combine', way, four).network.rows).toBeCloseTo(alone.back.network.rows, 8);
  });

  it('by rails a group gets each row of combine once, and its ranks hand each other sums', () => {
    const [one, four] = [1, 4].map((replicas) => traffic('combine', rails, { ...load, replicas }));
    expect(four!.network.rows).toBeCloseTo(one!.network.rows / 4, 8);
    expect(four!.nvlink.rows).toBeCloseTo((one!.nvlink.rows + 3 * load.tokens) / 4, 8);
  });
});

describe('the shapes that people run', () => {
  it.each([
    [16, 4, 1, 8, 1],
    [32, 6, 2.7, 24, 3],
    [64, 7, 4.6, 56, 7],
  ])('EP%i: %d rows a token by expert, %d by rails', (ranks, byExpert, byRails, peers, railPeers) => {
    const place = { ranks, perNode: 8 };
    const load = loadOf({ experts: 256, topK: 8, place, law: { kind: 'uniform' } }, 1);
    const expert = traffic('combine', { rows: 'expert', message: 'row', metadata: 'rows' }, load).network;
    const rails = traffic('combine', { rows: 'rails', message: 'peer', metadata: 'rows' }, load).network;
    expect(expert.rows).toBeCloseTo(byExpert, 6);
    expect(rails.rows).toBeCloseTo(byRails, 1);
    expect([expert.peers, rails.peers]).toEqual([peers, railPeers]);
  });
});
