import { describe, expect, test } from 'vitest';
import {
  device,
  effectsOf,
  field,
  kernel,
  layout,
  list,
  peers,
  pointer,
  printIr,
  rewriteEffects,
  section,
  walkStatements,
} from '../../src/lang/index.js';
import { evaluate } from './evaluate.js';
import { bodyOf as text, validateIr } from './validate.js';

const window = layout('window', { flags: field('u32', 3), rows: [field('v16', 2), field('u8', 5)] });

describe('layouts', () => {
  test('sections start on cache lines; lists get numbered names', () => {
    expect(window.fields.map(({ name, offset }) => [name, offset])).toEqual([
      ['flags', 0],
      ['rows_0', 128],
      ['rows_1', 256],
    ]);
    expect(window.bytes).toBe(384);
    expect(section(window, 'rows', 1).length).toBe(5);
    expect(() => section(window, 'rows')).toThrow('a field of window');
  });
  test('a section of no elements takes no space', () => {
    const empty = layout('w', { none: field('u32', 0), one: field('u32', 1) });
    expect(section(empty, 'one').offset).toBe(0);
  });
  test('nonsense is refused', () => {
    expect(() => field('u32', -1)).toThrow('length is -1');
    expect(() => layout('w', { 'a-b': field('u32', 1) })).toThrow('an identifier');
    expect(() => layout('w', { a: [field('u32', 1)], a_0: field('u32', 1) })).toThrow('unique');
  });
});

test('loads, stores, branches, loops and barriers read as they were written', () => {
  const made = kernel(
    {
      name: 'basics',
      params: { win: peers(window), many: list(pointer('v16'), 2), n: 'u32' },
      using: { EP: 8, FLAG: false },
    },
    (g, { win, many, n }, { EP, FLAG }) => {
      const tile = g.shared('v16', 64);
      for (let i = g.threadIdx.x; i < n; i += g.blockDim.x) {
        if (i % 2 === 0) g.store(tile.at(i), g.load(many[1]!.at(i * EP)));
        else if (FLAG) g.sleep(n);
        else continue;
      }
      g.barrier();
      const there = win.at(n + 1);
      g.store(there.rows[0]!, g.load(tile));
    },
  );
  expect(
    text(made.ir()),
  ).toBe(`function basics(win#0: peers<window>, many_0#1: pointer<v16>, many_1#2: pointer<v16>, n#3: u32)
  for let i#5: u32 = threadIdx; (i#5 < n#3); i#5 = (i#5 + blockDim)
    if ((i#5 % 2:u32) == 0:u32)
      const loaded#6: v16 = load many_1#2[(i#5 * 8:u32)], weak, cta, keep
      store tile#4[i#5], loaded#6, weak, cta, keep
    else
      continue
  barrier
  const thereRank#7: u32 = (n#3 + 1:u32)
  const loaded#8: v16 = load tile#4, weak, cta, keep
  store win#0.at(thereRank#7).rows_0, loaded#8, weak, cta, keep`);
  expect(made.ir().shared.map(({ variable, length }) => [variable.name, length])).toEqual([['tile', 64]]);
  expect(made.ir().specialization).toBe('EP=8, FLAG=false');
});

test('an effect that is the whole initialiser keeps the name of the author', () => {
  const made = kernel({ name: 'named', params: { p: pointer('u32') } }, (g, { p }) => {
    const first = g.load(p);
    let second = g.load(p.at(1));
    second += g.load(p.at(2)) * first;
    g.store(p, second);
  });
  expect(text(made.ir())).toBe(`function named(p#0: pointer<u32>)
  const first#1: u32 = load p#0, weak, cta, keep
  let second#2: u32 = load p#0[1:u32], weak, cta, keep
  const loaded#3: u32 = load p#0[2:u32], weak, cta, keep
  second#2 = (second#2 + (loaded#3 * first#1))
  store p#0, second#2, weak, cta, keep`);
});

test('an effect in the condition of a loop happens on every round, also after continue', async () => {
  const made = kernel(
    { name: 'polls', params: { p: pointer('u32'), out: pointer('u32') } },
    (g, { p, out }) => {
      let i = 0;
      while (g.load(p.at(i)) !== 0) {
        i += 1;
        if (i === 2) continue;
        g.store(out.at(i), i);
      }
      for (let k = 0; g.load(p.at(k)) !== 0; k++) g.store(out.at(10 + k), k);
    },
  );
  const out = await evaluate(made.ir(), { p: [5, 6, 7, 0] });
  expect({ ...out }).toEqual({ 1: 1, 3: 3, 10: 0, 11: 1, 12: 2 });
  expect(validateIr(made.ir())).toEqual([]);
});

