import { beforeAll, describe, expect, test } from 'vitest';
import { u32 } from '../../../src/lang/build.js';
import { entryName, type IrModule, kernel, pointer, printCuda } from '../../../src/lang/index.js';
import { execute } from '../../gpu/sim/execute.js';
import { compiledBy } from '../../gpu/sim/ptx/compiled.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { held, runCells } from '../holding.js';
import { narrowProgram, programKernel, randomProgram } from '../random-programs.js';
import { gallery } from './gallery.js';
import { architectures, type CompiledCuda, compileCuda, disassemble } from './nvcc.js';

/** The kernel, with a parameter for every name that its own text has. */
function namedByOwnText(module: IrModule): IrModule {
  const text = printCuda(module, { lineDirectives: false }).replace(/\/\/.*|"[^"]*"/g, '');
  const names = [...new Set(text.match(/[A-Za-z_]\w*/g))];
  const { entry } = module;
  const more = names.map((name, i) => ({ id: -1 - i, name, type: u32, mutable: false }));
  return { ...module, entry: { ...entry, params: [...more, ...entry.params] } };
}

describe('what nvcc makes of kernels, on the simulated machine', needing('nvcc'), () => {
  const folder = temporaryFolder();
  const compiled = compiledBy(folder);

  test('values are right in whatever holds them', async () => {
    expect(await runCells(held, 'fast', compiled)).toEqual([]);
  });

  test.each([1, 2, 3, 4, 5, 6])(
    'what is read narrower than a register is as wide as one (%i)',
    async (seed) => {
      const { module, memory, ...program } = narrowProgram(seed, 80);
      const { text, out, floats } = program;
      expect(await execute(program, compiled(module), 'fast', memory), text).toEqual({ out, floats });
    },
  );
});

describe.each(architectures)('nvcc for %s', needing('nvcc'), (architecture) => {
  let compiled: CompiledCuda;

  beforeAll(async () => {
    compiled = await compileCuda(printCuda(gallery), architecture);
  });

  test('compiles every effect without a warning, a spill or a stack', () => {
    const { kernels, warnings } = compiled;
    expect(warnings).toEqual([]);
    expect(kernels.map(({ name }) => name).sort()).toEqual(gallery.map(entryName).sort());
    expect(kernels.filter(({ spillBytes, stackBytes }) => spillBytes + stackBytes !== 0)).toEqual([]);
  });

  test('whatever its text names is a name for what an author declares', async () => {
    const talks = kernel({ name: 'talks', params: { out: pointer('u32') } }, (g, { out }) => {
      g.assert(g.load(out) < 5);
      g.print('word', g.load(out));
    }).ir();
    const modules = [...gallery, talks].map(namedByOwnText);
    const { kernels, warnings } = await compileCuda(printCuda(modules), architecture);
    expect(kernels.length).toBe(modules.length);
    expect(warnings.filter((line) => !/Local memory used/.test(line))).toEqual([]);
  });

  test('compiles random programs without a warning', async () => {
    const modules = Array.from({ length: 20 }, (_, i) => programKernel(randomProgram(1000 + i, 14)).ir());
    const { kernels, warnings } = await compileCuda(printCuda(modules), architecture);
    expect(warnings).toEqual([]);
    expect(kernels.length).toBe(modules.length);
  });

  test('compiles what debugs, without a warning', async () => {
    const talks = kernel({ name: 'talks', params: { out: pointer('u32') } }, (g, { out }) => {
      const word = g.load(out);
      g.assert(word < 5);
      g.print('100 % of "it"', word, g.bits('i32', word), word > 5, g.u64(word), g.f32(word), g.f16(1.5));
      g.print();
    });
    const text = printCuda([talks.ir()]);
    expect(text).toContain(
      String.raw`"rank %u, block %u, thread %u: 100 %% of \"it\" %u %d %s %llu %g %g\n"`,
    );
    // printf takes its values from there.
    const { warnings } = await compileCuda(text, architecture);
    expect(warnings.join('\n')).toMatch(/^(ptxas warning : Local memory used .*)?$/);
  });

  describe('as machine code', needing('nvcc', 'nvdisasm'), () => {
    let code: Map<string, string[]>;
    const instructions = (kernel: string): readonly string[] => code.get(`${kernel}_kernel`)!;
    beforeAll(async () => {
      code = await disassemble(compiled.cubin);
    });

    test('moves 16 bytes as one access, in global memory as in shared', () => {
      const lines = instructions('accesses_v16');
      const accesses = lines.filter((line) => /^(@\S+ )?(LD|ST)[GS]?\./.test(line));
      expect(accesses.filter((line) => !/^(@\S+ )?(LD|ST)[GS]\.\S*128\b/.test(line))).toEqual([]);
      // 14 forms of each in global memory; weak ones of shared memory that the compiler could not merge.
      expect(accesses.length).toBeGreaterThanOrEqual(30);
    });

    test('hints that streamed data need not stay in the first cache', () => {
      const lines = instructions('reduction_bf16');
      const loads = lines.filter((line) => /^(@\S+ )?LDG/.test(line));
      expect(loads.length).toBeGreaterThan(0);
      expect(loads.filter((line) => !/LDG\.E\.NA\.128\b/.test(line))).toEqual([]);
    });

    test('reaches windows by global accesses and without a copy of their addresses', () => {
      const lines = instructions('windows');
      expect(lines.filter((line) => /^(@\S+ )?(LD|ST|LDL|STL)\./.test(line))).toEqual([]);
      expect(lines.some((line) => /STG\.E\.STRONG\.SYS/.test(line))).toBe(true);
    });

    test('needs no device-wide barrier to start a bulk copy', () => {
      const lines = instructions('bulk');
      expect(lines.some((line) => line.includes('UBLKCP'))).toBe(true);
      expect(lines.filter((line) => /MEMBAR\.\S*(GPU|SYS)/.test(line))).toEqual([]);
    });

    test('multiplies matrices on the tensor cores, from rows that go round the registers', () => {
      const lines = instructions('matrices');
      const count = (what: RegExp) => lines.filter((line) => what.test(line)).length;
      expect(count(/LDGSTS.*128/)).toBe(1);
      expect(count(/LDSM.*M88\.4/)).toBe(1);
      expect(count(/HMMA\.16816\.F32\.BF16/)).toBe(2);
    });

    test('counts without waiting for the old value where nobody reads it', () => {
      const lines = instructions('atomics_u64');
      expect(lines.some((line) => /REDG\.E\.ADD/.test(line))).toBe(true);
    });
  });
});
