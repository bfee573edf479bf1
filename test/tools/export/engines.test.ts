/**
 * Engines in C++ and Rust with what `heddle export` writes. A stub of the driver (driver.c) stands for GPUs: it shares memory
 * among processes as the driver does, and writes down each launch instead of carrying it out.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { familyNamed } from '../../../src/moe/families/index.js';
import { printHeader } from '../../../src/tools/export/header.js';
import { architectureNamed, exportPlan, type LaunchPlan } from '../../../src/tools/export/index.js';
import { printSource } from '../../../src/tools/export/source.js';
import { familyShape, type ShapeText } from '../../../src/verify/kernels/index.js';
import { cudaHeaders, hostCompiler, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root } from '../../tree.js';
import { buildStub, type Launched, launchesIn, requireRounds } from './stub.js';

const folder = temporaryFolder();

const shape = { ranks: 2, tokens: 128, hidden: 1024, experts: 16, topk: 4 };
const strict = ['-Wall', '-Wextra', '-Wpedantic', '-Werror'];
const architectures = ['sm_100a', 'sm_90a', 'sm_80', 'compute_90'].map((name) => architectureNamed('', name));

/** Writes the header and the source of a plan, with kernels that only the stub takes. */
async function write(prefix: string, family: string, given: ShapeText, split = false): Promise<LaunchPlan> {
  const found = familyNamed(family);
  const { plan, kernels } = await exportPlan(found, familyShape(found, given, { split, sms: null }), '1.2.3');
  const images = new Map(
    Array.from(kernels.keys(), (name) => [
      name,
      architectures.map((at) => Buffer.from(`${at.name} ${name}`)),
    ]),
  );
  writeFileSync(join(folder, `${prefix}.h`), printHeader(plan, prefix));
  writeFileSync(join(folder, `${prefix}.c`), printSource(plan, prefix, { architectures, images }));
  return plan;
}

const inFolder = (name: string): string => join(folder, name);

const cc = (...args: readonly string[]) => execFileSync('cc', ['-std=c11', ...strict, ...args]);

interface Ended {
  readonly status: number | null;
  readonly said: string;
  readonly launches: readonly Launched[];
  /** Of each piece of memory that others could map, how many of their launches named it. */
  readonly marks: readonly number[];
  readonly released: number;
  /** The architectures of the images that were loaded, each once. */
  readonly loaded: readonly string[];
}

let runs = 0;
function run(program: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): Ended {
  const log = inFolder(`log-${++runs}`);
  writeFileSync(log, '');
  const { status, stderr, stdout } = spawnSync(inFolder(program), args, {
    env: { ...process.env, LD_LIBRARY_PATH: folder, STUB_LOG: log, ...env },
    encoding: 'utf8',
    timeout: 60_000,
  });
  const text = readFileSync(log, 'utf8');
  return {
    status,
    said: stdout + stderr,
    launches: launchesIn(text),
    marks: Array.from(text.matchAll(/^freed device \d marks (\d+)$/gm), ([, marks]) => Number(marks)),
    released: [...text.matchAll(/^released/gm)].length,
    loaded: [...new Set(Array.from(text.matchAll(/^loaded (\S+)/gm), ([, name]) => name!))],
  };
}

/** Every launch names the windows of the other rank, through that rank's own memory. */
const namesOf = (plan: LaunchPlan): number =>
  plan.launches.flatMap(({ parameters }) => parameters.filter(({ value }) => value.from === 'window')).length;

