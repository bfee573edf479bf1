import { describe, expect, test } from 'vitest';
import {
  compileOptions,
  entryName,
  field,
  type IrModule,
  kernel,
  layout,
  list,
  parameterAbi,
  peers,
  pointer,
  printCuda,
} from '../../../src/lang/index.js';
import { rewriteStatements } from '../../../src/lang/walk.js';
import { needing } from '../../needs.js';
import { compileCuda } from './nvcc.js';

const empty = kernel({ name: 'empty', params: {} }, () => {}).ir();

/** The kernel's own lines, without prelude and signature. */
function body(module: IrModule, options = {}): string[] {
  const text = printCuda(module, options);
  return text.slice(text.indexOf('__global__')).split('\n').slice(2, -2);
}

test('a kernel reads as a person would have written it', () => {
  const sums = kernel(
    {
      name: 'row_sums',
      params: { x: pointer('f32'), sums: pointer('f32'), count: 'u32' },
      ...{ using: { HIDDEN: 7168 }, maxThreads: 256 },
    },
    (g, { x, sums, count }) => {
      let sum = g.f32(0);
      for (let i = g.u32(0); i < count; i += 1) {
        const value = g.load(x.at(i), { cache: 'stream' });
        sum += value;
      }
      if (g.laneId === 0) g.store(sums.at(g.warpId), sum);
    },
  );
  expect(printCuda(sums.ir(), { lineDirectives: false })).toMatchInlineSnapshot(`
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
    const names = ['tokens', 'int', 'store', 'rank', 'größe', '$0', '__shared__'];
    const text = ['tokens', ...names].map((name) => `{ const ${name} = g.load(out); g.store(out, ${name}); `);
    const made = new Function(`return (g, { out }) => {${text.join('')}${'}'.repeat(text.length)}}`)();
    const printed = body(kernel({ name: 'names', params: { out: pointer('u32') } }, made).ir(), {
      lineDirectives: false,
    });
    expect(printed.flatMap((line) => /const u32 (\w+)/.exec(line)?.[1] ?? [])).toEqual([
      ...['tokens', 'tokens_2', 'int_2', 'store_2', 'rank_2', 'gr_e', 'n0', 'shared_'],
    ]);
  });

  test('of kernels become C++ names', () => {
    expect(entryName({ ...empty, name: 'one-sided/dispatch' })).toBe('one_sided_dispatch_kernel');
  });
});

describe('#line', () => {
  const written = kernel({ name: 'lines', params: {} }, (g) => {
    g.barrier();
    g.fence('sys');
    g.barrier();
    if (g.blockIdx.x < 3) {
      g.barrier();
      g.fence('sys');
    }
    g.fence('sys');
    g.barrier();
  }).ir();
  /** Of each statement: its source, and where it stands there. */
  const places = [10, 11, 11, 20, 21, 130, 131, 232].values();
  const moved = rewriteStatements(written.entry.body, (stmt) => {
    const place = places.next().value!;
    const start = place % 100;
    return [{ ...stmt, span: { start, end: start, source: Math.floor(place / 100) } }];
  });
  /** Sources whose offset n is line n + 1. */
  const sources = ['src/moe/families/a.ts', 'src/moe/families/b.ts', ''].map((file) => ({
    ...{ text: '', file, piece: () => '' },
    position: (start: number) => ({ line: start + 1, column: 1 }),
  }));
  const module = { ...written, sources, entry: { ...written.entry, body: moved } };

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
  const params = {
    count: 'u32',
    rows: list(pointer('v16'), 2),
    flag: 'bool',
    win: peers(layout('Window', { flags: field('u32', 8) })),
    scale: 'f32',
    bytes: 'u64',
    last: 'i32',
  } as const;
  const module = kernel({ name: 'abi', params }, () => {}).ir();

  test('names every parameter as the host does, and the rank last', () => {
    const abi = parameterAbi(module);
    const types = module.entry.params.map(({ type }) => type);
    expect(abi.map(({ type }) => type)).toEqual([...types, { kind: 'value', name: 'u32' }]);
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
  const counts = kernel({ name: 'counts', params: { out: pointer('u32') } }, (g, { out }) => {
    const tile = g.shared('v16', 1);
    g.store(tile.as('u32'), g.atomicAdd(out, 1, { order: 'relaxed', scope: 'gpu' }));
  }).ir();

  test('shared memory beyond what a block has', () => {
    const shared = counts.shared.map((tile) => ({ ...tile, length: 15_000 }));
    expect(() => printCuda({ ...counts, shared })).toThrow(
      /counts declares 240000 bytes of shared memory; a block has at most 232448/,
    );
  });

  test('atomics on types that have none', () => {
    const floats = JSON.parse(JSON.stringify(counts).replaceAll('u32', 'f32')) as IrModule;
    expect(() => printCuda({ ...counts, entry: floats.entry })).toThrow(
      /atomics work on i32, u32 and u64, not on f32/,
    );
  });
});
