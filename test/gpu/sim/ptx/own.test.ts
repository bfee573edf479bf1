/** Kernels in TypeScript, printed as CUDA and compiled to PTX: they do on the simulated machine what their own form does there. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { formatFinding, isPtx, type KernelModule } from '../../../../src/gpu/sim/index.js';
import {
  compileOptions,
  dynamicSharedBytes,
  entryName,
  type IrModule,
  type PtxKernel,
  parameterAbi,
  printCuda,
  ptx,
} from '../../../../src/lang/index.js';
import { checkSubjects, runOnce } from '../../../../src/verify/check/index.js';
import { cudaTool, needing } from '../../../needs.js';

describe('what nvcc makes of kernels', needing('nvcc'), () => {
  const folder = mkdtempSync(join(tmpdir(), 'heddle-own-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const known = new Map<IrModule, PtxKernel>();

  /** The same kernel in PTX, launched alike. */
  function compiled(module: KernelModule): KernelModule {
    if (isPtx(module)) return module;
    let kernel = known.get(module);
    if (kernel === undefined) {
      const base = join(folder, `${module.name}-${known.size}`);
      writeFileSync(`${base}.cu`, printCuda(module));
      const { status, stderr } = spawnSync(
        cudaTool('nvcc')!,
        ['-ptx', ...compileOptions('sm_90a'), '-o', `${base}.ptx`, `${base}.cu`],
        { encoding: 'utf8' },
      );
      expect(status, stderr).toBe(0);
      kernel = ptx(readFileSync(`${base}.ptx`, 'utf8'), `${module.name}.ptx`).kernel(entryName(module), {
        params: parameterAbi(module).map(({ name }) => name),
        rankParameter: 'rank',
        sharedBytes: dynamicSharedBytes(module.shared),
        name: module.name,
      });
      known.set(module, kernel);
    }
    return kernel;
  }

  test.each([
    'push, 2 ranks',
    'push, a rank lost in dispatch',
    'bulk, 2 ranks',
    'hybrid, 2 ranks',
    'portable by proxy, 2 ranks',
    'ceilings, transfers between barriers',
  ])('%s', async (name) => {
    const configuration = checkSubjects
      .flatMap(({ configurations }) => configurations)
      .find((one) => one.name === name);
    expect(configuration).toBeDefined();
    for (const seed of ['random-0', 'priority-1']) {
      const { findings } = await runOnce(configuration!, {
        seed,
        schedule: seed.startsWith('random') ? 'random' : 'priority',
        substitute: compiled,
      });
      expect(findings.map(formatFinding)).toEqual([]);
    }
  });
});
