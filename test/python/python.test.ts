/**
 * The Python package on a stub of the driver (test/tools/export/driver.c), which shares memory among ranks as the driver does and
 * writes down each launch instead of carrying it out.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { familyNamed } from '../../src/moe/families/index.js';
import { placeTable } from '../../src/moe/layer/index.js';
import {
  architectureNamed,
  describe as describePlan,
  exportPlan,
  type LaunchPlan,
  type PlannedExperts,
  type SortedRows,
} from '../../src/tools/export/index.js';
import { packShape } from '../../src/tools/export/pack.js';
import { familyShape, type ShapeText } from '../../src/verify/kernels/index.js';
import { needing } from '../needs.js';
import { buildStub, launchesIn, requireRounds } from '../tools/export/stub.js';
import { root, tree } from '../tree.js';

const folder = mkdtempSync(join(tmpdir(), 'heddle-python-'));
afterAll(() => rmSync(folder, { recursive: true }));
const inFolder = (...names: readonly string[]): string => join(folder, ...names);
const shapes = inFolder('shapes');

/** The package as a wheel has it, but for the JavaScript, and the stub. */
function build(): void {
  mkdirSync(shapes, { recursive: true });
  cpSync(join(root, 'python/heddle'), inFolder('heddle'), { recursive: true });
  const player = join(root, 'src/tools/export/player.c');
  const library = ['-shared', '-fPIC', '-o', inFolder('heddle/libheddle_player.so')];
  execFileSync('cc', ['-std=c11', ...library, player, '-ldl']);
  buildStub(folder);
}

/** Writes a shape whose kernels only the stub takes. */
async function write(
  file: string,
  shape: ShapeText,
  split = false,
  experts: PlannedExperts | SortedRows | null = null,
  capability: readonly [number, number] = [8, 0],
  name = 'one-sided',
): Promise<LaunchPlan> {
  const family = familyNamed(name);
  const asked = familyShape(family, shape, { split, sms: null });
  const { plan, kernels } = await exportPlan(family, asked, '1.2.3', { capability, experts });
  const images = new Map(Array.from(kernels, ([name, of]) => [name, [Buffer.from(`sm_90 ${of.name}`)]]));
  const architectures = [architectureNamed('', 'sm_90')];
  writeFileSync(file, packShape(plan, { architectures, images }, JSON.stringify(describePlan(plan))));
  return plan;
}

const env = (more: Readonly<Record<string, string>> = {}) => ({
  ...process.env,
  ...{ PYTHONPATH: folder, LD_LIBRARY_PATH: folder, HEDDLE_SHAPES: shapes, HEDDLE_PROGRAM: 'stub', ...more },
});

let runs = 0;
function python(args: readonly string[], more: Readonly<Record<string, string>> = {}) {
  const log = inFolder(`log-${++runs}`);
  writeFileSync(log, '');
  const how = { env: env({ STUB_LOG: log, ...more }), encoding: 'utf8', timeout: 180_000 } as const;
  const { status, stdout, stderr } = spawnSync('python3', args, how);
  const launches = launchesIn(readFileSync(log, 'utf8'));
  return { status, lines: (stdout + stderr).trim().split('\n'), launches };
}

/** The keys of shapes with these arguments, on a GPU that Buffers take for one where torch has none. */
function keysOf(...shapes: readonly string[]): string[] {
  const simulated = 'arch="compute_90a", multiprocessors=2';
  const keys = shapes.map((of) => `heddle.Shape(${simulated}, ${of}).key`).join();
  const program = ['-c', `import heddle; print(${keys})`];
  return execFileSync('python3', program, { env: env(), encoding: 'utf8' }).trim().split(' ');
}

/** Puts Heddle's JavaScript where a wheel has it. */
function bringJavaScript(): void {
  mkdirSync(inFolder('heddle', '_js'), { recursive: true });
  rmSync(inFolder('heddle', '_js', 'dist'), { force: true });
  symlinkSync(join(tree, 'src'), inFolder('heddle', '_js', 'dist'));
}

const small = { ranks: 2, tokens: 128, hidden: 1024, experts: 16, topk: 4 };

