import { describe, expect, test } from 'vitest';
import { printCuda } from '../../../src/lang/cuda/index.js';
import { gallery } from './gallery.js';
import { architectures, compileCuda, disassemble, findTool } from './nvcc.js';
import { randomProgram } from './random-ir.js';

const nvcc = findTool('nvcc');
const nvdisasm = nvcc === null ? null : findTool('nvdisasm');

describe.skipIf(nvcc === null).each(architectures)('nvcc for %s', (architecture) => {
  test('compiles every effect without a warning, a spill or a stack', async () => {
    const { kernels, warnings } = await compileCuda(nvcc!, printCuda(gallery), architecture);
    expect(warnings).toEqual([]);
    expect(kernels.map(({ name }) => name).sort()).toEqual(gallery.map(({ name }) => name).sort());
    expect(kernels.filter(({ spillBytes, stackBytes }) => spillBytes + stackBytes !== 0)).toEqual([]);
  });

  test('compiles random programs without a warning', async () => {
    const modules = Array.from({ length: 20 }, (_, i) => randomProgram(`random${i}`, 1000 + i));
    const { kernels, warnings } = await compileCuda(nvcc!, printCuda(modules), architecture);
    expect(warnings).toEqual([]);
    expect(kernels.length).toBe(modules.length);
  });
});

describe.skipIf(nvdisasm === null).each(architectures)('machine code for %s', (architecture) => {
  async function instructions(name: string): Promise<string[]> {
    const module = gallery.find((candidate) => candidate.name === name)!;
    const { cubin } = await compileCuda(nvcc!, printCuda(module), architecture);
    return disassemble(nvdisasm!, cubin);
  }

  test('moves 16 bytes as one access, in global memory as in shared', async () => {
    const code = await instructions('accesses_v16');
    const accesses = code.filter((line) => /^(@\S+ )?(LD|ST)[GS]?\./.test(line));
    expect(accesses.filter((line) => !/^(@\S+ )?(LD|ST)[GS]\.\S*128\b/.test(line))).toEqual([]);
    // 14 forms of each in global memory; weak ones of shared memory that the compiler could not merge.
    expect(accesses.length).toBeGreaterThanOrEqual(30);
  });

  test('hints that streamed data need not stay in the first cache', async () => {
    const code = await instructions('reduction_bf16');
    const loads = code.filter((line) => /^(@\S+ )?LDG/.test(line));
    expect(loads.length).toBeGreaterThan(0);
    expect(loads.filter((line) => !/LDG\.E\.NA\.128\b/.test(line))).toEqual([]);
  });

  test('reaches windows by global accesses and without a copy of their addresses', async () => {
    const code = await instructions('windows');
    expect(code.filter((line) => /^(@\S+ )?(LD|ST|LDL|STL)\./.test(line))).toEqual([]);
    expect(code.some((line) => /STG\.E\.STRONG\.SYS/.test(line))).toBe(true);
  });

  test('needs no device-wide barrier to start a bulk copy', async () => {
    const code = await instructions('bulk');
    expect(code.some((line) => line.includes('UBLKCP'))).toBe(true);
    expect(code.filter((line) => /MEMBAR\.\S*(GPU|SYS)/.test(line))).toEqual([]);
  });

  test('counts without waiting for the old value where nobody reads it', async () => {
    const code = await instructions('atomics_u64');
    expect(code.some((line) => /REDG\.E\.ADD/.test(line))).toBe(true);
  });
});
