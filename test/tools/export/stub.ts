/** The stub of the driver (driver.c), and what it writes down of launches. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { LaunchPlan } from '../../../src/tools/export/index.js';
import { root } from '../../tree.js';

/** Builds the stub in a folder, where a program is to find it. */
export function buildStub(folder: string): void {
  const library = ['-shared', '-fPIC', '-Wl,-soname,libcuda.so.1', '-o', join(folder, 'libcuda.so.1')];
  const strict = ['-std=c11', '-Wall', '-Wextra', '-Wpedantic', '-Werror'];
  execFileSync('cc', [...strict, ...library, join(root, 'test/tools/export/driver.c'), '-ldl']);
  execFileSync('ln', ['-sf', 'libcuda.so.1', join(folder, 'libcuda.so')]);
}

export interface Launched {
  readonly device: number;
  readonly kernel: string;
  readonly parameters: Buffer;
  readonly sizes: readonly number[];
}

/** The launches that the stub's log has. */
export const launchesIn = (log: string): readonly Launched[] =>
  Array.from(
    log.matchAll(/^launch device (\d) kernel (\w+) (.+) parameters (\w+)$/gm),
    ([, device, kernel, sizes, hex]) => ({
      ...{ device: Number(device), kernel: kernel!, parameters: Buffer.from(hex!, 'hex') },
      sizes: Array.from(sizes!.matchAll(/\d+/g), Number),
    }),
  );

/** What every launch of two ranks says is what the plan says, and windows of both are named. `tokens`: of each round, by rank. */
export function requireRounds(
  plan: LaunchPlan,
  launches: readonly Launched[],
  tokens: readonly (readonly number[])[],
): void {
  for (const rank of [0, 1]) {
    const made = launches.filter(({ device }) => device === rank);
    expect(made).toHaveLength(tokens.length * plan.launches.length);
    for (const [i, { kernel, sizes, parameters }] of made.entries()) {
      const of = plan.launches[i % plan.launches.length]!;
      const { entry } = plan.kernels.find(({ name }) => name === of.kernel)!;
      expect(kernel).toBe(entry);
      expect(sizes).toEqual([of.grid, of.block, of.dynamicSharedBytes, of.programmatic ? 1 : 0]);
      expect(parameters).toHaveLength(of.parameterBytes);
      for (const { value, offset } of of.parameters) {
        const number = () => parameters.readUInt32LE(offset);
        const address = (at = 0) => parameters.readBigUInt64LE(offset + 8 * at);
        if (value.from === 'rank') expect(number()).toBe(rank);
        if (value.from === 'limit') expect(number()).toBe(10_000_000);
        if (value.from === 'constant') expect(number()).toBe(value.value);
        if (value.from === 'tokens')
          expect(number()).toBe(tokens[Math.floor(i / plan.launches.length)]![rank]);
        if (value.from === 'window') expect(address(0)).not.toBe(address(1));
        if (value.from === 'window' || value.from === 'buffer') expect(address(0)).not.toBe(0n);
      }
    }
  }
}
