import { describe, expect, test } from 'vitest';
import {
  compileOptions,
  entryName,
  kernel,
  parameterAbi,
  pointer,
  printCuda,
} from '../../../src/lang/index.js';
import type { IrModule, Stmt } from '../../../src/lang/ir.js';
import type { IrType } from '../../../src/lang/types.js';
import { needing } from '../../needs.js';
import * as ir from './ir-builder.js';
import { compileCuda } from './nvcc.js';

/** The kernel's own lines, without prelude and signature. */
function body(module: IrModule, options = {}): string[] {
  const text = printCuda(module, options);
  return text.slice(text.indexOf('__global__')).split('\n').slice(2, -2);
}

test('a kernel reads as a person would have written it', () => {
  const x = ir.param('x', ir.pointer('f32'));
  const sums = ir.param('sums', ir.pointer('f32'));
  const count = ir.param('count', ir.value('u32'));
  const sum = ir.variable('sum', ir.value('f32'), true);
  const value = ir.variable('value', ir.value('f32'));
  const module = ir.module(
    'row_sums',
    [x, sums, count],
    [
      ir.define(sum, ir.f32(0)),
      ir.count(ir.read(count), (i) => [
        ir.effect(ir.load(ir.offset(ir.read(x), i), { cache: 'stream' }), value),
        ir.assign(sum, ir.binary('+', ir.read(sum), ir.read(value))),
      ]),
      ir.when(ir.binary('==', ir.builtin('laneId'), ir.u32(0)), [
        ir.effect(ir.store(ir.offset(ir.read(sums), ir.builtin('warpId')), ir.read(sum))),
      ]),
    ],
    { specialization: 'HIDDEN=7168' },
  );
  expect(printCuda(module)).toMatchInlineSnapshot(`
    "// row_sums with HIDDEN=7168

    using i32 = int;
    using u32 = unsigned int;
    using u64 = unsigned long long;
    using f32 = float;

    static __device__ __forceinline__ f32 load_stream(const f32* p) {
      f32 value;
      asm volatile("ld.global.L1::no_allocate.f32 %0, [%1];"
                   : "=f"(value)
                   : "l"(__cvta_generic_to_global(p))
                   : "memory");
      return value;
    }

    static __device__ __forceinline__ void store(f32* p, f32 value) {
      asm volatile("st.global.f32 [%0], %1;"
                   :
                   : "l"(__cvta_generic_to_global(p)), "f"(value)
                   : "memory");
    }

    extern "C" __global__ void __launch_bounds__(256, 1)
    row_sums_kernel(f32* x, f32* sums, u32 count, u32 rank) {
      f32 sum = 0.0f;
      for (u32 i = 0u; i < count; ++i) {
        const f32 value = load_stream(x + i);
        sum += value;
      }
      if (threadIdx.x % 32u == 0u) {
        store(sums + threadIdx.x / 32u, sum);
      }
    }
    "
  `);
});

test('an effect that fills registers happens once', () => {
  const filled = kernel({ name: 'filled', params: { out: pointer('u32') } }, (g, { out }) => {
    const taken = g.registers('u32', 4, g.atomicAdd(out, 1, { order: 'relaxed', scope: 'gpu' }));
    for (const i of g.unroll(4)) g.store(out.at(i), taken[i]!);
  });
  expect(body(filled.ir(), { lineDirectives: false }).slice(0, 2)).toEqual([
    '  const u32 before = atomic_add_relaxed_gpu(out, 1u);',
    '  u32 taken[4] = {before, before, before, before};',
  ]);
});

describe('names', () => {
  test('of the author are kept, unless something else has them already', () => {
    const out = ir.param('out', ir.pointer('u32'));
    const names = ['tokens', 'int', 'store', 'rank', 'tokens', 'größe', '$0', '__shared__'];
    const variables = names.map((name) => ir.variable(name, ir.value('u32')));
    const statements = variables.flatMap((v, i): Stmt[] => [
      ir.define(v, ir.u32(i)),
      ir.effect(ir.store(ir.read(out), ir.read(v))),
    ]);
    const printed = body(ir.module('names', [out], statements));
    expect(printed.filter((line) => line.includes('const')).map((line) => line.split(' ')[4])).toEqual([
      'tokens',
      'int_2',
      'store_2',
      'rank_2',
      'tokens_2',
      'gr_e',
      'n0',
      'shared_',
    ]);
  });

  test('of kernels become C++ names', () => {
    expect(entryName(ir.module('one-sided/dispatch', [], []))).toBe('one_sided_dispatch_kernel');
  });
});