describe('the player, by ctypes', needing('cc', 'python3'), () => {
  beforeAll(build);

  test('ranks that are threads launch what the plan says, on each other’s windows', async () => {
    const plan = await write(inFolder('small.heddle'), small);
    // Memory of a rank alone is the engine's.
    const { status, lines, launches } = python(
      [join(root, 'test/python/engine.py'), inFolder('small.heddle'), '2'],
      { STUB_REFUSES: 'cuMemAlloc' },
    );
    expect(lines).toEqual(Array.from({ length: 2 }, () => 'HEDDLE_ARGUMENT: tokens is 129, more than 128'));
    expect(status).toBe(0);
    const tokens = [
      [3, 128],
      [0, 1],
    ];
    requireRounds(plan, launches, tokens);
    const { offset } = plan.launches[0]!.parameters.find(({ value }) => value.from === 'topkIds')!;
    expect(launches[0]!.parameters.readBigUInt64LE(offset)).toBe(1n << 20n);
  });

  test('each rank launches the experts’ kernels for the tokens that it brings', async () => {
    const experts = { inner: 64, weights: 'bf16', activation: 'swiglu', biases: false } as const;
    const file = inFolder('bands.heddle');
    const plan = await write(file, { ...small, experts: 4 }, false, experts, [9, 0]);
    const { status, launches } = python([join(root, 'test/python/engine.py'), file, '2']);
    expect(status).toBe(0);
    // Even routes bring 64 rows to an expert with 32 tokens of each rank.
    const named = (few: boolean) =>
      plan.launches
        .filter(({ tokens: [least] = [few ? 0 : 33] }) => least === (few ? 0 : 33))
        .map(({ kernel }) => plan.kernels.find(({ name }) => name === kernel)!.entry);
    expect(named(true)).not.toEqual(named(false));
    for (const [rank, brought] of [
      [true, true],
      [false, true],
    ].entries())
      expect(launches.filter(({ device }) => device === rank).map(({ kernel }) => kernel)).toEqual(
        brought.flatMap(named),
      );
  });

  test.each([
    ['half a file', (bytes: Buffer) => bytes.subarray(0, -16)],
    [
      'one of another version',
      (bytes: Buffer) => Buffer.concat([Buffer.from('heddle 1'), bytes.subarray(8)]),
    ],
  ])('%s is refused', async (_, change) => {
    const file = inFolder('wrong.heddle');
    await write(file, { ...small, ranks: 1 });
    writeFileSync(file, change(readFileSync(file)));
    const { lines, launches } = python([join(root, 'test/python/engine.py'), file, '1']);
    expect(lines).toEqual([
      'HEDDLE_UNAVAILABLE: this is no shape, or one of another version of Heddle, or a part of one',
    ]);
    expect(launches).toHaveLength(0);
  });

  test('a failure of one rank is the error of all', async () => {
    await write(inFolder('small.heddle'), small);
    const { lines } = python([join(root, 'test/python/engine.py'), inFolder('small.heddle'), '2'], {
      ...{ STUB_REFUSES: 'cuModuleLoadData', STUB_REFUSES_DEVICE: '1' },
    });
    const wrong = 'rank 1: cuModuleLoadData failed with CUDA_ERROR_NOT_SUPPORTED (801)';
    expect(lines).toEqual([`HEDDLE_UNAVAILABLE: ${wrong}`, `HEDDLE_UNAVAILABLE: ${wrong}`]);
  });
});

test("a kernel of Triton's is checked from Python", needing('cc', 'python3'), () => {
  build();
  bringJavaScript();
  const script = join(root, 'test/python/checks.py');
  const { status, lines } = python([script, join(root, 'examples/ptx/exchange.ptx'), inFolder('kept')]);
  const said = lines.join('\n');
  expect(status, said).toBe(0);
  expect(said.match(/no finding\nclean/g)).toHaveLength(2);
  expect(said).toMatch(/HEDDLE_CHECK Data race on window 0.*exchange\.py:9:26/s);
  expect(said).toMatch(/tried: with .* before exchange\.py:11:31/);
  expect(said).toContain('output[0] is 11, not 10');
  expect(said).toContain(
    "HEDDLE_ARGUMENT kernel is SimpleNamespace; it must be a compiled kernel of Triton's",
  );
  expect(readdirSync(inFolder('kept')).sort()).toEqual(['host.mjs', 'kernel.ptx']);
});