describe('an engine in C++, a process a rank', needing('cc', 'c++'), () => {
  const tokens = [
    [3, 128],
    [0, 1],
  ];
  let plan: LaunchPlan;

  beforeAll(async () => {
    plan = await write('heddle', 'one-sided', shape);
    buildStub(folder);
    cc('-c', inFolder('heddle.c'), '-o', inFolder('heddle.o'));
    const stub = ['-I', folder, '-I', join(root, 'test/tools/export/cuda')];
    const program = [join(root, 'examples/export/engine.cpp'), inFolder('heddle.o')];
    const link = ['-L', folder, '-lcuda', '-ldl', '-lpthread', '-o', inFolder('engine')];
    execFileSync(hostCompiler()!, ['-std=c++17', ...strict, ...stub, ...program, ...link]);
    for (const [n, round] of tokens.entries())
      for (const [r, count] of round.entries()) {
        const bytes = count * (2 * 4 * shape.topk + 2 * shape.hidden);
        const head = Buffer.alloc(4);
        head.writeUInt32LE(count);
        writeFileSync(inFolder(`in-${n}-${r}`), Buffer.concat([head, Buffer.alloc(bytes, 1)]));
      }
  });

  test.each([
    ['descriptors', {}],
    ['fabric handles, asked for', { HEDDLE_WINDOWS: 'fabric', STUB_FABRIC: folder }],
    ['CUDA IPC, where descriptors are refused', { STUB_REFUSES: 'cuMemExportToShareableHandle' }],
    ['CUDA IPC, where one rank refuses them', { STUB_REFUSES: 'cuMemImport', STUB_REFUSES_DEVICE: '1' }],
    ['CUDA IPC, asked for', { HEDDLE_WINDOWS: 'ipc', STUB_REFUSES: 'cuMemCreate' }],
  ])('windows travel by %s', (_, env) => {
    const ended = run('engine', [folder, '2'], env);
    expect(ended.said).toBe('2 rounds on 2 GPUs\n');
    expect(ended.status).toBe(0);
    requireRounds(plan, ended.launches, tokens);
    // Those of attempts that failed were named by nobody.
    expect(ended.marks.filter((marks) => marks > 0)).toEqual(
      Array.from({ length: 2 * plan.windows.length }, () => 2 * namesOf(plan)),
    );
    expect(ended.released).toBe(2);
  });

  test.each([
    ['8.9', 'sm_80', 0],
    ['9.0', 'sm_90a', 1],
    ['10.0', 'sm_100a', 1],
    ['10.3', 'compute_90', 1],
    ['12.0', 'compute_90', 1],
  ])('a GPU of %s takes the kernels of %s', (capability, image, programmatic) => {
    const { status, loaded, launches } = run('engine', [folder, '2'], { STUB_CAPABILITY: capability });
    expect(status).toBe(0);
    expect(loaded).toEqual([image]);
    for (const { sizes } of launches) expect(sizes[3]).toBe(programmatic);
  });

  test.each([
    [
      'on one rank alone',
      { STUB_REFUSES: 'cuModuleLoadData', STUB_REFUSES_DEVICE: '1' },
      /heddle_create.*rank 1: cuModuleLoadData failed with CUDA_ERROR_NOT_SUPPORTED \(801\)\n/,
    ],
    [
      'every way',
      { STUB_REFUSES: 'cuMemCreate cuIpcGetMemHandle' },
      /by file descriptor: rank 0: cuMemCreate failed .*; by fabric handle: rank 0: cuMemCreate failed .*; by CUDA IPC: rank 0: cuIpcGetMemHandle failed/,
    ],
    [
      'a way that is none',
      { HEDDLE_WINDOWS: 'pigeon' },
      /rank 0: HEDDLE_WINDOWS is "pigeon"; it must be auto, descriptor, fabric or ipc\n/,
    ],
    [
      'a GPU without room for kernels',
      { STUB_REFUSES: 'memory for kernels', STUB_CAPABILITY: '10.0' },
      /rank 0: cuModuleLoadData failed with CUDA_ERROR_OF_THE_STUB \(2\)\n/,
    ],
    [
      'kernels for other GPUs',
      { STUB_CAPABILITY: '7.5' },
      /rank 0: GPU 0 has compute capability 7.5, and the kernels of this export are for sm_100a, sm_90a, sm_80, compute_90: export for it by --arch/,
    ],
  ])('%s: every rank says what is wrong, and gives back what it has', (_, env, why) => {
    const { status, said, launches, released } = run('engine', [folder, '2'], env);
    expect(status).toBe(1);
    const lines = said.trim().split('\n');
    expect(lines).toHaveLength(2);
    for (const line of lines) expect(`${line}\n`).toMatch(why);
    expect(launches).toHaveLength(0);
    expect(released).toBe(2);
  });
});

