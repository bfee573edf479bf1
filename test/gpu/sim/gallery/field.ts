/** Mistakes of the field that no fence mends: a barrier word that is set back too early, and the routes of another token. */
import { kernel, layout, peers, pointer, field as words } from '../../../../src/lang/index.js';
import { type Exhibit, onOneRank, onWindow, params } from './exhibit.js';

const Gate = layout('Gate', { open: words('u32', 1), through: words('u32', 1) });
const gate = { win: peers(Gate), out: pointer('u32'), epoch: 'u32' } as const;

/**
 * Block 0 lets the others go on by a word that it sets to 1 and, for the next time, back to 0. A block that has not looked by then never
 * goes on. MORI's barrier at the start of combine did that, and combine hung now and then (ROCm/mori 494).
 */
const setBack = (name: string, waits: boolean) =>
  kernel({ name, params: gate, using: { WAITS: waits } }, (g, { win }, { WAITS }) => {
    const gate = win.at(0);
    if (g.blockIdx.x === 0) {
      g.store(gate.open, 1, { order: 'release', scope: 'gpu' });
      if (WAITS) g.awaitEpoch(gate.through, g.gridDim.x - 1, { order: 'acquire', scope: 'gpu', limit: 1000 });
      g.store(gate.through, 0, { order: 'relaxed', scope: 'gpu' });
      g.store(gate.open, 0, { order: 'relaxed', scope: 'gpu' });
    } else {
      let open = g.load(gate.open, { order: 'acquire', scope: 'gpu' });
      while (open !== 1) open = g.load(gate.open, { order: 'acquire', scope: 'gpu' });
      g.atomicAdd(gate.through, 1, { order: 'release', scope: 'gpu' });
    }
  });

/**
 * Rows lie where their tokens' routes say, and come back by the same routes. A caller who gave combine the routes in the order of arrival, as dispatch
 * returns them, got other tokens' rows, or none, without a word (ROCm/mori 475, refused since 546).
 */
const back = (name: string, own: boolean) =>
  kernel({ name, params, using: { OWN: own } }, (g, { input, scratch, out }, { OWN }) => {
    const token = g.threadIdx.x;
    const route = (5 * token + 3) % 32;
    g.store(scratch.at(route), g.load(input.at(token)));
    g.barrier();
    g.store(out.at(token), g.load(scratch.at(OWN ? route : token)));
  });

export const field: readonly Exhibit[] = [
  {
    name: 'barrier word set back before all have seen it',
    ranks: 1,
    run: onWindow(
      { wrong: setBack('set_back', false), right: setBack('set_back_behind_all', true) },
      Gate.bytes,
      { grid: 3, block: 1, rounds: 2 },
    ),
    expect: { kind: 'stuck-wait', location: /open\[0\]/, statements: ['while (open !== 1)'] },
  },
  onOneRank('uninitialised-read')(
    'rows looked for by the routes of other tokens',
    { wrong: back('back_by_arrival', false), right: back('back_by_route', true) },
    { block: 16, at: ['g.store(out.at(token)'], buffer: 'scratch' },
  ),
];
