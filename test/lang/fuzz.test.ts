import fc from 'fast-check';
import { expect, test } from 'vitest';
import { device, field, KernelError, kernel, layout, list, peers, pointer } from '../../src/lang/index.js';
import { validateIr } from './validate.js';

const window = layout('window', { flags: field('u32', 8), rows: [field('v16', 4), field('v16', 4)] });
const add = device({ params: { x: 'u32', y: 'u32' }, returns: 'u32' }, (_g, { x, y }) => x + y);
const header = {
  name: 'mutated',
  params: {
    win: peers(window),
    many: list(pointer('v16'), 2),
    out: pointer('f32'),
    n: 'u32',
    i: 'i32',
    x: 'f32',
    w: 'u64',
  },
  using: { N: 4, FLAG: true, MODE: 'sum', SIZES: [1, 2], add },
} as const;

const valid = `(g, { win, many, out, n, i, x, w }, { N, FLAG, MODE, SIZES, add }) => {
  const tile = g.shared('u32', 64);
  const acc = g.registers('f32', N, x);
  let sum = 0, last = g.i32(-1), wide = w >> 3n;
  for (let k = g.threadIdx.x; k < n; k += g.blockDim.x) {
    const row = g.load(many[1].at(k), { cache: 'stream' });
    for (const j of g.unroll(N)) acc[j] += g.lane(row, 'f32', j) * 1.5;
    if (FLAG && k % 2 === 0) continue;
    else if (MODE === 'sum') sum += SIZES[1] * k;
    else break;
    wide = wide ^ g.u64(k);
  }
  g.barrier();
  const { flags, rows: [first, second] } = win.at(g.rank);
  while (g.load(flags.at(0), { order: 'acquire', scope: 'sys' }) < n) g.sleep(100);
  const ok = g.awaitEpoch(flags, n, { order: 'acquire', scope: 'sys', limit: 1000 });
  if (!ok || last < i) { last = g.min(i, 7) - last; return; }
  g.atomicAdd(tile.at(sum & 63), add({ x: sum, y: g.popc(n) }), { order: 'relaxed', scope: 'cta' });
  g.store(first.at(1), g.pack('f32', acc));
  g.store(second.as('u64').at(i), wide);
  g.store(out.at(0), acc[0] > 0 ? g.fma(acc[1], x, acc[2]) : g.f32(g.bits('u32', x) >>> 3));
}`;

/** Compiles a text; anything but a sound module or a KernelError of a known cause is a failure of the compiler. */
function compile(text: string): 'compiled' | 'refused' | 'no function' {
  let body: never;
  try {
    body = new Function(`return ${text}`)() as never;
    if (typeof body !== 'function') return 'no function';
  } catch {
    return 'no function';
  }
  try {
    expect(validateIr(kernel(header, body).ir()), text).toEqual([]);
    return 'compiled';
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    expect(error.code, `${error.message}\n${text}`).not.toBe('HK900');
    expect(error.message).toContain(error.code);
    for (const { message, frame } of error.diagnostics) {
      expect(message).not.toMatch(/undefined|\[object|NaN/);
      expect(frame).toContain('^');
    }
    return 'refused';
  }
}

const tokens = valid.match(
  /[A-Za-z_]\w*|\d[\w.]*|'[^']*'|\s+|=>|>>>|>>|&&|\|\||\+\+|[-+*/%&|^<>=!]=?=?|[^\w\s]/g,
)!;
const meaningful = tokens.flatMap((token, at) => (/\S/.test(token) ? [at] : []));

/** A name, constant or operator replaced by another of its kind leaves text that still parses. */
const kinds = [
  /^(?!(const|let|for|of|while|if|else|continue|break|return)$)[A-Za-z_]/,
  /^[\d']/,
  /^([-+*/%&|^]|[<>]=?|[=!]==)$/,
];
const alike = kinds.map((kind) => meaningful.filter((at) => kind.test(tokens[at]!)));

/** Exchanges, removes, doubles or replaces tokens, as a careless hand does. */
const mutation = fc.record({
  at: fc.nat(meaningful.length - 1),
  other: fc.nat(meaningful.length - 1),
  how: fc.oneof(
    { weight: 9, arbitrary: fc.constant('alike') },
    { weight: 1, arbitrary: fc.constantFrom('replace', 'remove', 'double', 'swap') },
  ),
});

function mutate(edits: readonly { at: number; other: number; how: string }[]): string {
  const text = [...tokens];
  for (const { at, other, how } of edits) {
    const kind = alike[at % alike.length]!;
    const [a, b] =
      how === 'alike'
        ? [kind[at % kind.length]!, kind[other % kind.length]!]
        : [meaningful[at]!, meaningful[other]!];
    if (how === 'alike' || how === 'replace') text[a] = tokens[b]!;
    else if (how === 'remove') text[a] = '';
    else if (how === 'double') text[a] = `${text[a]} ${text[a]}`;
    else [text[a], text[b]] = [text[b]!, text[a]!];
  }
  return text.join('');
}

test('the kernel compiles before it is mutated', () => {
  expect(compile(valid)).toBe('compiled');
});

test('a mutated kernel compiles to sound IR or gets a KernelError, and never anything else', () => {
  const outcomes = { compiled: 0, refused: 0, 'no function': 0 };
  fc.assert(
    fc.property(fc.array(mutation, { minLength: 1, maxLength: 3 }), (edits) => {
      outcomes[compile(mutate(edits))]++;
    }),
    { seed: 7, numRuns: 500 },
  );
  // The test is worth something only while many mutants still parse.
  expect(outcomes.refused).toBeGreaterThan(250);
  expect(outcomes.compiled).toBeGreaterThan(25);
});