test('places are dealt as TypeScript deals them', needing('python3'), () => {
  const placements = [
    { experts: 4, ranks: 2, places: [0, 1, 2, 3, 0, 1] },
    { experts: 3, ranks: 3, places: [0, 0, 0, 1, 2, 0, 1, -1, 2] },
    { experts: 6, ranks: 2, places: [0, 1, 2, 3, 4, -1, 0, 0] },
  ];
  for (const placement of placements) {
    const { experts, ranks, places } = placement;
    const call = `place_table(${JSON.stringify(places)}, ${experts}, ${ranks})`;
    const program = `import json; from heddle._places import place_table; print(json.dumps(${call}))`;
    const said = execFileSync('python3', ['-c', program], { cwd: join(root, 'python'), encoding: 'utf8' });
    const dealt = (JSON.parse(said) as number[][][]).map((table) => table.flat());
    expect(dealt).toEqual(dealt.map((_, source) => [...placeTable(placement, { source, sources: ranks })]));
  }
});

describe('the cache of shapes', needing('python3'), () => {
  const asked = ['--ranks', '2', '--experts', '16', '--top-k', '4', '--max-tokens', '64', '--hidden', '1024'];
  const compile = (more: Readonly<Record<string, string>>, ...flags: readonly string[]) => {
    const child = spawn('python3', ['-m', 'heddle', 'compile', ...asked, ...flags], { env: env(more) });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += String(data)));
    return new Promise<{ status: number | null; said: string }>((done) =>
      child.on('close', (status) => done({ status, said })),
    );
  };
  /** In place of Node.js: writes its arguments down, and a file. */
  const node = (then: string): string => {
    const program = inFolder('node');
    writeFileSync(
      program,
      `#!/bin/sh\necho "$@" >> ${inFolder('calls')}\nwhile [ "$1" != --out ]; do shift; done\n${then}\n`,
    );
    chmodSync(program, 0o755);
    return program;
  };

  beforeAll(() => {
    cpSync(join(root, 'python/heddle'), inFolder('heddle'), { recursive: true });
    mkdirSync(shapes, { recursive: true });
  });

  test('is filled once by processes that ask at once, and asks for no Node.js then', async () => {
    const HEDDLE_NODE = node('echo shape > "$2/heddle.heddle"');
    const ended = await Promise.all(Array.from({ length: 3 }, () => compile({ HEDDLE_NODE })));
    const files = readdirSync(shapes).filter((name) => name.endsWith('.heddle'));
    expect(files).toHaveLength(1);
    for (const { status, said } of ended) {
      expect(said).toContain(join(shapes, files[0]!));
      expect(status).toBe(0);
    }
    const said = ended.map(({ said }) => said).join('');
    expect(said.match(/compiling dispatch and combine for 2 ranks, hidden 1024/g)).toHaveLength(1);
    const calls = readFileSync(inFolder('calls'), 'utf8').trim().split('\n');
    expect(calls).toHaveLength(1);
    expect(calls[0]).toContain('export one-sided --shape ranks=2,tokens=64,hidden=1024,experts=16,topk=4');
    const again = await compile({ HEDDLE_NODE: '/nowhere/node' });
    expect(again.said.trim()).toBe(join(shapes, files[0]!));
    // Gradients of router weights have a set of their own, which an image needs, too.
    expect((await compile({ HEDDLE_NODE }, '--gradients')).said).toContain(files[0]);
    expect(readFileSync(inFolder('calls'), 'utf8')).toContain(
      'tokens=64,hidden=4,experts=16,topk=4,dtype=f32',
    );
    for (const file of readdirSync(shapes)) rmSync(join(shapes, file));
  });

  test('says what each option is', async () => {
    const { said } = await compile({}, '--help');
    expect(said).toMatch(/--sort SORT +For experts of the caller's:/);
    expect(said).toMatch(/--multiprocessors MULTIPROCESSORS\s+Multiprocessors of the GPU\./);
  });

  test('says where shapes cannot be kept, or Node.js is not', async () => {
    const { status, said } = await compile({ HEDDLE_SHAPES: join(root, 'package.json', 'shapes') });
    expect(said).toMatch(/^heddle: shapes cannot be kept: .* Set HEDDLE_SHAPES to a folder/);
    expect(status).toBe(1);
    expect((await compile({ HEDDLE_NODE: '/nowhere/node' })).said).toContain(
      'heddle: Node.js does not start',
    );
    const bare =
      'import sys; sys.modules["torch"] = None; from heddle.__main__ import main; main(["verify"])';
    const { stderr } = spawnSync('python3', ['-c', bare], { env: env(), encoding: 'utf8' });
    expect(stderr).toMatch(/^heddle: a layer runs on tensors of torch: .* Run `pip install torch`/);
    mkdirSync(inFolder('bare'));
    const real = 'import os, sys; print(os.path.realpath(sys.executable))';
    symlinkSync(execFileSync('python3', ['-c', real]).toString().trim(), inFolder('bare/python3'));
    expect((await compile({ HEDDLE_NODE: '', PATH: inFolder('bare') })).said).toMatch(/^heddle: there is no/);
  });

  test('says what Heddle said, and keeps nothing, where a shape cannot be compiled', async () => {
    const error = `{"error": {"code": "HEDDLE_ARGUMENT", "message": "hidden is odd"}}`;
    const { status, said } = await compile({ HEDDLE_NODE: node(`echo '${error}'\nexit 2`) });
    expect(said).toContain('heddle: hidden is odd (HEDDLE_ARGUMENT)');
    expect(status).toBe(1);
    expect(readdirSync(shapes).filter((name) => !name.endsWith('.lock'))).toEqual([]);
  });
});

