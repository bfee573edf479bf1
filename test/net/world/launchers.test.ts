/** Ranks on two machines as torchrun and Slurm would start them: their variables, set by hand, are all that says so. */
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { transpiled } from '../../tree.js';
import { freePort } from './circles.js';
import { launchersAt } from './environments.js';

const program = transpiled('test/net/world/programs/place.ts');

/** Nothing of a launcher that may have started the tests. */
const clean = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) =>
      !/^(HEDDLE|SLURM|OMPI|PMI|PMIX|MASTER|TORCHELASTIC)_|^RANK$|WORLD_SIZE$|^LOCAL_RANK$/.test(name),
  ),
);

it.each(Object.entries(launchersAt('127.0.0.1')))('%s: the ranks meet, each a node', async (_, variables) => {
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
