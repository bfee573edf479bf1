/** The traffic of one phase, in expectation: rows, bytes, messages and peers, over NVLink and over the network. */
import type { Travel } from '../../moe/families/index.js';
import { type Hits, nodesOf, type RankPlacement } from './routing.js';

/** Messages of chunks that each peer gets; 0 where nothing goes by chunks. */
export const chunksOf = ({ chunk }: Travel, tokens: number): number =>
  chunk === undefined ? 0 : Math.ceil(tokens / chunk(tokens));

/** The rows of a phase, and where they go. */
export interface Load {
  readonly hits: Hits;
  readonly place: RankPlacement;
  /** Tokens of a rank. */
  readonly tokens: number;
  readonly topK: number;
  readonly rowBytes: number;
  /** Ranks that hold the same tokens: each sends its share, and all get every row back. */
  readonly replicas: number;
}

export type RoundHalf = 'dispatch' | 'combine';

export type Traffic = ReturnType<typeof traffic>;

/** One phase: means over ranks, and the busiest rank's busier direction, which bounds the phase. */
export function traffic(phase: RoundHalf, way: Travel, load: Load) {
  const { place, topK, rowBytes } = load;
  // Combine sends the rows of dispatch back, those of a replicated token to every replica; by rails to the one that sent it,
  // which hands the others its sum.
  const rails = way.rows === 'rails';
  const tokens = phase === 'dispatch' || rails ? load.tokens / load.replicas : load.tokens;
  const rows = rowsOf(
    way.rows,
    way.rows === 'expert' ? load.hits.routes : load.hits.ranks,
    load.hits.nodes,
    place,
  );
  const met = way.message === 'peer' ? reachOf(way, load, tokens) : rows;
  const toAll = phase === 'dispatch' && way.metadata === 'every rank';
  const chunks = chunksOf(way, tokens);
  const peers = {
    nvlink: place.perNode - 1,
    network: rails ? nodesOf(place) - 1 : place.ranks - place.perNode,
  };
  /** The traffic through one side of a GPU or of its NIC. */
  const flow = (link: 'nvlink' | 'network', pick: (values: readonly number[]) => number) => {
    const handed = phase === 'combine' && rails && link === 'nvlink' ? tokens * (load.replicas - 1) : 0;
    const moved = tokens * pick(rows.map((one) => one[link])) + handed;
    // Inside a node a rail passes on the ids of every node's tokens, as it passes on their rows.
    const sources = rails && link === 'nvlink' ? nodesOf(place) : 1;
    const told = toAll ? tokens * peers[link] * sources : phase === 'dispatch' ? moved : 0;
    const messages = {
      row: moved + (toAll ? peers.network * chunks : 0),
      peer: pick(met.map((one) => one[link])),
      chunk: peers.network * chunks,
    };
    return {
      rows: moved,
      // Rows, and ids and weights beside them.
      bytes: moved * rowBytes + told * 8 * topK,
      messages: link === 'nvlink' ? moved : messages[way.message],
      // Ranks that must hear, if only that there is nothing for them.
      peers: peers[link],
    };
  };
  const both = (pick: (values: readonly number[]) => number) => ({
    nvlink: flow('nvlink', pick),
    network: flow('network', pick),
  });
  // As much arrives as leaves, so the mean of both directions is the mean of either.
  const mean = both((values) => values.reduce((sum, value) => sum + value, 0) / values.length);
  return { ...mean, busiest: both((values) => Math.max(...values)) };
}

/** Messages where one holds all rows for a peer: a peer is sent one if any token has a row for it. */
function reachOf({ rows }: Travel, { hits, place }: Load, tokens: number) {
  const { ranks, nodes } = hits.reach(tokens);
  return rowsOf(rows === 'rails' ? 'rails' : 'rank', ranks, nodes, place);
}

/** Rows that each rank sends, and rows that each gets, one entry for each, where every rank has one token. */
function rowsOf(
  rows: Travel['rows'],
  toRanks: Float64Array,
  toNodes: Float64Array,
  place: RankPlacement,
): readonly { readonly nvlink: number; readonly network: number }[] {
  const { ranks, perNode } = place;
  const nodes = nodesOf(place);
  const total = toRanks.reduce((sum, w) => sum + w, 0);
  const allNodes = toNodes.reduce((sum, h) => sum + h, 0);
  return Array.from({ length: ranks }, (_, rank) => {
    const node = Math.floor(rank / perNode);
    const here = toRanks.subarray(node * perNode, (node + 1) * perNode).reduce((sum, w) => sum + w, 0);
    const mine = toRanks[rank]!;
    if (rows === 'rails') {
      // A rank forwards what its rail brought from every other node as it sends its own tokens inside the node.
      return [
        { nvlink: nodes * (here - mine), network: allNodes - toNodes[node]! },
        { nvlink: nodes * (perNode - 1) * mine, network: (nodes - 1) * toNodes[node]! },
      ];
    }
    return [
      { nvlink: here - mine, network: total - here },
      { nvlink: (perNode - 1) * mine, network: (ranks - perNode) * mine },
    ];
  }).flat();
}