describe('ranks that do not see each other', needing('cc', 'process ids'), () => {
  /** Ranks that meet in memory that they share: each in a PID namespace of its own, or with a boot id of its own, too. */
  const program = `
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/mount.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #include "heddle.c"
    static struct { pthread_barrier_t barrier; char bytes[1 << 16]; } *meeting;
    static int gather(void *rank, const void *mine, void *all, size_t bytes) {
      memcpy(meeting->bytes + bytes * *(int *)rank, mine, bytes);
      pthread_barrier_wait(&meeting->barrier);
      memcpy(all, meeting->bytes, bytes * HEDDLE_RANKS);
      pthread_barrier_wait(&meeting->barrier);
      return 0;
    }
    static int be(int rank, const char *boot_id) {
      struct heddle_host host = {(uint32_t)rank, rank, 0, gather, &rank};
      heddle_rank *made;
      if (boot_id != NULL && rank == 1)
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount(boot_id, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL) != 0) return 1;
      const char *wrong = heddle_create(&made, &host);
      if (wrong != NULL) return puts(wrong), fflush(stdout), 0;
      /* Each writes into its own window, and reads the other's. */
      *(volatile int *)made->player->windows[rank][0].address = 1000 + rank;
      pthread_barrier_wait(&meeting->barrier);
      printf("rank %d reads %d\\n", rank, *(volatile int *)made->player->windows[1 - rank][0].address);
      fflush(stdout);
      pthread_barrier_wait(&meeting->barrier);
      heddle_destroy(made);
      return 0;
    }
    int main(int count, char **words) {
      pthread_barrierattr_t shared;
      int status, failed = 0;
      meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      pthread_barrierattr_init(&shared);
      pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
      pthread_barrier_init(&meeting->barrier, &shared, HEDDLE_RANKS);
      for (int r = 0; r < HEDDLE_RANKS; r++)
        if (syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, NULL) == 0)
          exit(be(r, count > 1 ? words[1] : NULL));
      while (wait(&status) > 0) failed |= status;
      return failed != 0;
    }`;

  beforeAll(async () => {
    await write('heddle', 'one-sided', shape);
    buildStub(folder);
    writeFileSync(inFolder('apart.c'), program);
    writeFileSync(inFolder('boot-id'), 'of another host\n');
    cc(inFolder('apart.c'), '-ldl', '-lpthread', '-o', inFolder('apart'));
  });

  const unseen = 'runs on another host, or in a container whose processes this one does not see';
  test.each([
    ['by process ids', [], `by CUDA IPC: rank 0: cuIpcOpenMemHandle failed`],
    ['by host', [inFolder('boot-id')], 'by CUDA IPC: rank 0: rank 1 runs on another host'],
  ])('%s are refused by name, or reached by fabric handle', (_, args, ipc) => {
    const refused = run('apart', args);
    expect(refused.status).toBe(0);
    const lines = refused.said.trim().split('\n');
    expect(lines).toHaveLength(2);
    for (const line of lines) {
      expect(line).toContain(
        `by file descriptor: rank 0: rank 1 ${unseen}; by fabric handle: rank 0: cuMemCreate failed`,
      );
      expect(line).toContain(ipc);
    }
    const reached = run('apart', args, { STUB_FABRIC: folder });
    expect(reached.said.trim().split('\n').sort()).toEqual(['rank 0 reads 1001', 'rank 1 reads 1000']);
    expect(reached.status).toBe(0);
  });

  test('memory that is not the window that a rank gave is refused', () => {
    const { said } = run('apart', [], { STUB_FABRIC: folder, STUB_CONFUSES: '1' });
    expect(said).toContain('by fabric handle: rank 0: what rank 1 gave as its window is other memory');
  });
});

test('an engine in Rust, a thread a rank', needing('cc', 'rustc'), async () => {
  const plan = await write('heddle', 'one-sided', shape);
  buildStub(folder);
  cc('-c', inFolder('heddle.c'), '-o', inFolder('heddle.o'));
  const link = ['-C', `link-arg=${inFolder('heddle.o')}`, '-L', folder, '-l', 'cuda', '-o', inFolder('rust')];
  execFileSync('rustc', ['-D', 'warnings', ...link, join(root, 'examples/export/engine.rs')]);
  const ended = run('rust', []);
  expect(ended.said).toBe('3 rounds on 2 GPUs\n');
  expect(ended.status).toBe(0);
  const tokens = [shape.tokens, shape.tokens];
  requireRounds(plan, ended.launches, [tokens, tokens, tokens]);
  expect(ended.marks.filter((marks) => marks > 0)).toEqual([3 * namesOf(plan), 3 * namesOf(plan)]);
  // Windows of one process travel by descriptors alone.
  const refused = run('rust', [], { HEDDLE_WINDOWS: 'ipc' });
  expect(refused.said).toMatch(/rank 0: cuIpcOpenMemHandle failed/);
});