describe('#line', () => {
  const at = (statement: Stmt, start: number, source = 0): Stmt => ({
    ...statement,
    span: { start, end: start, source },
  });
  const barrier = ir.effect({ op: 'barrier' });
  const fence = ir.effect({ op: 'fence', order: 'acq_rel', scope: 'sys' });
  const module = ir.module(
    'lines',
    [],
    [
      at(barrier, 10),
      at(fence, 11),
      at(barrier, 11),
      at(ir.when(ir.binary('<', ir.builtin('blockIdx'), ir.u32(3)), [at(barrier, 21), at(fence, 30, 1)]), 20),
      at(fence, 31, 1),
      at(barrier, 32, 2),
    ],
    { sources: [ir.source('src/moe/families/a.ts'), ir.source('src/moe/families/b.ts'), ir.source('')] },
  );

  test('stands where the compiler would otherwise count wrong, and nowhere else', () => {
    expect(body(module)).toEqual([
      '#line 11 "src/moe/families/a.ts"',
      '  __syncthreads();',
      '  fence_sys();',
      '#line 12',
      '  __syncthreads();',
      '#line 21',
      '  if (blockIdx.x < 3u) {',
      '    __syncthreads();',
      '#line 31 "src/moe/families/b.ts"',
      '    fence_sys();',
      '  }',
      '#line 32',
      '  fence_sys();',
      '  __syncthreads();',
    ]);
  });

  test('can be left out', () => {
    expect(printCuda(module, { lineDirectives: false })).not.toContain('#line');
  });

  test('leads the compiler back to the TypeScript', needing('nvcc'), async () => {
    const text = printCuda(module).replace('fence_sys();\n  }', 'oops();\n  }');
    await expect(compileCuda(text, 'sm_90a')).rejects.toThrow(/src\/moe\/families\/b\.ts\(31\).*oops/);
  });
});

describe('parameterAbi', () => {
  const layout = ir.layout('Window', [{ name: 'flags', type: 'u32', length: 8 }]);
  const peers: IrType = { kind: 'peers', layout };
  const params = [
    ir.param('count', ir.value('u32')),
    ir.param('rows_0', ir.pointer('v16')),
    ir.param('rows_1', ir.pointer('v16')),
    ir.param('flag', ir.value('bool')),
    ir.param('win', peers),
    ir.param('scale', ir.value('f32')),
    ir.param('bytes', ir.value('u64')),
    ir.param('last', ir.value('i32')),
  ];
  const module = ir.module('abi', params, []);

  test('names every parameter as the host does, and the rank last', () => {
    const abi = parameterAbi(module);
    expect(abi.map(({ type }) => type)).toEqual([...params.map(({ type }) => type), ir.value('u32')]);
    expect(abi.map(({ type, ...where }) => where)).toEqual([
      { name: 'count', kind: 'scalar', offset: 0, bytes: 4 },
      { name: 'rows_0', kind: 'pointer', offset: 8, bytes: 8 },
      { name: 'rows_1', kind: 'pointer', offset: 16, bytes: 8 },
      { name: 'flag', kind: 'scalar', offset: 24, bytes: 1 },
      { name: 'win', kind: 'peers', offset: 32, bytes: 576 },
      { name: 'scale', kind: 'scalar', offset: 608, bytes: 4 },
      { name: 'bytes', kind: 'scalar', offset: 616, bytes: 8 },
      { name: 'last', kind: 'scalar', offset: 624, bytes: 4 },
      { name: 'rank', kind: 'rank', offset: 628, bytes: 4 },
    ]);
  });

  test('is where the compiler puts the parameters', needing('nvcc'), async () => {
    const { cubin } = await compileCuda(printCuda(module), 'sm_90a');
    const expected = parameterAbi(module).map(({ offset, bytes }) => ({ offset, bytes }));
    expect(kernelParameters(cubin)).toEqual(expected);
  });
});

/** What the cubin says of its kernel's parameters: attributes EIATTR_KPARAM_INFO of section .nv.info. */
function kernelParameters(cubin: Uint8Array): { offset: number; bytes: number }[] {
  const bytes = Buffer.from(cubin);
  const marker = Buffer.from([0x04, 0x17, 0x0c, 0x00]);
  const found: { ordinal: number; offset: number; bytes: number }[] = [];
  for (let at = bytes.indexOf(marker); at >= 0; at = bytes.indexOf(marker, at + 16)) {
    found.push({
      ordinal: bytes.readUInt16LE(at + 8),
      offset: bytes.readUInt16LE(at + 10),
      // The size is in the word's upper bits.
      bytes: bytes.readUInt32LE(at + 12) >>> 18,
    });
  }
  return found
    .sort((a, b) => a.ordinal - b.ordinal)
    .map(({ offset, bytes: size }) => ({ offset, bytes: size }));
}

test('compile options forbid every freedom with f32 that the language does not have', () => {
  expect(compileOptions('sm_100a')).toEqual(
    expect.arrayContaining([
      '--gpu-architecture=sm_100a',
      '--std=c++17',
      '--fmad=false',
      '--ftz=false',
      '--prec-div=true',
    ]),
  );
});

describe('what cannot be printed is refused', () => {
  const out = ir.param('out', ir.pointer('f32'));

  test('shared memory beyond what a block has', () => {
    const tile = ir.shared('tile', 'v16', 15000);
    const fill = ir.effect(ir.store(ir.read(tile.variable), ir.pack('u32', [0, 1, 2, 3].map(ir.u32))));
    const module = ir.module('big', [], [fill], { shared: [tile] });
    expect(() => printCuda(module)).toThrow(
      /big declares 240000 bytes of shared memory; a block has at most 232448/,
    );
  });

  test('atomics on types that have none', () => {
    const add = ir.effect({
      op: 'atomicAdd',
      pointer: ir.read(out),
      value: ir.f32(1),
      order: 'relaxed',
      scope: 'gpu',
    });
    expect(() => printCuda(ir.module('atomic', [out], [add]))).toThrow(
      /atomics work on i32, u32 and u64, not on f32/,
    );
  });
});
