/** Whatever names an author chooses and Heddle accepts, the CUDA compiles. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { HeddleError } from '../../../src/base/errors.js';
import { Random } from '../../../src/gpu/sim/random.js';
import {
  entryName,
  field,
  type IrModule,
  KernelError,
  kernel,
  layout,
  peers,
  pointer,
  printCuda,
} from '../../../src/lang/index.js';
import { cudaTool, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { compileCuda } from './nvcc.js';

const each = 120;

/** Words of C++, of CUDA, of NVRTC and of the printed prelude, and what only looks harmless. */
const hostile =
  `alignas and asm atomicAdd auto bitand bool char8_t concept const constexpr co_await decltype delete double
dim3 explicit export extern float float4 goto inline int long mutable namespace new not operator private register
reinterpret_cast requires short signed sizeof static struct template this typedef typeid typename union unsigned using virtual
volatile wchar_t xor exp exp2f sin log min max abs clock clock64 malloc free memcpy printf assert isnan signbit rsqrtf
threadIdx blockIdx blockDim gridDim warpSize tex2D surf2Dread make_float4 cudaMalloc cudaStreamDefault dim size_t ptrdiff_t
std nvcuda cooperative_groups thrust half bfloat16 NAN INFINITY EOF NULL M_PI M_PIf INT_MAX RAND_MAX CHAR_BIT SNAN I
u8 u16 u32 u64 i32 f32 v16 bf16 f16 e4m3 load store load_stream peer as past_limit clock_ns full_warp rank HeddlePeers
shared_memory lane_u32 bits_u32 await_epoch in_k k_kernel k_offset __x _X __global__ __shared__ $ $a a$b _ __ _1 x__y x_2 é ñame
stdin stdout errno linux unix i386 index signal y0 y1 j0 jn gamma div time select main abort exit`.split(
    /\s+/,
  );

/** Every name that the headers mention which nvcc includes unasked, and their macros. */
function headerNames(): string[] {
  const folder = temporaryFolder(onTestFinished);
  writeFileSync(join(folder, 'empty.cu'), '');
  const preprocess = (...more: string[]): string =>
    execFileSync(cudaTool('nvcc')!, ['--gpu-architecture=sm_90a', '-E', ...more, 'empty.cu'], {
      cwd: folder,
      encoding: 'utf8',
      maxBuffer: 1 << 28,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  const words = preprocess().match(/[A-Za-z_]\w*/g) ?? [];
  const macros = [...preprocess('-Xcompiler', '-dM').matchAll(/^#define (\w+)/gm)].map(([, name]) => name!);
  return [...new Set([...words, ...macros])].sort();
}

/** A kernel in which every kind of name is one of these; null where JavaScript or Heddle does not take them. */
function moduleOf(name: string, names: readonly string[], number: number): IrModule | null {
  const [rows, count, win, place, first, tile, sums, i] = names;
  try {
    const window = layout(`${names[0]} ${number}`, { [place!]: field('u32', 4) });
    const body = new Function(`return (g, p) => {
      const { ${rows}, ${count}, ${win} } = p;
      const ${tile} = g.shared('u32', 4);
      const ${sums} = g.registers('f32', 4);
      const ${first} = g.load(${rows});
      g.store(${tile}, ${first});
      ${sums}[0] = g.f32(${first});
      for (let ${i} = g.u32(0); ${i} < ${count}; ${i}++) {
        g.store(${rows}.at(${i}), g.load(${win}.at(g.rank).${place}) + g.u32(${sums}[0]) * g.min(${i}, ${count}));
      }
      g.store(${rows}, g.load(${tile}.at(1)));
    }`)();
    return kernel(
      { name, params: { [rows!]: pointer('u32'), [count!]: 'u32', [win!]: peers(window) } },
      body,
    ).ir();
  } catch (error) {
    const broke = error instanceof KernelError && error.diagnostics.some(({ code }) => code === 'HK900');
    if (!broke && (error instanceof SyntaxError || error instanceof HeddleError)) return null;
    throw error;
  }
}

test('hostile names that are accepted compile', { timeout: 120_000, ...needing('nvcc') }, async () => {
  const random = Random.from('names');
  const pick = (from: readonly string[]): string => from[random.below(from.length)]!;
  const headers = headerNames();
  const modules = new Map<string, IrModule>();
  for (let tries = 0; modules.size < each; tries++) {
    const names = new Set<string>();
    while (names.size < 8) names.add(pick(random.below(3) === 0 ? headers : hostile));
    const name = pick(random.below(2) === 0 ? headers : hostile);
    const module = moduleOf(name, [...names], tries);
    if (module !== null) modules.set(entryName(module), module);
  }
  const { kernels, warnings } = await compileCuda(printCuda([...modules.values()]), 'sm_90a');
  expect(kernels.map(({ name }) => name).sort()).toEqual([...modules.keys()].sort());
  expect(warnings).toEqual([]);
});