describe('layers on torch tensors', needing('cc', 'torch'), () => {
  beforeAll(build);

  test('call the player in order, and refuse what is out of order or of another shape', async () => {
    const of = 'ranks=1, experts=4, top_k=2, max_tokens=8, hidden=128';
    const [halves, rounds, layers, sorts, places, scaled] = keysOf(
      ...[`${of}, split=True`, of, `${of}, inner=64`, `${of}, sort='masked', alignment=16`],
      `${of}, counts=True, masks=True, waits=True, places=6`,
      `${of.replace('128', '256')}, sort='contiguous', capacity=18, dispatch='fp8'`,
    );
    const layer = { ranks: 1, tokens: 8, hidden: 128, experts: 4, topk: 2 };
    const planned = { ...layer, weighting: 'plan' } as const;
    const split = await write(join(shapes, `${halves}.heddle`), layer, true);
    const trained = await write(join(shapes, `${rounds}.heddle`), layer);
    const experts = { inner: 64, weights: 'bf16', activation: 'swiglu', biases: false } as const;
    const whole = await write(join(shapes, `${layers}.heddle`), planned, false, experts);
    const masked = { form: 'masked', alignment: 16, capacity: 16 } as const;
    const sorted = await write(join(shapes, `${sorts}.heddle`), planned, false, masked);
    await write(
      join(shapes, `${scaled}.heddle`),
      { ...layer, hidden: 256, weighting: 'plan', format: 'fp8', rounded: 'yes' },
      false,
      { form: 'contiguous', alignment: 1, capacity: 18 },
    );
    const placed = await write(join(shapes, `${places}.heddle`), {
      ...layer,
      ...{ experts: 6, placed: 4, counts: 'yes', masks: 'yes', waits: 'yes' },
    });
    const { status, lines, launches } = python([join(root, 'test/python/layers.py')]);
    expect(lines).toEqual([
      'HEDDLE_ROUND_OPEN: dispatch was called out of order: the round is dispatched; a round is dispatch, experts, combine',
      'HEDDLE_OTHER_ROUND: combine was called on another layer than the one that dispatched',
      ...Array<string>(2).fill('HEDDLE_ARGUMENT: out is'),
      'HEDDLE_NO_ROUND: combine was called out of order: the round is combined; a round is dispatch, experts, combine',
      'HEDDLE_ARGUMENT: x is 9 tokens; it must be at most max_tokens, 8',
      'HEDDLE_ARGUMENT: x is torch.float32 [3, 128] on cpu; it must be torch.bfloat16 [3, 128] on cpu, contiguous',
      'HEDDLE_ARGUMENT: topk_ids is torch.int64 [3, 2] on cpu; it must be torch.int32 [3, 2] on cpu, contiguous',
      'HEDDLE_ARGUMENT: topk_weights is torch.float32 [3, 1] on cpu, with gaps; it must be torch.float32 [3, 2] on cpu, contiguous',
      'HEDDLE_ARGUMENT: x is list; it must be a torch.Tensor',
      'HEDDLE_ARGUMENT: buffers is made without inner; it must be made with inner, for this layer',
      'HEDDLE_ARGUMENT: buffers is NoneType; it must be heddle.Buffers',
      ...Array<string>(3).fill('HEDDLE_DISPOSED: this Buffers was disposed; create a new one'),
      'HEDDLE_ARGUMENT: wait_ms is 0; it must be an integer from 1 to 4000000',
      'HEDDLE_ARGUMENT: group is one that this process is not in; it must be one that it is in',
      'HEDDLE_ARGUMENT: device is meta; it must be a CUDA device, or the CPU where GPUs are simulated',
      'HEDDLE_ARGUMENT: biases is True; it must be left out without inner',
      'HEDDLE_ARGUMENT: dtype is torch.bfloat16; it must be of type str',
      'HEDDLE_ARGUMENT: sort is masked; it must be left out with inner, whose experts find their rows themselves',
      'HEDDLE_ARGUMENT: dispatch is same; it must be fp8, which weights of e4m3 take',
      'HEDDLE_ARGUMENT: inner is 64; it must be left out with gradients',
      'HEDDLE_ARGUMENT: masks is False; it must be given when the Buffers are made',
      'HEDDLE_ARGUMENT: gradients is False; it must be True, for Buffers through which a router is trained',
      'HEDDLE_ARGUMENT: rows is [8, 128]; it must be [1, 8, 128], as dispatch gave them',
      "HEDDLE_ARGUMENT: dispatch is same; it must be 'fp8', whose rows have scales of f32",
      "HEDDLE_ARGUMENT: layer is SortedRows, of dispatch='same'; it must be an ExpertParallel whose Buffers carry rows as they are",
      'HEDDLE_ARGUMENT: down is torch.bfloat16 [4, 64, 128] on cpu, with gaps; it must be torch.bfloat16 [4, 128, 64] on cpu, contiguous',
      'HEDDLE_ARGUMENT: down_bias is given; it must be left out, as the Buffers are made',
      'HEDDLE_ARGUMENT: buffers is made with inner; it must be made without inner, for this layer',
      'Trying to backward through heddle',
      'HEDDLE_ARGUMENT: places is [0, 1, 2, 3]; it must be 6 experts, of −1 to 3',
      'HEDDLE_ARGUMENT: places is None; it must be given, as the Buffers’ places are',
      'HEDDLE_ARGUMENT: ranks is [0]; it must be some of 0 to 0, and not this one, 0',
    ]);
    expect(status).toBe(0);
    // A round for dispatch, one for combine, and one for the gradient of each; and compiled the same.
    const rounded = Array<typeof trained>(8).fill(trained);
    const first = placed.launches.filter(({ phase }) => phase === 'dispatchSend');
    const wholes = [whole, whole, whole, whole];
    const all = [split, split, ...rounded, sorted, ...wholes, { launches: first }, placed];
    const launched = all.flatMap(({ launches }) => launches.map(({ kernel }) => kernel));
    expect(launches.map(({ kernel }) => kernel.replace(/_kernel$/, ''))).toEqual(launched);
    // The weights of each layer are its own.
    const [one, other, , compiled] = launches.filter(({ kernel }) => kernel.includes('gate_up'));
    expect(one!.parameters.equals(other!.parameters)).toBe(false);
    expect(compiled!.parameters).toHaveLength(other!.parameters.length);
  });
});

