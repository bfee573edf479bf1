/** Foreign functions: called in CUDA, stood for by their twins everywhere else. */
import { describe, expect, test } from 'vitest';
import {
  field,
  foreign,
  foreignSources,
  KernelError,
  kernel,
  layout,
  peers,
  pointer,
  printCuda,
  printIr,
} from '../../src/lang/index.js';
import { type CheckConfiguration, check, mutantsOf, WrongResult } from '../../src/verify/check/index.js';
import { download, launch, ranksOn, windowsOf } from '../gpu/sim/harness.js';
import { needing } from '../needs.js';
import { compileCuda } from './cuda/nvcc.js';
import { evaluate } from './evaluate.js';
import { validateIr } from './validate.js';

/** One word, and behind it a flag. */
const putSignal = foreign(
  {
    name: 'net_put_signal',
    header: 'net.h',
    params: { to: pointer('u32'), value: 'u32', signal: pointer('u32'), epoch: 'u32' },
    effects: { writes: ['to', 'signal'], orders: ['release.sys'] },
  },
  (g, { to, value, signal, epoch }) => {
    g.store(to, value);
    g.store(signal, epoch, { order: 'release', scope: 'sys' });
  },
);

const least = foreign(
  {
    name: 'least',
    params: { of: pointer('u32'), count: 'u32', otherwise: 'u32' },
    returns: 'u32',
    effects: { reads: ['of'] },
  },
  (g, { of, count, otherwise }) => {
    if (count === 0) return otherwise;
    let found = g.load(of);
    for (let i = g.u32(1); i < count; i++) {
      const next = of.at(i);
      found = g.min(found, g.load(next));
    }
    return found;
  },
);

const leastOf = kernel(
  { name: 'least_of', params: { from: pointer('u32'), out: pointer('u32') }, using: { least } },
  (g, { from, out }, u) => {
    const net_put_signal = u.least({ of: from.at(1), count: 3, otherwise: 9 });
    g.store(out, net_put_signal + u.least({ of: from, count: 0, otherwise: 100 }));
    u.least({ of: from, count: 1, otherwise: 0 });
  },
);

const Post = layout('post', { word: field('u32', 1), arrived: field('u32', 1) });

const post = (order: 'acquire' | 'relaxed') =>
  kernel(
    {
      name: 'post',
      params: { win: peers(Post), out: pointer('u32') },
      using: { putSignal, ORDER: order },
    },
    (g, { win, out }, u) => {
      const there = win.at(1);
      if (g.rank === 0) u.putSignal({ to: there.word, value: 7, signal: there.arrived, epoch: 1 });
      else {
        g.awaitEpoch(there.arrived, 1, { order: u.ORDER, scope: 'sys', limit: 1000 });
        g.store(out, g.load(there.word));
      }
    },
  );

const configuration = (order: 'acquire' | 'relaxed'): CheckConfiguration => ({
  name: order,
  ranks: 2,
  async run(machine) {
    const ranks = ranksOn(machine, 2);
    const windows = await windowsOf(ranks, Post.bytes, 'post');
    const outs = ranks.map(({ device }) => device.allocate(4, 'out'));
    for (const on of ranks) {
      await launch(on, post(order).ir(), { block: 1 }, { win: windows[on.rank]!, out: outs[on.rank]! });
    }
    const [got] = new Uint32Array(await download(ranks[1]!, outs[1]!));
    if (got !== 7) throw new WrongResult(`${got} arrived`);
    await ranks[0]!.stream.synchronize();
  },
});
const subject = (order: 'acquire' | 'relaxed') => ({
  name: 'posts',
  kernels: ['post'],
  configurations: [configuration(order)],
});

describe('in CUDA', () => {
  test('is a call, after the file that declares it', () => {
    const text = printCuda(post('acquire').ir(), { lineDirectives: false });
    expect(text).toContain('#include "net.h"\n\nusing i32');
    expect(text).toContain(
      'net_put_signal(peer<u32>(win, 1u, post_offset::word), 7u, peer<u32>(win, 1u, post_offset::arrived), 1u);',
    );
    expect(text).not.toContain('store_release');
  });
  test('is declared where no file does, and the name is its own', () => {
    const text = printCuda([leastOf.ir(), post('acquire').ir()], { lineDirectives: false });
    expect(text).toContain('extern "C" __device__ u32 least(u32*, u32, u32);');
    expect(text).toContain('const u32 net_put_signal_2 = least(from + 1u, 3u, 9u);');
    expect(text).toContain('  least(from, 1u, 0u);');
  });
  test('compiles', { timeout: 60_000, ...needing('nvcc') }, async () => {
    const files = {
      'net.h':
        '__device__ inline void net_put_signal(unsigned* to, unsigned value, unsigned* signal, unsigned epoch) { *to = value; __threadfence_system(); *signal = epoch; }',
    };
    const { kernels, warnings } = await compileCuda(printCuda(post('acquire').ir()), 'sm_90a', files);
    expect(warnings).toEqual([]);
    expect(kernels.map(({ name }) => name)).toEqual(['post_kernel']);
  });
});

