/** What the editor says about kernels: checked by tsc, not at run time. */
import { expect, expectTypeOf, test } from 'vitest';
import {
  type bf16,
  callable,
  constant,
  device,
  type f32,
  field,
  type i32,
  type Kernel,
  kernel,
  layout,
  list,
  type Peers,
  type Pointer,
  peers,
  pointer,
  type Registers,
  record,
  registers,
  type u32,
  type u64,
  type v16,
  windowOf,
} from '../../src/lang/index.js';

const window = layout('window', {
  flags: field('u32', 8),
  rows: [field('v16', 4), field('v16', 4)],
  halves: field('bf16', 16),
});
const gather = device(
  {
    params: {
      mine: windowOf(window),
      rows: registers('v16', 2),
      of: record({ at: 'u32', values: list('f32', 2) }),
      pick: callable({ row: 'u32' }, 'v16'),
      n: constant(),
      type: constant<'bf16' | 'f32'>(),
    },
    returns: record({ first: 'v16', rows: registers('v16', 2) }),
  },
  (_g, { mine, rows, of, pick, n, type }) => {
    expectTypeOf(mine.flags).toEqualTypeOf<Pointer<'u32'>>();
    expectTypeOf(rows).toEqualTypeOf<Registers<'v16'>>();
    expectTypeOf(of.values).toEqualTypeOf<readonly f32[]>();
    expectTypeOf(n).toEqualTypeOf<number>();
    expectTypeOf(type).toEqualTypeOf<'bf16' | 'f32'>();
    expectTypeOf(pick({ row: of.at })).toEqualTypeOf<v16>();
    // @ts-expect-error: its parameter is called row
    pick({ at: of.at });
    return { first: pick({ row: 0 }), rows };
  },
);
const addOne = device({ params: { x: 'u32' }, returns: 'u32' }, (_g, { x }) => x + 1);

test('a device function takes and returns what its header says', () => {
  expectTypeOf(gather).returns.toEqualTypeOf<{ readonly first: v16; readonly rows: Registers<'v16'> }>();
  const other = device({ params: { x: 'u32' }, returns: 'u32' }, (_g, { x }) => x);
  const taker = device({ params: { f: callable({ x: 'u32' }, 'u32'), h: callable({ y: 'f32' }) } }, () => {});
  device({ params: {}, using: { taker, other } }, (_g, _p, { taker, other }) => {
    // @ts-expect-error: `other` wants x, and h would give y
    taker({ f: other, h: other });
  });
  expect(() =>
    // @ts-expect-error: a kernel takes what a host can pass
    kernel({ name: 'k', params: { rows: registers('v16') } }, () => {}),
  ).toThrow(/HK201/);
});

test('parameters and using values have their types in the body', () => {
  kernel(
    {
      name: 'inferred',
      params: {
        win: peers(window),
        out: pointer('f32'),
        many: list(pointer('v16'), 2),
        n: 'u32',
        w: 'u64',
        q: 'bool',
      },
      using: { EP: 8, mode: 'sum', flag: true as boolean, sizes: [1, 2], addOne },
    },
    (g, { win, out, many, n, w, q }, { EP, mode, flag, sizes, addOne }) => {
      expectTypeOf(win).toExtend<Peers<typeof window.spec>>();
      expectTypeOf(win.at(0).flags).toEqualTypeOf<Pointer<'u32'>>();
      expectTypeOf(win.at(0).rows[1]!).toEqualTypeOf<Pointer<'v16'>>();
      expectTypeOf(out).toEqualTypeOf<Pointer<'f32'>>();
      expectTypeOf(many).toEqualTypeOf<readonly Pointer<'v16'>[]>();
      expectTypeOf(n).toEqualTypeOf<u32>();
      expectTypeOf(w).toEqualTypeOf<u64>();
      expectTypeOf(q).toEqualTypeOf<boolean>();
      expectTypeOf(EP).toEqualTypeOf<number>();
      expectTypeOf(mode).toEqualTypeOf<string>();
      expectTypeOf(flag).toEqualTypeOf<boolean>();
      expectTypeOf(sizes).toEqualTypeOf<number[]>();
      expectTypeOf(addOne({ x: n })).toEqualTypeOf<u32>();
      expectTypeOf(g.load(win.at(0).halves)).toEqualTypeOf<bf16>();
      expectTypeOf(g.load(many[0]!)).toEqualTypeOf<v16>();
      expectTypeOf(g.lane(g.load(many[0]!), 'f32', 0)).toEqualTypeOf<f32>();
    },
  );
});

test('what is wrong is an error in the editor', () => {
  kernel(
    {
      name: 'wrong',
      params: { win: peers(window), out: pointer('f32'), n: 'u32', i: 'i32' },
      using: { addOne },
    },
    (g, { win, out, n, i }, { addOne }) => {
      // @ts-expect-error an i32 is no u32
      g.warp.shuffle(n, i);
      // @ts-expect-error no such field
      win.at(0).flag;
      // @ts-expect-error a bf16 cannot be computed with
      g.load(win.at(0).halves) + 1;
      // @ts-expect-error bits of a bf16 are no f32
      g.store(out, g.load(win.at(0).halves));
      // @ts-expect-error a pointer to another type
      g.awaitEpoch(out, n, { order: 'acquire', scope: 'sys', limit: 1 });
      // @ts-expect-error an atomic must say its order and scope
      g.atomicAdd(win.at(0).flags, 1);
      // @ts-expect-error a load does not release
      g.load(out, { order: 'release', scope: 'sys' });
      // @ts-expect-error a missing argument
      addOne({});
      // @ts-expect-error an argument too many
      addOne({ x: n, y: n });
    },
  );
  // Never called: these would fail at run time too.
  expectTypeOf(() => {
    // @ts-expect-error no such type
    pointer('double');
    // @ts-expect-error no such parameter type
    kernel({ name: 'wrong', params: { x: 'double' } }, () => {});
    // @ts-expect-error the header promises a u32
    device({ params: {}, returns: 'u32' }, () => {});
  }).toBeFunction();
});

test('a kernel keeps the types of its parameters', () => {
  const made = kernel({ name: 'kept', params: { n: 'u32', out: pointer('f32') } }, () => {});
  expectTypeOf(made).toExtend<Kernel>();
  expectTypeOf(made.params.n).toEqualTypeOf<'u32'>();
  expectTypeOf(made.params.out.to).toEqualTypeOf<'f32'>();
  expectTypeOf<i32>().toExtend<number>();
});
