/** Windows between processes, the whole way but for the GPU: the driver is a stand-in, its memory is the processes'. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Launch, type LaunchOptions } from '../../../src/net/world/index.js';
import { needing } from '../../needs.js';
import { Lines } from '../../processes.js';
import { transpiled } from '../../tree.js';
import { buildStandIn } from './stand-in.js';

const ranks = 3;

describe('a window of all ranks, a process each', needing('cc'), () => {
  let driver: ReturnType<typeof buildStandIn>;
  beforeAll(() => {
    driver = buildStandIn();
  });
  afterAll(() => {
    vi.unstubAllEnvs();
    driver.remove();
  });

  /** What each rank printed, by rank. */
  async function printed(
    env: Record<string, string>,
    options: Partial<LaunchOptions> = {},
    program = 'window-rank',
  ): Promise<string[]> {
    vi.unstubAllEnvs();
    const own = { FAKE_COUNT: `${ranks}`, ...env, LD_LIBRARY_PATH: driver.folder };
    for (const [name, value] of Object.entries(own)) vi.stubEnv(name, value);
    const stdout = new Lines();
    const launch = await Launch.start({
      ...{ ranks, stdout, timeoutMs: 30_000, prefix: true },
      program: transpiled(`test/gpu/cuda/${program}.ts`),
      ...options,
    });
    const { exitCode } = await launch.finished;
    expect(exitCode).toBe(0);
    return stdout.lines.sort().map((line) => line.replace(/^\[rank \d+\] /, ''));
  }

  it('is not taken from another process later where CUDA IPC is the only way', async () => {
    const alone = { ranks: 2, args: ['again'] };
    expect(await printed({}, alone, 'restarted-rank')).toEqual(
      Array(2).fill(expect.stringMatching(/^UnavailableError: the window of another rank cannot be mapped/)),
    );
  });

  const found = Array<string>(ranks).fill('found 10 11 12');

  it('is mapped by descriptors, where fabric handles are refused too', needing('descriptors'), async () => {
    expect(await printed({ FAKE_VIRTUAL: '1' })).toEqual(found);
    expect(await printed({ FAKE_VIRTUAL: '1', FAKE_FABRIC: '800' })).toEqual(found);
  });

  it('is mapped by fabric handles', async () => {
    expect(await printed({ FAKE_VIRTUAL: '1', HEDDLE_WINDOWS: 'fabric' })).toEqual(found);
  });

  it('spans only the node that ranks say they are of', async () => {
    const env = { FAKE_COUNT: '4', FAKE_VIRTUAL: '1', HEDDLE_WINDOWS: 'fabric' };
    const [first, second] = ['found 10 11 0 0', 'found 0 0 12 13'];
    expect(await printed(env, { ranks: 4, args: ['2'] })).toEqual([first, first, second, second]);
  });

  it('is refused by all ranks where the driver of one refuses the only way', async () => {
    const refusing = { FAKE_FABRIC: '800', FAKE_FABRIC_RANK: '1', HEDDLE_WINDOWS: 'fabric' };
    const lines = await printed({ FAKE_VIRTUAL: '1', ...refusing });
    const why =
      'HEDDLE_WINDOWS is fabric, but cuMemCreate refuses fabric handles with CUDA_ERROR_NOT_PERMITTED (800): ' +
      'no IMEX channel that this process may use (GPU 1)';
    const others = `HeddleError: rank 1 failed at exchanging the windows: ${why}`;
    const beginnings = [others, `UnavailableError: ${why}`, others];
    expect(lines.map((line, rank) => line.slice(0, beginnings[rank]!.length))).toEqual(beginnings);
  });

  for (const [how, env, ...needs] of [
    ['descriptors', {}, 'descriptors'],
    ['fabric handles', { HEDDLE_WINDOWS: 'fabric' }],
  ] as const)
    it(
      `is mapped anew, where it was, when another process owns it: by ${how}`,
      needing(...needs),
      async () => {
        const again = { restarts: 2, rejoin: true };
        const lines = await printed({ FAKE_VIRTUAL: '1', ...env }, again, 'restarted-rank');
        const stayed = ['HEDDLE_OTHER_WINDOW', 'found 10 11 12', 'found 20 21 22', 'found 30 31 32'];
        const refused = 'refused: Error: its windows are not those of the others';
        // Of rank 1: the first process and the last, and between them one that is refused.
        expect(lines).toEqual([...stayed, ...stayed, refused, ...stayed]);
      },
    );

  it('needs a GPU for each rank: ranks that were shown the same one are refused, all of them', async () => {
    for (const line of await printed({ FAKE_COUNT: '1' })) {
      expect(line).toMatch(/^UnavailableError: Ranks 0 and 1 would share a GPU/);
    }
  });
});
