/**
 * A block's threads in teams, each with a piece of its own: one big block then has as many rows in flight as several
 * small ones, which is what few multiprocessors need to carry the links. Teams never meet, so whatever they run has no
 * barrier of the block.
 */
import { device } from '../../../lang/index.js';

/** How the threads of a block are shared out. */
export interface Teams {
  readonly threads: number;
  readonly teams: number;
}

/** Threads of a team: whole warps. */
export const teamSize = ({ threads, teams }: Teams): number => threads / teams;

const number = { params: {}, returns: 'u32' } as const;

/** Where a thread stands. A team that is alone is the block. */
export const team = (of: Teams) => (of.teams === 1 ? theBlock : oneOf(of));

const theBlock = {
  /** The team, of the block's. */
  index: device(number, (g) => g.u32(0)),
  /** The numbers of the thread and of the warp in the team. */
  thread: device(number, (g) => g.threadIdx.x),
  warp: device(number, (g) => g.warpId),
  threads: device(number, (g) => g.blockDim.x),
};

function oneOf(of: Teams): typeof theBlock {
  const size = teamSize(of);
  const threads = { using: { SIZE: size } };
  const warps = { using: { SIZE: size / 32 } };
  return {
    index: device({ ...number, ...threads }, (g, _, { SIZE }) => g.threadIdx.x / SIZE),
    thread: device({ ...number, ...threads }, (g, _, { SIZE }) => g.threadIdx.x % SIZE),
    warp: device({ ...number, ...warps }, (g, _, { SIZE }) => g.warpId % SIZE),
    threads: device({ ...number, ...threads }, (g, _, { SIZE }) => g.u32(SIZE)),
  };
}