describe('a program in C, a rank of one', needing('cc'), () => {
  const program = `
    #include <stdio.h>
    #include <string.h>
    #include "decode.h"
    #include "prefill.h"
    static int alone(void *context, const void *mine, void *all, size_t bytes) {
      (void)context;
      memcpy(all, mine, bytes);
      return 0;
    }
    static int lost(void *context, const void *mine, void *all, size_t bytes) {
      return alone(context, mine, all, bytes) + 1;
    }
    static int altered(void *context, const void *mine, void *all, size_t bytes) {
      int result = alone(context, mine, all, bytes);
      *(uint64_t *)all ^= 1;
      return result;
    }
    static void say(const char *words) { printf("%s\\n", words == NULL ? "-" : words); }
    int main(void) {
      decode_rank *decode, *none;
      prefill_rank *prefill;
      struct decode_host host = {0, 0, 0, alone, NULL}, parted = {0, 0, 0, lost, NULL}, wrong = {1, 0, 0, alone, NULL};
      struct decode_host strange = {0, 0, 0, altered, NULL};
      struct prefill_host other = {0, 0, 5000, alone, NULL};
      say(decode_create(&decode, &host));
      say(prefill_create(&prefill, &other));
      say(decode_create(&none, &parted));
      say(decode_create(&none, &wrong));
      say(decode_create(&none, &strange));
      const struct decode_slots *slots = decode_received(decode);
      printf("%d %d\\n", slots->counts == NULL, prefill_received(prefill)->counts == NULL);
      struct decode_round round = {slots->experts, slots->weights, {slots->payloads[0], slots->weights}, slots->output, 6};
      void *stream = &round;
      say(decode_dispatch(decode, &round, stream));
      round.tokens = 5;
      say(decode_dispatch_send(decode, &round, stream));
      round.rows[0] = (const char *)round.rows[0] + 1;
      say(decode_dispatch_recv(decode, &round, stream) == NULL ? NULL : "a row's address is wrong");
      round.out = NULL;
      say(decode_combine(decode, &round, stream));
      say(decode_failure(decode, NULL));
      uint32_t words[] = {2, 7, 4294967295u - 1, 0};
      memcpy((char *)slots->output + FAILURE, words, sizeof words);
      struct decode_lost lost;
      say(decode_failure(decode, &lost));
      printf("%d %u\\n", (int)lost.rank, lost.round);
      uint32_t this_one[4] = {1, 0, 0, 0}, others[4] = {2, 0, 0, 8};
      const char *output = (const char *)prefill_received(prefill)->output;
      memcpy((char *)output + FAILURE_OF_PREFILL, words, sizeof words);
      say(prefill_mask(prefill, this_one));
      say(prefill_mask(prefill, others));
      memcpy(words, output + MASKED, sizeof words);
      printf("%u %u %u %u\\n", words[0], words[1], words[2], words[3]);
      say(prefill_failure(prefill, NULL));
      decode_destroy(decode);
      prefill_destroy(prefill);
      decode_destroy(NULL);
      return 0;
    }`;

  test('uses two plans, and hears what is wrong', async () => {
    const small = { ranks: 1, tokens: 5, experts: 4, topk: 2 };
    const decode = await write('decode', 'one-sided', { ...small, hidden: 256, format: 'fp8' }, true);
    const prefill = await write('prefill', 'portable', {
      ...small,
      ...{ hidden: 16, counts: 'yes', masks: 'yes' },
    });
    buildStub(folder);
    writeFileSync(inFolder('alone.c'), program);
    const sources = ['alone.c', 'decode.c', 'prefill.c'].map(inFolder);
    const behind = (of: LaunchPlan, { offset }: { readonly offset: number }) =>
      `(${offset}-(int64_t)${of.received.output!.offset})`;
    const here = [
      `-DFAILURE=${behind(decode, decode.failure)}`,
      `-DFAILURE_OF_PREFILL=${behind(prefill, prefill.failure)}`,
      `-DMASKED=${behind(prefill, prefill.masked!)}`,
    ];
    cc('-I', folder, ...here, ...sources, '-ldl', '-o', inFolder('alone'));
    const { said, status } = run('alone', []);
    expect(said.trim().split('\n')).toEqual([
      '-',
      '-',
      'all_gather of the host failed',
      'rank is 1, and there are 1 ranks',
      'rank 0 runs another export, or has another HEDDLE_WINDOWS in its environment',
      '1 0',
      'tokens is 6, more than 5',
      '-',
      "a row's address is wrong",
      'out is (nil), not a multiple of 16',
      '-',
      'combine of round 4294967295 gave up waiting for rank 7',
      '7 4294967295',
      'rank 0 is among those to leave out',
      '-',
      '2 0 0 8',
      '-',
    ]);
    expect(status).toBe(0);
  });

  test('says which call an old driver lacks, and that there is none', async () => {
    await write('decode', 'one-sided', { ranks: 1, tokens: 5, hidden: 16, experts: 4, topk: 2 });
    writeFileSync(
      inFolder('old.c'),
      `#include <stdio.h>
      #include <string.h>
      #include "decode.h"
      static int alone(void *context, const void *mine, void *all, size_t bytes) {
        (void)context;
        return memcpy(all, mine, bytes) == NULL;
      }
      int main(void) {
        decode_rank *rank;
        struct decode_host host = {0, 0, 0, alone, NULL};
        return puts(decode_create(&rank, &host)) < 0;
      }`,
    );
    const sources = ['old.c', 'decode.c'].map(inFolder);
    cc('-I', folder, ...sources, '-ldl', '-o', inFolder('old'));
    const old = mkdtempSync(join(folder, 'old-'));
    const library = ['-shared', '-Wl,-soname,libcuda.so.1', '-o', join(old, 'libcuda.so.1')];
    execFileSync('cc', [...library, '-x', 'c', '/dev/null']);
    expect(run('old', [], { LD_LIBRARY_PATH: old }).said).toMatch(
      /^rank 0: the NVIDIA driver is too old: it lacks cuInit/,
    );
  });
});