test(
  'a rank’s proxy brings its messages to another node, and one that dies is named',
  needing('cc', 'torch', 'libfabric', 'shm'),
  async () => {
    build();
    bringJavaScript();
    const [key] = keysOf('ranks=2, experts=4, top_k=2, max_tokens=8, hidden=128, nodes=2');
    const layer = { ranks: 2, nodes: 2, tokens: 8, hidden: 128, experts: 4, topk: 2 };
    await write(join(shapes, `${key}.heddle`), layer, false, null, [8, 0], 'hybrid');
    const { lines } = python([join(root, 'test/python/hosts.py'), inFolder('meeting')], {
      HEDDLE_PROVIDER: 'shm',
    });
    const reason =
      'HEDDLE_PROXY: the proxy of rank 1 did not start: HEDDLE_PROVIDER is "nowhere"; it must be one of ';
    const noNode =
      'HEDDLE_PROXY: the proxy of rank 1 did not start: Expecting value: line 1 column 1 (char 0)';
    const said = (row: number) => [reason, noNode, `a row of ${row} came`, 'HEDDLE_RANK_LOST: rank 1'];
    expect(lines.map((line) => line.slice(0, reason.length))).toEqual([...said(8), ...said(7)]);
  },
);

test('vLLM and SGLang call rounds in their own words', needing('cc', 'torch'), async () => {
  build();
  const layer = { ranks: 1, tokens: 8, hidden: 128, experts: 4, topk: 2, weighting: 'plan' } as const;
  for (const split of [false, true]) {
    const sorted = 'ranks=1, experts=4, top_k=2, max_tokens=8, hidden=128, sort="masked", alignment=16';
    const [key] = keysOf(`${sorted}, split=${split ? 'True' : 'False'}`);
    const experts = { form: 'masked', alignment: 16, capacity: 16 } as const;
    await write(join(shapes, `${key}.heddle`), layer, split, experts);
  }
  const { lines } = python([join(root, 'test/python/adapters.py')]);
  expect(lines).toEqual([
    'HEDDLE_ARGUMENT: num_experts is 8; it must be 4, as the Buffers are made for',
    "HEDDLE_ARGUMENT: dispatch is same; it must be 'fp8' where experts take e4m3 in blocks of 128, and else 'same'",
    'both',
  ]);
});