test('a kernel knows what defines its foreign functions, once', () => {
  const source = { name: 'net', find: () => ({ text: '', folders: [] }) };
  const none = () => {};
  const one = foreign({ name: 'one', source, params: {}, effects: {} }, none);
  const other = foreign({ name: 'other', source, params: {}, effects: {} }, none);
  const both = kernel({ name: 'both', params: {}, using: { one, other } }, (g, _, u) => {
    if (g.threadIdx.x === 0) u.one({});
    else u.other({});
  });
  expect([...foreignSources(both.ir())]).toEqual([source]);
  expect([...foreignSources(leastOf.ir())]).toEqual([]);
  expect(printCuda(both.ir())).toContain('extern "C" __device__ void other();');
});

describe('elsewhere', () => {
  test('is its twin', async () => {
    const module = leastOf.ir();
    expect(validateIr(module)).toEqual([]);
    expect(printIr(module)).toContain('= least(');
    expect(await evaluate(module, { from: [1, 5, 3, 4] })).toEqual([103]);
  });
  test('is checked: the twin’s orders are mutants, and each is missed', async () => {
    const { findings, mutants } = await check([subject('acquire')], { seeds: 8, mutants: true });
    expect(findings).toEqual([]);
    expect(mutants.survivors).toEqual([]);
    const inTwin = mutantsOf(post('acquire').ir()).filter(({ text }) => text.includes('g.store(signal'));
    expect(inTwin.map(({ description }) => description)).toEqual(['release → relaxed', 'sys → gpu']);
  });
  test('a race with it names its line and the other', async () => {
    const { findings } = await check([subject('relaxed')], { seeds: 8 });
    const race = findings.find(({ kind }) => kind === 'race');
    expect(JSON.stringify(race)).toContain('g.store(to, value)');
    expect(JSON.stringify(race)).toContain('g.load(there.word)');
  });
});

describe('a declaration', () => {
  const none = () => {};
  const params = { to: pointer('u32'), from: pointer('u32') } as const;
  const codeOf = (make: () => unknown): string => {
    try {
      make();
    } catch (error) {
      if (error instanceof KernelError) return `${error.code} ${error.message}`;
      throw error;
    }
    return 'none';
  };
  test.each([
    [{ name: 'int' }, /HK203.*int means something else in CUDA/s],
    [{ name: 'a b' }, /HK203/],
    [{ header: 'a"\n#define b' }, /HK203.*header is/s],
    [{ params: { a: 'v16' } }, /HK201.*parameter a/s],
    [{ returns: 'v16' }, /HK201.*returns is/s],
    [{ effects: { reads: ['there'] } }, /HK203.*no pointer in params/s],
    [{ effects: { orders: ['release'] } }, /HK203.*release\.sys/s],
  ])('is refused with %o', (change, message) => {
    const header = { name: 'put', params, effects: {}, ...change };
    expect(codeOf(() => foreign(header as never, none))).toMatch(message);
  });

  test.each([
    [{ effects: { warp: 1 } }, /effects\.warp is 1/],
    [{ source: { name: 'net' } }, /source\.find is undefined/],
  ])('needs the right kinds of things: %o', (change, message) => {
    expect(() => foreign({ name: 'put', params, effects: {}, ...change } as never, none)).toThrow(message);
  });

  const made = (effects: object, twin: string) => {
    const put = foreign({ name: 'put', params, effects } as never, new Function(`return ${twin}`)());
    return kernel({ name: 'k', params: { a: pointer('u32') }, using: { put } }, (_g, { a }, u) =>
      (u.put as (given: object) => void)({ to: a, from: a }),
    );
  };
  test.each([
    [{}, '(g, { to }) => { g.store(to, 1); }', /HK704 put writes to here/],
    [{}, '(g, { to }) => { const p = to.at(3); g.store(p.as("f32"), 1); }', /HK704 put writes to here/],
    [{ writes: ['to'] }, '(g, { to, from }) => { g.store(to, g.load(from)); }', /HK704 put reads from here/],
    [
      { writes: ['to'] },
      '(g, { to }) => { g.store(to, 1, { order: "release", scope: "gpu" }); }',
      /HK704 put orders as release\.gpu here/,
    ],
    [{ reads: ['from'] }, '() => {}', /HK704 put says that it reads from, but its twin never does/],
    [{ orders: ['seq_cst.sys'] }, '(g) => { g.fence("sys"); }', /HK704 put orders as acq_rel\.sys here/],
    [{}, '(g) => { g.barrier(); }', /HK704 put has a twin with g\.barrier/],
    [{ warp: true }, '(g) => { g.barrier(); }', /HK704 put has a twin with g\.barrier/],
    [{}, '(g) => { g.warp.barrier(); }', /HK704 put has a twin with g\.warp\.barrier/],
    [{ warp: true }, '(g) => { g.warp.barrier(); }', /^none$/],
  ])('must be what the twin does: %o %s', (effects, twin, message) => {
    expect(codeOf(() => made(effects, twin).ir())).toMatch(message);
  });
  test('may follow pointers about', () => {
    const twin =
      '(g, { to, from }) => { let p = from; p = p.at(1); g.store(to.at(g.load(p)), 1); g.fence("sys"); }';
    expect(codeOf(() => made({ reads: ['from'], writes: ['to'], orders: ['acq_rel.sys'] }, twin).ir())).toBe(
      'none',
    );
  });
});
