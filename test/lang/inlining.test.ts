/** Device functions take the place of their calls: what goes in and out, returning early, names, places. */
import { describe, expect, test } from 'vitest';
import {
  callable,
  constant,
  device,
  field,
  type IrModule,
  kernel,
  layout,
  list,
  peers,
  pointer,
  printCuda,
  printIr,
  record,
  registers,
  windowOf,
} from '../../src/lang/index.js';
import { mutantsOf, mutate } from '../../src/verify/check/index.js';
import { evaluate } from './evaluate.js';
import { validateIr } from './validate.js';

const window = layout('window', { flags: field('u32', 3) });

/** What a thread leaves in `out`. */
function run(...[module, args]: Parameters<typeof evaluate>): Promise<number[]> {
  expect(validateIr(module)).toEqual([]);
  return evaluate(module, args);
}
const cuda = (module: IrModule): string => printCuda([module], { lineDirectives: false });

describe('what goes in', () => {
  test('vectors, windows, records and lists of them', () => {
    const put = device(
      {
        params: {
          mine: windowOf(window),
          what: record({ value: 'u32', to: list(pointer('v16'), 2), vector: 'v16' }),
        },
      },
      (g, { mine, what }) => {
        g.store(mine.flags.at(1), what.value);
        g.store(what.to[1]!, what.vector);
      },
    );
    const made = kernel(
      { name: 'k', params: { win: peers(window), rows: pointer('v16') }, using: { put } },
      (g, { win, rows }, u) => {
        const what = { value: g.laneId, to: [rows, rows.at(4)], vector: g.load(rows) };
        u.put({ mine: win.at(g.rank), what });
      },
    );
    expect(validateIr(made.ir())).toEqual([]);
    expect(printIr(made.ir())).toContain('store win#0.at(rank).flags[1:u32], laneId');
    expect(printIr(made.ir())).toMatch(/store to1#\d+, loaded#\d+/);
  });

  test('another device function', async () => {
    const double = device({ params: { x: 'u32' }, returns: 'u32' }, (_g, { x }) => x * 2);
    const square = device({ params: { x: 'u32' }, returns: 'u32' }, (_g, { x }) => x * x);
    const apply = device(
      { params: { f: callable({ x: 'u32' }, 'u32'), n: 'u32', out: pointer('u32') } },
      (g, { f, n, out }) => g.store(out.at(n), f({ x: n + 1 })),
    );
    const made = kernel(
      { name: 'k', params: { out: pointer('u32'), n: 'u32' }, using: { apply, double, square } },
      (_g, { out, n }, { apply, double, square }) => {
        apply({ f: double, n, out });
        apply({ f: square, n: n + 1, out });
      },
    );
    expect(await run(made.ir(), { n: 0 })).toEqual([2, 4]);
  });

  test('constants stay constants, whether the header promises it or not', () => {
    const each = device(
      { params: { n: constant(), m: 'u32', type: constant<'u8' | 'u32'>(), out: pointer('v16') } },
      (g, { n, m, type, out }) => {
        for (const i of g.unroll(n)) {
          for (const j of g.unroll(m)) g.store(out.at(i * 2 + j).as('u32'), g.lane(g.load(out), type, i));
        }
      },
    );
    const of = (n: 'constant' | 'runtime') =>
      kernel(
        { name: 'k', params: { out: pointer('v16'), n: 'u32' }, using: { each, KNOWN: n === 'constant' } },
        (_g, { out, n }, { each, KNOWN }) => each({ n: KNOWN ? 2 : n, m: 2, type: 'u8', out }),
      );
    expect(validateIr(of('constant').ir())).toEqual([]);
    expect(() => of('runtime').ir()).toThrow(/HK501 n of each must be a constant/);
  });
});

describe('what comes out', () => {
  test('a register array', async () => {
    const squares = device({ params: { from: 'u32' }, returns: registers('u32', 3) }, (g, { from }) => {
      const values = g.registers('u32', 3, from);
      for (const i of g.unroll(3)) values[i]! += i * i;
      return values;
    });
    const made = kernel(
      { name: 'k', params: { out: pointer('u32'), n: 'u32' }, using: { squares } },
      (g, { out, n }, { squares }) => {
        const first = squares({ from: n });
        const second = squares({ from: 100 });
        first[0]! += second[2]!;
        for (const i of g.unroll(3)) g.store(out.at(i), first[i]!);
      },
    );
    expect(await run(made.ir(), { n: 5 })).toEqual([109, 6, 9]);
  });

  test('a record, of run-time values and constants', async () => {
    const split = device(
      { params: { x: 'u32' }, returns: record({ low: 'u32', high: 'u32', bits: constant() }) },
      (_g, { x }) => {
        if (x === 0) return { low: 1, high: 2, bits: 4 };
        return { low: x % 16, high: x / 16, bits: 4 };
      },
    );
    const made = kernel(
      { name: 'k', params: { out: pointer('u32'), n: 'u32' }, using: { split } },
      (g, { out, n }, { split }) => {
        const { low, high, bits } = split({ x: n });
        for (const i of g.unroll(bits)) g.store(out.at(i), i === 0 ? low : high);
      },
    );
    expect(await run(made.ir(), { n: 0x53 })).toEqual([3, 5, 5, 5]);
    expect(await run(made.ir(), { n: 0 })).toEqual([1, 2, 2, 2]);
  });

  test('different register arrays cannot', () => {
    const either = device(
      { params: { a: registers('u32'), b: registers('u32'), first: 'bool' }, returns: registers('u32') },
      (_g, { a, b, first }) => {
        if (first) return a;
        return b;
      },
    );
    const made = kernel({ name: 'k', params: { q: 'bool' }, using: { either } }, (g, { q }, { either }) => {
      const a = g.registers('u32', 2);
      const b = g.registers('u32', 2);
      const c = either({ a, b, first: q });
      c[0] = 1;
    });
    expect(() => made.ir()).toThrow(/HK607 the returns of either give different things/);
  });
});

describe('printed CUDA', () => {
  const last = device(
    { name: 'last', params: { from: pointer('u32'), n: 'u32' }, returns: 'u32' },
    (g, { from, n }) => {
      if (n === 0) return 0;
      let found = 0;
      for (let i = 0; i < n; i++) {
        const x = g.load(from.at(i));
        if (x === 5) return 5;
        found = x;
      }
      return found;
    },
  );
  const made = kernel(
    { name: 'k', params: { from: pointer('u32'), n: 'u32' }, using: { last } },
    (g, { from, n }, { last }) => {
      const a = last({ from, n });
      const b = last({ from: from.at(1), n });
      g.store(from, a + b);
    },
  );
  test('keeps names, names the function, and jumps only out of loops', () => {
    const body = cuda(made.ir()).split('u32 rank) {\n')[1]!;
    expect(body.slice(0, body.indexOf('u32 b;'))).toBe(`  u32 a;
  {  // last
    if (n == 0u) {
      a = 0u;
    } else {
      u32 found = 0u;
      for (u32 i = 0u; i < n; ++i) {
        const u32 x = load(from + i);
        if (x == 5u) {
          a = 5u;
          goto after_last;
        }
        found = x;
      }
      a = found;
    }
  }
  after_last:;
  `);
    expect(body).toContain('after_last_2:;');
  });
  test('lines point into the function', () => {
    const lines = printCuda([made.ir()]).split('\n');
    const at = lines.findIndex((line) => line.includes('if (n == 0u)'));
    const inKernel = lines.findIndex((line) => line.includes('store(from, a + b)'));
    const line = (index: number): number =>
      Number(/#line (\d+)/.exec(lines.slice(0, index).findLast((one) => one.startsWith('#line'))!)![1]);
    expect(line(at)).toBeLessThan(line(inKernel));
  });
});

test('a mutant is a place in the source: all inlined copies change together', () => {
  const tell = device({ params: { to: pointer('u32'), x: 'u32' } }, (g, { to, x }) =>
    g.store(to, x, { order: 'release', scope: 'sys' }),
  );
  const made = kernel(
    { name: 'k', params: { to: pointer('u32') }, using: { tell } },
    (_g, { to }, { tell }) => {
      tell({ to, x: 1 });
      tell({ to: to.at(1), x: 2 });
    },
  );
  const mutants = mutantsOf(made.ir());
  expect(mutants.map(({ description }) => description)).toEqual(['release → relaxed', 'sys → gpu']);
  expect(mutants[0]!.text).toContain('g.store(to, x');
  expect(printIr(mutate(made.ir(), mutants[0]!)).match(/relaxed, sys/g)).toHaveLength(2);
});

describe('printed, it reads as if it had been written there', () => {
  const add = device({ name: 'add_up', params: { a: 'u32', b: 'u32' }, returns: 'u32' }, (_g, { a, b }) => {
    let sum = a;
    if (b > 3) sum += b;
    return sum;
  });
  const raise = device({ params: { slots: registers('u32', 2), by: 'u32' } }, (_g, { slots, by }) => {
    slots[0]! += by;
    slots[1]! += by;
  });
  const made = kernel(
    { name: 'k', params: { out: pointer('u32') }, using: { add, raise } },
    (g, { out }, u) => {
      let epoch = g.u32(1);
      if (g.load(out) !== 0) epoch += g.load(out.at(1));
      const slots = g.registers('u32', 2);
      slots[0] = u.add({ a: epoch, b: epoch });
      u.raise({ slots, by: slots[0]! });
      slots[1] = u.add({ a: slots[1]!, b: epoch });
      g.store(out, slots[0]! + slots[1]!);
    },
  );
  const text = cuda(made.ir());

  test('an argument that nothing changes meanwhile keeps its name', () => {
    expect(text).toContain('u32 sum = epoch;\n    if (epoch > 3u) {\n      sum += epoch;');
    // The function writes the register that it was given the value of.
    expect(text).toContain('const u32 by = slots[0];\n    slots[0] += by;');
  });
  test('an effect has no name where it is read at once', () => {
    expect(text).toContain('if (load(out) != 0u) {\n    epoch += load(out + 1u);');
  });
  test('a result goes where it is assigned, unless the function reads what is there', () => {
    expect(text).toContain('slots[0] = sum;');
    expect(text).toContain('u32 add_up_result;');
    expect(text).toContain('slots[1] = add_up_result;');
  });
  test('and computes the same', async () => {
    // epoch is 4; the slots are 8 and 0, then 16 and 8, then 16 and 12.
    expect(await evaluate(made.ir(), { out: [7, 3, 0] })).toEqual([28, 3, 0]);
  });
});