test(
  'transformers hands over the weights of four models, those of fp8 and of four bits, and its tokens',
  needing('transformers'),
  () => {
    cpSync(join(root, 'python/heddle'), inFolder('heddle'), { recursive: true });
    const { lines } = python([join(root, 'test/python/hook.py')]);
    expect(lines).toEqual(
      ['qwen3_moe', 'deepseek_v3', 'mixtral', 'gpt_oss', 'fp8', 'mxfp4'].map((model) => `${model} agrees`),
    );
    const help = python([join(root, 'examples/python/generate.py'), '--help']);
    expect(help.lines[0]).toContain('--model {qwen3_moe,deepseek_v3,gpt_oss}');
  },
);

test('gradients are those of finite differences and of a step of one process, and so are generated tokens', {
  ...needing('transformers'),
  timeout: 240_000,
}, () => {
  cpSync(join(root, 'python/heddle'), inFolder('heddle'), { recursive: true });
  const { lines } = python([join(root, 'test/python/one_process.py')]);
  const tokens = (model: string) => ['[2, 3]', '[2, 0]'].map((of) => `${model}: tokens of ${of} prompts`);
  const trained = (model: string) => [`${model}: gradients`, ...tokens(model)];
  const all = ['finite differences: gradients', ...trained('qwen3_moe'), ...trained('deepseek_v3')];
  expect(lines).toEqual([...all, ...tokens('gpt_oss'), ...trained('mixtral')].map((name) => `${name} agree`));
});

test('types of the package hold', needing('torch', 'mypy'), () => {
  const { status, stdout } = spawnSync(
    'mypy',
    ['--strict', '--no-warn-unused-ignores', '--cache-dir', '/dev/null', 'python/heddle'],
    { cwd: root, encoding: 'utf8' },
  );
  expect(stdout).toMatch(/^Success/);
  expect(status).toBe(0);
});

describe('the wheel', needing('cc', 'python3'), () => {
  test('installs, lists its files with their digests, and brings JavaScript that exports', () => {
    const how = { cwd: root, encoding: 'utf8', timeout: 240_000 } as const;
    const wheel = execFileSync('npx', ['tsx', 'scripts/wheel.ts', inFolder('wheel')], how).trim();
    expect(wheel).toMatch(/heddle-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl$/);
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
    const installed = inFolder('installed');
    execFileSync('python3', ['-m', 'zipfile', '-e', wheel, installed]);
    const records = readFileSync(join(installed, `heddle-${version}.dist-info/RECORD`), 'utf8').trim();
    for (const line of records.split('\n').slice(0, -1)) {
      const [, file, digest, bytes] = /^(.+),sha256=(.+),(\d+)$/.exec(line)!;
      const contents = readFileSync(join(installed, file!));
      expect(contents).toHaveLength(Number(bytes));
      expect(createHash('sha256').update(contents).digest('base64url')).toBe(digest);
    }
    const here = { ...how, env: { ...process.env, PYTHONPATH: installed } };
    const said = execFileSync('python3', ['-m', 'heddle', '--version'], here).trim();
    expect(said).toBe(version);
    const main = join(installed, 'heddle/_js/dist/cli/main.js');
    const shape = ['export', 'one-sided', '--shape', 'ranks=2,tokens=8,hidden=64,experts=4,topk=2'];
    execFileSync('node', [main, ...shape, '--format', 'shape', '--arch', 'none', '--out', inFolder('made')]);
    expect(readFileSync(inFolder('made/heddle.heddle'), 'latin1').slice(0, 8)).toBe('heddle 4');
  });
});