test('a loop that never runs leaves what its head has assigned, and what its test has done', async () => {
  const twice = device({ params: { x: 'u32' }, returns: 'u32' }, (_g, { x }) => x * 2);
  const made = kernel(
    { name: 'k', params: { out: pointer('u32'), n: 'u32' }, using: { LIMIT: 0, twice } },
    (g, { out, n }, { LIMIT, twice }) => {
      let i = 7;
      for (i = n; i < LIMIT; i++) g.store(out, 99);
      g.store(out.at(0), i);
      for (i = twice({ x: n }); i < LIMIT; ) g.store(out, 99);
      g.store(out.at(1), i);
      const r = g.registers('u32', 1);
      for (r[0] = n + 1; r[0]! < LIMIT; ) g.store(out, 99);
      g.store(out.at(2), r[0]!);
      for (let j = g.atomicAdd(out.at(3), n, { order: 'relaxed', scope: 'gpu' }); j < LIMIT; )
        g.store(out, j);
      while (g.atomicAdd(out.at(4), n, { order: 'relaxed', scope: 'gpu' }) > 9 && LIMIT > 0) g.store(out, 99);
      for (const k of g.unroll(LIMIT)) g.store(out, k);
      for (let j = n; j < 5; j++) g.store(out, 99);
    },
  );
  expect(validateIr(made.ir())).toEqual([]);
  expect(await evaluate(made.ir(), { n: 5, out: [0, 0, 0, 0, 0] })).toEqual([5, 10, 6, 5, 5]);
});

test('unrolled loops index registers, and constants in them fold', async () => {
  const made = kernel(
    { name: 'unrolled', params: { out: pointer('u32') }, using: { N: 4 } },
    (g, { out }, { N }) => {
      const acc = g.registers('u32', N, 1);
      for (const i of g.unroll(N)) {
        for (const j of g.unroll(i)) if (j % 2 === 0) acc[i]! += 10 * j + acc[j]!;
      }
      for (const i of g.unroll(N)) g.store(out.at(i), acc[i]!);
    },
  );
  expect(text(made.ir()).split('\n').slice(1, 6)).toEqual([
    '  registers acc#1: u32[4] = 1:u32',
    '  acc#1[1] = (acc#1[1] + acc#1[0])',
    '  acc#1[2] = (acc#1[2] + acc#1[0])',
    '  acc#1[3] = (acc#1[3] + acc#1[0])',
    '  acc#1[3] = (acc#1[3] + (20:u32 + acc#1[2]))',
  ]);
  expect(await evaluate(made.ir())).toEqual([1, 2, 2, 24]);
});

test('dead branches are not looked at, beyond their syntax', () => {
  const made = kernel(
    { name: 'dead', params: { out: pointer('f32'), n: 'u32' }, using: { FLOATS: true, MODE: 'a' } },
    (g, { out, n }, { FLOATS, MODE }) => {
      if (!FLOATS) g.store(out.as('u32'), ((n as unknown as string) + 1.5) as never);
      if (MODE === 'b' || !FLOATS) nowhere(n);
      const x = MODE === 'a' ? 1.5 : nowhere(n);
      if (FLOATS) {
        g.store(out, x);
        return;
      }
      nowhere(n);
    },
  );
  expect(text(made.ir())).toBe(`function dead(out#0: pointer<f32>, n#1: u32)
  store out#0, 1.5:f32, weak, cta, keep
  return`);
});
declare function nowhere(n: number): number;

test('a window view that is kept does not follow a variable that changes later', () => {
  const made = kernel({ name: 'kept', params: { win: peers(window) } }, (g, { win }) => {
    let peer = 0;
    const there = win.at(peer);
    peer += 1;
    g.store(there.flags, peer);
  });
  expect(text(made.ir())).toContain('store win#0.at(thereRank#2).flags, peer#1');
});

test('a device function cannot be called by the host', () => {
  const none = device({ params: {} }, () => {});
  expect(() => none({} as never)).toThrow('called inside a kernel body only');
});

test('constants without a width take the type of what they meet', () => {
  const made = kernel(
    { name: 'constants', params: { out: pointer('f32'), i: 'i32', w: 'u64', u: 'u32' }, using: { N: 6 } },
    (g, { out, i, w, u }, { N }) => {
      const half = N / 2;
      const a = i + half;
      const b = u * half;
      const c = w << 3n;
      const d = u & ~3;
      let zero = 0;
      let minus = -1;
      let third = 0.1;
      zero += b;
      minus += a;
      third += half;
      g.store(out, third + g.f32(zero) + g.f32(minus) + g.f32(g.u32(c)) + g.f32(d));
    },
  );
  const lines = text(made.ir())
    .split('\n')
    .slice(1, 8)
    .map((line) => line.trim());
  expect(lines).toEqual([
    'const a#4: i32 = (i#1 + 3:i32)',
    'const b#5: u32 = (u#3 * 3:u32)',
    'const c#6: u64 = (w#2 << 3:u32)',
    'const d#7: u32 = (u#3 & 4294967292:u32)',
    'let zero#8: u32 = 0:u32',
    'let minus#9: i32 = -1:i32',
    'let third#10: f32 = 0.10000000149011612:f32',
  ]);
});

