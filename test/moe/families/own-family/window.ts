/**
 * The window of the naive family, the same layout on every rank of a node.
 *
 * Who writes what, and why it may be written again in the next round:
 *
 * | section | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | rounds | dispatch of its own rank | its own launches | launches of a stream follow each other |
 * | dispatched, combined | each peer its word | the owner's dispatch / combine | they only grow; waits are ≥ |
 * | experts, weights, payloads | dispatch of every source | the owner's experts | a source dispatches after its combine, whose head waited for the owner's combine, which is behind the owner's experts |
 * | output | the owner's experts | the sources' combine | the next experts are behind the next dispatch, whose tail waited for the sources' dispatch, which is behind their combine |
 * | failure | its own rank | its own host | the host clears it by a mask |
 */

import { field, layout } from '../../../../src/lang/index.js';
import { receivedSections } from '../../../../src/moe/families/common/received.js';
import { failureField } from '../../../../src/moe/families/common/waits.js';
import type { Layer } from '../../../../src/moe/layer/index.js';

export const naiveWindow = (layer: Layer) =>
  layout('naive window', {
    /** The round that this rank has dispatched last. */
    rounds: field('u32', [1]),
    /** [rank]: the round that it has dispatched, and the one whose experts are done there. */
    dispatched: field('u32', [layer.ranks]),
    combined: field('u32', [layer.ranks]),
    failure: failureField,
    ...receivedSections(layer),
  });

export type NaiveWindow = ReturnType<typeof naiveWindow>;