test('types of the driver are laid out as cuda.h has them', needing('cc', 'cuda.h'), async () => {
  await write('heddle', 'one-sided', shape);
  const equal = [
    [
      'struct heddle_allocation',
      'CUmemAllocationProp',
      { handle_types: 'requestedHandleTypes', location_id: 'location.id' },
    ],
    ['struct heddle_access', 'CUmemAccessDesc', { location_id: 'location.id', flags: 'flags' }],
    ['struct heddle_attribute', 'CUlaunchAttribute', { value: 'value' }],
    [
      'struct heddle_config',
      'CUlaunchConfig',
      { block: 'blockDimX', stream: 'hStream', attributes: 'attrs', attribute_count: 'numAttrs' },
    ],
    ['struct heddle_handle', 'CUipcMemHandle', { bytes: 'reserved' }],
    ['struct heddle_handle', 'CUmemFabricHandle', { bytes: 'data' }],
  ] as const;
  const numbers = [
    [6, 'CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION'],
    [1, 'CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR'],
    [8, 'CU_MEM_HANDLE_TYPE_FABRIC'],
    [1, 'CU_MEM_ALLOCATION_TYPE_PINNED'],
    [1, 'CU_MEM_LOCATION_TYPE_DEVICE'],
    [1, 'CU_MEM_ALLOC_GRANULARITY_RECOMMENDED'],
    [3, 'CU_MEM_ACCESS_FLAGS_PROT_READWRITE'],
    [8, 'CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES'],
    [1, 'CU_STREAM_NON_BLOCKING'],
    [1, 'CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS'],
    [3, '(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)'],
  ];
  const asserts = [
    ...equal.flatMap(([own, theirs, fields]) => [
      `sizeof(${own}) == sizeof(${theirs})`,
      ...Object.entries(fields).map(
        ([mine, of]) => `offsetof(${own}, ${mine}) == offsetof(${theirs}, ${of})`,
      ),
    ]),
    ...numbers.map(([number, name]) => `${number} == ${name}`),
  ].map((claim) => `_Static_assert(${claim}, "");`);
  const input = `#include "heddle.c"\n#include <cuda.h>\n${asserts.join('\n')}\n`;
  const include = ['-I', folder, '-isystem', cudaHeaders()!];
  execFileSync('cc', ['-std=c11', ...strict, '-fsyntax-only', ...include, '-x', 'c', '-'], { input });
});
