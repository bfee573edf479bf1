/** Mistakes planted in CUDA kernels, each found by the lines of the `.cu` that have its number, and each silent without it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, test } from 'vitest';
import { formatFinding, SimMachine } from '../../../../src/gpu/sim/index.js';
import { type PtxProgram, ptx } from '../../../../src/lang/index.js';
import { needing } from '../../../needs.js';
import { temporaryFolder } from '../../../temporary.js';
import { nvccPtx } from './nvcc.js';

const source = fileURLToPath(new URL('planted.cu', import.meta.url));

describe('planted mistakes', needing('nvcc'), () => {
  const folder = temporaryFolder();
  let program: PtxProgram;

  beforeAll(() => {
    program = ptx(readFileSync(nvccPtx(source, join(folder, 'planted.ptx')), 'utf8'), 'planted.ptx');
  });

  /** All that is found in some schedules. */
  async function findings(name: string, ranks: number, grid: number, block: number): Promise<string> {
    const kernel = program.kernel(name, { params: ['peers', 'rank', 'out'], rankParameter: 'rank' });
    const found = new Set<string>();
    for (let seed = 0; seed < 10; seed++) {
      const machine = SimMachine.create({ ranks, mode: 'checked', seed: `${seed}` });
      const devices = Array.from({ length: ranks }, (_, rank) => machine.device(rank));
      const boxes = devices.map((device) => device.allocateWindow(512, 'box'));
      const peers = BigUint64Array.from({ length: 2 }, (_, i) => BigInt(boxes[i % ranks]!.address));
      await Promise.all(
        devices.map(async (device, rank) => {
          const stream = device.createStream();
          const out = device.allocateWindow(256, 'out');
          const launcher = (await device.load(kernel)).launcher({ grid, block, rank });
          launcher.setBytes('peers', new Uint8Array(peers.buffer));
          launcher.set('out', out.address);
          launcher.launch(stream);
          await stream.synchronize();
        }),
      );
      for (const finding of machine.findings) found.add(formatFinding(finding));
    }
    return [...found].join('\n');
  }

  const lines = readFileSync(source, 'utf8').split('\n');

  test.each([
    [1, 'missing_fence', 2, 1, 1],
    [2, 'relaxed_flag', 2, 1, 1],
    [3, 'relaxed_wait', 2, 1, 1],
    [4, 'narrow_scope', 2, 1, 1],
    [5, 'early_signal', 2, 1, 1],
    [6, 'barrier_in_branch', 1, 1, 32],
    [7, 'no_barrier', 1, 1, 64],
    [8, 'no_proxy_fence', 1, 1, 64],
    [9, 'no_wait', 1, 1, 64],
    [10, 'last_block', 1, 2, 1],
  ])('%i: %s', async (number, name, ranks, grid, block) => {
    expect(await findings(name, ranks, grid, block)).toBe('');
    const found = await findings(`${name}_wrong`, ranks, grid, block);
    const marked = lines.flatMap((line, i) => (line.endsWith(`// ${number}`) ? [i + 1] : []));
    expect(marked.length).toBeGreaterThan(0);
    for (const line of marked) expect(found).toContain(`planted.cu:${line}:`);
  });
});
