/** Wrong arguments: a good call, with something in it replaced. */
import type { Random } from '../../src/verify/testing/public.js';

/** Values that no caller's types allow here; `foreign` are live and disposed things of the library itself. */
export function wrongValues(foreign: readonly unknown[]): readonly unknown[] {
  return [
    ...[undefined, null, true, false, '', 'x', 'x'.repeat(300), '__proto__', 5n, Symbol('s')],
    ...[
      0,
      -0,
      -1,
      1,
      1.5,
      1e300,
      2 ** 31,
      2 ** 32,
      2 ** 53,
      -(2 ** 53),
      Number.NaN,
      Number.POSITIVE_INFINITY,
    ],
    ...[[], [1, 2], ['1'], [null], [2n], new Array(3), {}, { length: 3 }, { data: 0 }, Object.create(null)],
    ...[() => 0, async () => 0, new Map(), new Date(0), /x/, Promise.resolve(1), new Error('x')],
    ...[new Uint8Array(3), new Float64Array(2), new Int32Array(4)],
    ...[new DataView(new ArrayBuffer(8)), new ArrayBuffer(8)],
    ...foreign,
  ];
}

/** The arguments of a good call, with one thing in them wrong, sometimes two, or an argument too few. */
export function spoiled(good: readonly unknown[], wrong: readonly unknown[], draw: Random): unknown[] {
  let args = [...good];
  const times = draw.below(5) === 0 ? 2 : 1;
  for (let i = 0; i < times; i++) {
    if (args.length > 0 && draw.below(12) === 0) args = args.slice(0, -1);
    else if (args.length > 0) args = replaced(args, wrong[draw.below(wrong.length)], draw) as unknown[];
  }
  return args;
}

/** A copy in which one part, at any depth, is another value. Things of the library are not looked into. */
function replaced(of: unknown, wrong: unknown, draw: Random): unknown {
  const plain = Array.isArray(of) || (typeof of === 'object' && of !== null && isPlain(of));
  if (!plain) return wrong;
  const keys = Object.keys(of);
  if (keys.length === 0 || (!Array.isArray(of) && draw.below(4) === 0)) return wrong;
  const key = keys[draw.below(keys.length)]!;
  const part: unknown = Reflect.get(of, key);
  const copy: object = Array.isArray(of) ? [...of] : { ...of };
  Reflect.set(copy, key, draw.below(2) === 0 ? wrong : replaced(part, wrong, draw));
  return copy;
}

/** A kernel's IR is one thing to callers, plain as it is inside. */
const isPlain = (value: object): boolean => {
  if ('entry' in value) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
};
