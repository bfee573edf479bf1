/** Every example runs, on simulated GPUs where it needs any, and says what it should. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { needing } from '../needs.js';
import { root, transpiled } from '../tree.js';

/** What it prints, lines of several processes in order. */
function linesOf(program: string, ...args: readonly string[]): string[] {
  const output = execFileSync(process.execPath, [transpiled(program), ...args], { encoding: 'utf8' });
  return output.trim().split('\n').sort();
}
/** What it prints in this process, whose modules are loaded already. That such a program ends by itself, others show as processes. */
async function linesHere(program: string): Promise<string[]> {
  const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
  try {
    await import(join(root, program));
    return log.mock.calls.map(([line]) => String(line)).sort();
  } finally {
    log.mockRestore();
  }
}
const launched = (options: string, program: string, ...args: readonly string[]): string[] =>
  linesOf('src/cli/main.ts', 'run', '--no-prefix', ...options.split(' '), transpiled(program), ...args);
const ofRanks = (ranks: number, line: (rank: number) => string): string[] =>
  Array.from({ length: ranks }, (_, rank) => line(rank));

const alone: Readonly<Record<string, readonly string[]>> = {
  'graph.ts': ofRanks(4, (rank) => `rank ${rank}: 5 replays made 32 of 1`),
  'fp8-rows.ts': ofRanks(2, (rank) => `rank ${rank}: rows came back within 3.1 % of their largest value`),
  'placement.ts': ['the busiest rank got 1.55 × the mean, and gets 1.08 ×'],
  'split-phases.ts': ofRanks(
    4,
    (rank) => `rank ${rank}: experts and the shared one made 4 times its first token`,
  ),
};
const asProcess: typeof alone = {
  'lost-rank.ts': [
    'rank 0 did 6 rounds, the last of them without rank 1',
    'rank 2 did 6 rounds, the last of them without rank 1',
    'the world ended: the GPU of rank 1 has fallen off the bus',
  ],
};

describe('examples', () => {
  test.each(Object.entries(alone))('%s', async (name, lines) => {
    expect(await linesHere(`examples/${name}`)).toEqual(lines);
  });

  test.each(Object.entries(asProcess))('%s', (name, lines) => {
    expect(linesOf(`examples/${name}`)).toEqual(lines);
  });

  test('processes.ts, under heddle run', () => {
    expect(launched('-n 4 --device sim', 'examples/processes.ts')).toEqual(
      ofRanks(4, (rank) => `rank ${rank} of 4: its first token was at ${rank === 0 ? 1 : 2} of them`),
    );
  });

  for (const provider of ['shm', 'tcp;ofi_rxm'] as const)
    test(`fabric.ts, under heddle run, over ${provider}`, needing(provider), () => {
      expect(launched('-n 2', 'examples/fabric.ts', provider)).toEqual(
        ofRanks(2, (rank) => `rank ${rank} got greetings from rank ${1 - rank}`),
      );
    });

  test('each is named by a test', () => {
    const tests = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.test.ts'))
      .map((path) => readFileSync(join(root, 'test', path), 'utf8'))
      .join('\n');
    const forgotten = readdirSync(join(root, 'examples')).filter(
      (name) => !(name in { ...alone, ...asProcess }) && !tests.includes(`examples/${name}`),
    );
    expect(forgotten).toEqual([]);
  });
});
