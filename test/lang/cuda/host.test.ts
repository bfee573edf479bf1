import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { type Library, type NativeType, openLibrary } from '../../../src/base/native/index.js';
import { entryName, printCuda } from '../../../src/lang/index.js';
import type { IrModule } from '../../../src/lang/ir.js';
import { download, launch, machineOf } from '../../gpu/sim/harness.js';
import { hostCompiler, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { programCapacity, programKernel, programParams, randomProgram } from '../random-programs.js';
import { edges } from './edges.js';
import { computed, everyOperation } from './every-operation.js';

/** Programs in the kernel language itself; each carries what it must compute. */
const written = Array.from({ length: 150 }, (_, seed) => randomProgram(seed, 14));

describe('printed programs on the host', needing('c++'), () => {
  const folder = temporaryFolder();
  const operations = computed.map((type) => everyOperation(type));
  let library: Library;

  beforeAll(() => {
    writeFileSync(
      join(folder, 'programs.cpp'),
      printForHost([
        ...operations.map(({ module }) => module),
        ...written.map((program) => programKernel(program).ir()),
      ]),
    );
    const warnings = ['-Werror', '-Wno-overflow']; // random constants overflow, as they may
    const options = ['-std=c++17', '-O1', '-ffp-contract=off', ...warnings, '-shared', '-fPIC'];
    execFileSync(hostCompiler()!, [...options, 'programs.cpp', '-o', 'programs.so'], {
      cwd: folder,
      stdio: 'pipe',
      encoding: 'utf8',
    });
    library = openLibrary([join(folder, 'programs.so')], 'it was just compiled');
  });

  function entry(module: IrModule, parameters: readonly NativeType[]): (...args: unknown[]) => void {
    const name = entryName(module);
    const native = library.functions({ [name]: ['void', ...parameters, 'u32'] })[name] as (
      ...args: unknown[]
    ) => void;
    // Last comes the rank.
    return (...args) => native(...args, 0);
  }

  test('compute what programs in the kernel language mean', () => {
    for (const program of written) {
      const module = programKernel(program).ir();
      const scalars = module.entry.params.slice(2).map(({ name }) => program.inputs[name]!);
      const parameters = Object.values(programParams).map((type) =>
        typeof type === 'string' ? type : 'buffer',
      );
      const out = new Uint32Array(programCapacity);
      const floats = new Float32Array(programCapacity);
      entry(module, parameters)(out, floats, ...scalars);
      expect([...out.slice(0, program.out.length)], program.text).toEqual(program.out);
      expect([...floats.slice(0, program.floats.length)], program.text).toEqual(program.floats);
    }
  });

  test.each(operations)(
    'compute every operation of $type on every pair of edge values, as a simulated machine does',
    async ({ type, module, names }) => {
      const native = entry(module, [type, type, 'buffer']);
      const { rank } = machineOf({ ranks: 1, mode: 'fast' });
      const output = rank.device.allocate(8 * names.length, 'output');
      for (const a of edges[type]) {
        for (const b of edges[type]) {
          await launch(rank, module, { block: 1 }, { a: a as number, b: b as number, output });
          const expected = new BigUint64Array(await download(rank, output));
          const actual = new BigUint64Array(names.length);
          native(a, b, actual);
          const wrong = names.filter((_, k) => expected[k] !== actual[k]);
          expect({ a, b, wrong }).toEqual({ a, b, wrong: [] });
        }
      }
    },
  );
});

/** The CUDA of modules, with what host.h writes out in place of PTX. */
function printForHost(modules: readonly IrModule[]): string {
  const parts = printCuda(modules).split('\n\n');
  const own = parts.filter((part) => !part.includes('asm') && !/^struct (bf16|f16) /.test(part));
  const host = readFileSync(new URL('host.h', import.meta.url), 'utf8');
  return [host, ...own].join('\n\n');
}
