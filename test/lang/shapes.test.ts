/** Shaped fields: the arithmetic, the views, and what the checked simulator says of an index outside. */
import { describe, expect, expectTypeOf, test } from 'vitest';
import {
  device,
  field,
  kernel,
  layout,
  type Pointer,
  peers,
  printCuda,
  section,
  windowOf,
} from '../../src/lang/index.js';
import { bodyOf as text, validateIr } from './validate.js';

const [ranks, tokens, units] = [2, 8, 5];
const window = layout('window', {
  payloads: [
    field('v16', [ranks, tokens, units], ['source', 'token', 'unit']),
    field('v16', [ranks, tokens, 3]),
  ],
  ids: field('i32', [ranks, tokens]),
  absent: field('u32', [ranks, 0]),
  flags: field('u32', 6),
});

test('a field has the elements of all its dimensions', () => {
  expect(section(window, 'payloads', 0)).toMatchObject({ length: 80, shape: [2, 8, 5], offset: 0 });
  expect(section(window, 'absent').length).toBe(0);
  expect(section(window, 'flags')).toMatchObject({ length: 6, shape: [6] });
});

test('nonsense is refused', () => {
  expect(() => field('u32', [])).toThrow(/number of dimensions is 0/);
  expect(() => field('u32', [2, -1])).toThrow(/shape\[1\] is -1/);
  expect(() => field('u32', [2 ** 16, 2 ** 16])).toThrow(/number of elements/);
  expect(() => field('u32', [2, 2], ['row'])).toThrow(/2 names/);
});

describe('indices', () => {
  test('all of them, some of them, or one after another: the same element', () => {
    const made = kernel(
      { name: 'k', params: { win: peers(window), r: 'u32', t: 'i32', i: 'u32' } },
      (g, { win, r, t, i }) => {
        const there = win.at(1);
        g.prefetch(there.payloads[0]!.at(r, t, i));
        g.prefetch(there.payloads[0]!.at(r, t).at(i));
        g.prefetch(there.payloads[0]!.at(r).at(t, i));
        const row = there.payloads[0]!.at(r, t);
        g.prefetch(row.at(i));
        g.prefetch(row);
        g.prefetch(there.payloads[0]!);
      },
    );
    const lines = text(made.ir()).split('\n').slice(1);
    const base = 'win#0.at(1:u32).payloads_0';
    const tokenOf = '((r#1 * 8:u32) + u32(t#2))';
    expect(lines.map((line) => line.trim())).toEqual([
      `prefetch ${base}[((${tokenOf} * 5:u32) + i#3)]`,
      `prefetch ${base}[(${tokenOf} * 5:u32)][i#3]`,
      `prefetch ${base}[(r#1 * 40:u32)][((u32(t#2) * 5:u32) + i#3)]`,
      `const row#4: pointer<v16> = ${base}[(${tokenOf} * 5:u32)]`,
      'prefetch row#4[i#3]',
      'prefetch row#4',
      `prefetch ${base}`,
    ]);
    expect(printCuda([made.ir()])).toContain('(r * 8u + u32(t)) * 5u + i');
  });

  test('a view of another type has rows of other lengths', () => {
    const made = kernel(
      { name: 'k', params: { win: peers(window), r: 'u32', t: 'u32' } },
      (g, { win, r, t }) => {
        g.prefetch(win.at(0).payloads[0]!.as('u32').at(r, t, 19));
        g.prefetch(win.at(0).payloads[0]!.at(r, t).as('f32').at(t));
        g.prefetch(win.at(0).flags.as('v16').at(0));
      },
    );
    expect(text(made.ir())).toContain('[((((r#1 * 8:u32) + t#2) * 20:u32) + 19:u32)]');
  });

  test('constants outside are errors, but not in a field that this shape has not', () => {
    const of = (use: 'far' | 'absent' | 'whole' | 'many') =>
      kernel(
        { name: 'k', params: { win: peers(window), r: 'u32' }, using: { use } },
        (g, { win, r }, { use }) => {
          const { payloads, absent, ids } = win.at(0);
          if (use === 'far') g.prefetch(payloads[0]!.at(r, 8, 0));
          if (use === 'absent') g.prefetch(absent.at(r, 0));
          if (use === 'whole') g.prefetch(ids.as('v16').at(1, 1));
          if (use === 'many') g.prefetch((ids.at as (...all: number[]) => Pointer<'i32'>)(1, 1, 1));
        },
      ).ir();
    expect(() => of('far')).toThrow(/HK502 token of payloads_0 is 8; it must be from 0 to 7/);
    expect(validateIr(of('absent'))).toEqual([]);
    expect(validateIr(of('whole'))).toEqual([]);
    expect(() => of('many')).toThrow(/HK306 .*at\(index0, index1\?\) is called with 3 arguments/);
  });

  test('a row that holds no whole elements cannot be seen as rows of them', () => {
    const odd = layout('odd', { rows: field('u8', [4, 3]) });
    const made = kernel({ name: 'k', params: { win: peers(odd), i: 'u32' } }, (g, { win, i }) =>
      g.prefetch(win.at(0).rows.as('u16').at(i, 0)),
    );
    expect(() => made.ir()).toThrow(/HK305 a row of rows has 3 bytes, which are no whole u16/);
  });
});

test('the editor counts indices', () => {
  device(
    {
      params: {
        mine: windowOf(window),
        many: windowOf(layout('many', { f: field('u8', [1, 1, 1, 1] as number[]) })),
      },
    },
    (g, { mine, many }) => {
      expectTypeOf(mine.ids.at(0, 1)).toEqualTypeOf<Pointer<'i32'>>();
      expectTypeOf(mine.ids.at(0).at(1)).toEqualTypeOf<Pointer<'i32'>>();
      expectTypeOf(g.load(mine.payloads[0]!.at(0).at(1).at(2))).toEqualTypeOf<
        ReturnType<typeof g.load<'v16'>>
      >();
      // @ts-expect-error: two dimensions
      mine.ids.at(0, 1, 2);
      many.f.at(0, 1, 2, 3);
    },
  );
});
