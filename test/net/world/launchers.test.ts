/** Ranks on two machines as torchrun and Slurm would start them: their variables, set by hand, are all that says so. */
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { transpiled } from '../../tree.js';
import { freePort } from './circles.js';

const program = transpiled('test/net/world/programs/place.ts');

/** Nothing of a launcher that may have started the tests. */
const clean = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) =>
      !/^(HEDDLE|SLURM|OMPI|PMI|PMIX|MASTER|TORCHELASTIC)_|^RANK$|WORLD_SIZE$|^LOCAL_RANK$/.test(name),
  ),
);

type Variables = Readonly<Record<string, string>>;

const launchers: Record<string, (rank: number, port: number) => Variables> = {
  'torchrun --nnodes 2 --nproc-per-node 1': (rank, port) => ({
    ...{ RANK: `${rank}`, WORLD_SIZE: '2', LOCAL_RANK: '0', LOCAL_WORLD_SIZE: '1' },
    ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: `${port - 1000}` },
    ...{ TORCHELASTIC_RUN_ID: 'job', TORCHELASTIC_RESTART_COUNT: '0' },
  }),
  'srun --nodes 2 --ntasks-per-node 1': (rank) => ({
    ...{ SLURM_PROCID: `${rank}`, SLURM_LOCALID: '0', SLURM_STEP_NUM_TASKS: '2', SLURM_STEP_NUM_NODES: '2' },
    ...{ SLURM_STEP_NODELIST: 'localhost,other', SLURM_JOB_ID: `${process.pid}`, SLURM_STEP_ID: '0' },
  }),
  'by hand': (rank, port) => ({
    ...{ HEDDLE_RANK: `${rank}`, HEDDLE_WORLD: '2', HEDDLE_ADDRESS: `127.0.0.1:${port}` },
  }),
};

it.each(Object.entries(launchers))('%s: the ranks meet, each a node', async (_, variables) => {
  const port = await freePort();
  const said = await Promise.all(
    [0, 1].map(async (rank) => {
      const own = { HEDDLE_DEVICE: 'sim', HEDDLE_SECRET: 'known to all ranks alone' };
      const env = { ...clean, ...own, ...variables(rank, port) };
      const child = spawn(process.execPath, [program], { env });
      const [out, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
      return out === '' ? errors : (JSON.parse(out) as unknown);
    }),
  );
  const met = ['rank 0', 'rank 1'];
  expect(said).toEqual([0, 1].map((rank) => ({ rank, ranks: 2, nodes: 2, met })));
});
