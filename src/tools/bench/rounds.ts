/** The benchmark of rounds, `heddle bench`. */
import { extname, join } from 'node:path';
import { ArgumentError } from '../../base/errors.js';
import { requirePlaces } from '../../moe/layer/index.js';
import { type Members, measureRounds, type Point, type RoundsPlan } from './program.js';
import type { Bench } from './run.js';
import { footnote, heading, roundColumns } from './table.js';
import { warmups } from './timing.js';
import { workload } from './workload.js';

export const roundBench: Bench<RoundsPlan, Point, Members> = {
  format: 'heddle-bench/1',
  worker: join(import.meta.dirname, `worker${extname(import.meta.filename)}`),
  setting({ workload: wanted, tokens, places, nodes, world }) {
    const of = workload(wanted);
    for (const one of tokens)
      if (one % of.replicas !== 0)
        throw new ArgumentError('tokens', one, `a multiple of replicas, ${of.replicas}, which share them`);
    if (places !== undefined) requirePlaces('places', places, of);
    return { ranks: of.ranks, seed: of.seed, nodes, world };
  },
  members: ({ workload: of, world, nodes, iterations, device, places }) => ({
    method: {
      ...{ world, nodes, iterations },
      warmups: device === 'cuda' ? warmups : 0,
      // How many places experts had in the rounds that were also measured with a placement; absent where none were.
      ...(places !== undefined && { places }),
    },
    workload: workload(of),
    barrier: null,
  }),
  measure: measureRounds,
  heading,
  columns: roundColumns,
  lines: (point) => [point],
  foot: footnote,
};