test('parameters may be taken apart in any usual way', () => {
  const params = { win: peers(window), n: 'u32', many: list(pointer('u32'), 2) } as const;
  const using = { A: { b: [1, 2] } };
  const shapes = [
    kernel({ name: 'k', params, using }, (g, { win, n, many }, { A }) =>
      g.store(win.at(n).flags.at(A.b[1]!), g.load(many[1]!)),
    ),
    kernel({ name: 'k', params, using }, (g, p, u) =>
      g.store(p.win.at(p.n).flags.at(u.A.b[1]!), g.load(p.many[1]!)),
    ),
    kernel(
      { name: 'k', params, using },
      (
        { store, load },
        { n: rank, many: [, from], win },
        {
          A: {
            b: [, two],
          },
        },
      ) => {
        store(win.at(rank).flags.at(two!), load(from!));
      },
    ),
    kernel({ name: 'k', params, using }, (g, p, u) => {
      const { win, n, many } = p;
      const index = u.A.b[1]!;
      const { flags } = win.at(n);
      g.store(flags.at(index), g.load(many[1]!));
    }),
  ];
  const [first, ...others] = shapes.map((made) => text(made.ir()));
  expect(first).toContain('store win#0.at(n#1).flags[2:u32], loaded#4');
  expect(others.slice(0, 2)).toEqual([first, first]);
  expect(others[2]).toContain('[2:u32]');
});

test('an effect in what an initialiser calls happens once', () => {
  const made = kernel({ name: 'taken', params: { out: pointer('u32'), n: 'u32' } }, (g, { out, n }) => {
    const place = out.at(g.atomicAdd(out, 1, { order: 'relaxed', scope: 'gpu' })).at(n);
    g.store(place, 5);
  });
  expect(text(made.ir())).toBe(`function taken(out#0: pointer<u32>, n#1: u32)
  const before#2: u32 = atomicAdd out#0, 1:u32, relaxed, gpu
  const place#3: pointer<u32> = out#0[before#2][n#1]
  store place#3, 5:u32, weak, cta, keep`);
});

test('a module is compiled once', () => {
  const made = kernel({ name: 'cached', params: {} }, (g) => g.barrier());
  expect(made.ir()).toBe(made.ir());
});

describe('walking and rewriting', () => {
  const made = kernel({ name: 'walked', params: { p: pointer('u32'), n: 'u32' } }, (g, { p, n }) => {
    if (n > 1) {
      g.store(p, n, { order: 'release', scope: 'sys' });
      while (g.load(p.at(1), { order: 'acquire', scope: 'sys' }) < n) g.sleep(5);
    }
    g.fence('gpu');
  });
  test('effects come in source order, each with its place', () => {
    const found = effectsOf(made.ir());
    expect(found.map(({ effect, index }) => [effect.op, index])).toEqual([
      ['store', 0],
      ['load', 1],
      ['sleep', 2],
      ['fence', 3],
    ]);
    const { text: source } = made.ir().sources[0]!;
    expect(found.map(({ span }) => source.slice(span.start, span.end))[3]).toContain('g.fence(');
  });
  test('one effect can be removed or changed, and the original stays', () => {
    const before = printIr(made.ir());
    const without = rewriteEffects(made.ir(), (stmt, index) => (index === 3 ? [] : [stmt]));
    const weaker = rewriteEffects(made.ir(), (stmt, index) =>
      index === 1 && stmt.effect.op === 'load'
        ? [{ ...stmt, effect: { ...stmt.effect, order: 'relaxed' } }]
        : [stmt],
    );
    expect(printIr(made.ir())).toBe(before);
    expect(printIr(without)).toBe(before.replace('  fence gpu, acq_rel\n', ''));
    expect(printIr(weaker)).toBe(before.replace('acquire', 'relaxed'));
    expect(rewriteEffects(made.ir(), (stmt) => [stmt]).entry).toBe(made.ir().entry);
  });
  test('statements are visited outer ones first', () => {
    const kinds: string[] = [];
    walkStatements(made.ir().entry.body, (stmt) => kinds.push(stmt.kind));
    expect(kinds).toEqual(['if', 'effect', 'while', 'effect', 'if', 'break', 'effect', 'effect']);
  });
});

test('the validator sees what is wrong', () => {
  const sound = kernel({ name: 'sound', params: { p: pointer('u32'), f: 'f32' } }, (g, { p, f }) => {
    const x = g.load(p);
    g.store(p.at(x), g.u32(f));
  }).ir();
  expect(validateIr(sound)).toEqual([]);
  const [load, store] = sound.entry.body;
  const wrong = (body: readonly unknown[]): string =>
    validateIr({ ...sound, entry: { ...sound.entry, body: body as typeof sound.entry.body } }).join();
  expect(wrong([store])).toContain('x#2 is used where it is not declared');
  expect(wrong([load, load])).toContain('declared twice');
  expect(wrong([{ kind: 'break', span: load!.span }])).toContain('outside a loop');
  const misfit = rewriteEffects(sound, (stmt) =>
    stmt.effect.op === 'store'
      ? [
          {
            ...stmt,
            effect: {
              ...stmt.effect,
              value: { kind: 'const', type: { kind: 'value', name: 'f32' }, value: 0.1 },
            },
          },
        ]
      : [stmt],
  );
  expect(validateIr(misfit).join()).toMatch(/0\.1 is no f32.*store is f32, not u32/);
});
