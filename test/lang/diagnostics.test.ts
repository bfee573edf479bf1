import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  type Code,
  codes,
  device,
  field,
  KernelError,
  kernel,
  layout,
  list,
  type ParamSpecs,
  peers,
  pointer,
  type UsingSpec,
} from '../../src/lang/index.js';

const window = layout('window', { flags: field('u32', 8), rows: [field('v16', 4), field('v16', 4)] });
const other = layout('other', { flags: field('u32', 8) });
const helper = device({ params: { x: 'u32', win: peers(window) }, returns: 'u32' }, (_g, { x }) => x + 1);

const params = {
  u: 'u32',
  i: 'i32',
  w: 'u64',
  f: 'f32',
  q: 'bool',
  out: pointer('u32'),
  halves: pointer('bf16'),
  lines: pointer('v16'),
  many: list(pointer('u32'), 2),
  win: peers(window),
  others: peers(other),
} as const satisfies ParamSpecs;
const using = { N: 4, FLAG: false, MODE: 'sum', LIST: [1, 2], helper } as const;

/** The error of a kernel whose body is this text: most of them would not pass the editor's type checker. */
function failure(body: string, extra: UsingSpec = {}): KernelError {
  const parameters = `g, { ${Object.keys(params).join(', ')} }, { ${Object.keys({ ...using, ...extra }).join(', ')} }`;
  const made = new Function(`return (${parameters}) => {\n${body}\n}`)();
  return thrown(() => kernel({ name: 'wrong', params, using: { ...using, ...extra } }, made).ir());
}

function thrown(make: () => unknown): KernelError {
  try {
    make();
  } catch (error) {
    if (error instanceof KernelError) return error;
    throw error;
  }
  throw new Error('no error');
}

/** Code, the marked piece of the body, and what the message says. */
type Case = readonly [code: Code, body: string, at: string, message: RegExp];

const cases: readonly Case[] = [
  ['HK101', 'const x = u + EP;', 'EP', /`EP` is neither declared here nor a parameter/],
  ['HK101', 'g.store(out.at(0), Math.floor(1));', 'Math', /closed.*; write g\.min, g\.max/],
  ['HK101', 'const x = threadIdx.x;', 'threadIdx', /; write g\.threadIdx\.x/],
  ['HK101', '__syncthreads();', '__syncthreads', /; write g\.barrier\(\)/],
  ['HK101', 'if (q) { const x = u; } g.store(out, x);', 'x', /neither declared/],
  ['HK102', 'switch (u) { case 0: break; }', 'switch (u) { case 0: break; }', /if … else if/],
  ['HK102', 'const f2 = () => 1;', '() => 1', /nested function/],
  ['HK102', 'function f2() {}', 'function f2() {}', /device\(\)/],
  ['HK102', 'var x = 1;', 'var x = 1;', /const or let/],
  ['HK102', 'let x;', 'x', /without a first value/],
  ['HK102', 'const x = u ** 2;', 'u ** 2', /\*\*/],
  ['HK102', 'const x = u == 2;', 'u == 2', /write ===/],
  ['HK102', 'const x = u ?? 2;', 'u ?? 2', /\?\?/],
  ['HK102', 'const x = win?.at(0);', 'win?.at(0)', /optional chaining/],
  ['HK102', 'let x = 1; const y = x++;', 'x++', /statement of its own/],
  ['HK102', 'let x = 1; const y = (x = 2);', 'x = 2', /statement of its own/],
  ['HK102', 'throw u;', 'throw u;', /throw statement/],
  ['HK102', 'try { g.barrier(); } catch {}', 'try { g.barrier(); } catch {}', /try statement/],
  ['HK102', 'const x = new Map();', 'new Map()', /new expression/],
  ['HK102', 'const x = this;', 'this', /this expression/],
  ['HK102', 'for (const x of LIST) g.barrier();', 'LIST', /g\.unroll/],
  ['HK102', 'for (const x in LIST) g.barrier();', 'for (const x in LIST) g.barrier();', /g\.unroll/],
  ['HK102', 'do g.barrier(); while (q);', 'do g.barrier(); while (q);', /while \(true\)/],
  ['HK102', 'const { rows = 1 } = win.at(0);', 'rows = 1', /default value/],
  ['HK102', 'const x = `a$' + '{u}`;', '`a$' + '{u}`', /template/],
  ['HK102', 'const x = { ...LIST };', '...LIST', /spread/],
  // Nothing tells these texts from what a bundler left.
  ['HK105', 'q && g.barrier();', 'q && g.barrier()', /First: .*write an if/],
  ['HK102', 'const x = null;', 'null', /null/],
  ['HK102', 'const x = g.unroll(2);', 'g.unroll(2)', /for \(const i of g\.unroll/],
  ['HK301', 'const x = u + i;', 'u + i', /`u` is u32 and `i` is i32; write g\.u32\(i\) or g\.i32\(u\)/],
  ['HK301', 'const x = f * u;', 'f * u', /g\.f32\(u\)/],
  ['HK301', 'const x = u < i;', 'u < i', /u32.*i32/],
  ['HK301', 'let x = 0; x = i;', 'i', /`i` is i32, but u32 is needed for x; write g\.u32\(i\)/],
  ['HK301', 'g.store(out.at(0), f);', 'f', /write g\.u32\(f\)/],
  ['HK301', 'const x = q ? u : i;', 'q ? u : i', /u32.*i32/],
  ['HK301', 'g.store(halves.at(0), f);', 'f', /write g\.bf16\(f\)/],
  ['HK301', 'g.store(halves.at(0), 1);', '1', /g\.bf16\(g\.f32\(1\)\)/],
  ['HK301', 'const x = N + 1n;', 'N + 1n', /bigint/],
  ['HK301', 'const r = g.registers("u32", 8); g.store(lines, g.pack("bf16", r));', 'r', /cannot be filled/],
  ['HK302', 'const x = f % f;', 'f % f', /% does not apply to f32/],
  ['HK302', 'const x = f & f;', 'f & f', /f32/],
  ['HK302', 'const x = q & q;', 'q & q', /write &&/],
  ['HK302', 'const x = i >>> 1;', 'i >>> 1', />>> is for u32/],
  ['HK302', 'const x = ~f;', '~f', /~ does not apply/],
  ['HK302', 'const x = out + out;', 'out + out', /\.at\(index\)/],
  ['HK302', 'const h = g.load(halves); const x = h + h;', 'h + h', /compute with g\.f32\(h\)/],
  ['HK302', 'const x = u << f;', 'f', /shift count/],
  ['HK303', 'const x = u + 4294967296;', '4294967296', /does not fit u32/],
  ['HK303', 'const x = u + -1;', '-1', /g\.u32\(-1\)/],
  ['HK303', 'const x = u * 1.5;', '1.5', /no integer/],
  ['HK304', 'if (u) g.barrier();', 'u', /write u !== 0/],
  ['HK304', 'while (N) g.barrier();', 'N', /number/],
  ['HK304', 'const x = !u;', 'u', /bool/],
  ['HK305', 'g.load(u);', 'u', /must be a pointer, but it is u32/],
  ['HK305', 'g.atomicAdd(lines, 1, { order: "relaxed", scope: "gpu" });', 'lines', /i32, u32, u64/],
  ['HK305', 'g.load(out, { order: "release", scope: "sys" });', '"release"', /'weak', 'relaxed', 'acquire'/],
  ['HK305', 'g.fence("block");', '"block"', /'cta', 'gpu', 'sys'/],
  ['HK305', 'g.proxyFence("local");', '"local"', /'shared', 'global'/],
  ['HK305', 'g.fence("gpu", { order: "relaxed" });', '"relaxed"', /'acq_rel', 'seq_cst'/],
  ['HK301', 'const x = g.fma(f, f, u);', 'u', /argument 3 of g\.fma; write g\.f32\(u\)/],
  ['HK305', 'const x = g.u32(lines);', 'lines', /cannot convert/],
  ['HK305', 'const x = g.u32(g.load(halves));', 'g.load(halves)', /g\.u32\(g\.f32\(/],
  ['HK305', 'g.warp.shuffle(w, 0);', 'w', /i32 or u32 or f32/],
  ['HK305', 'const x = out.as("double");', '"double"', /must be one of/],
  [
    'HK305',
    'const s = g.shared("u32", 4); g.store(out, g.distance(s, out));',
    'g.distance(s, out)',
    /one address is in shared memory, the other in global/,
  ],
  ['HK305', 'helper(u);', 'helper(u)', /one object: helper\(\{ x, win \}\)/],
  ['HK305', 'helper({ x: u, win: others });', 'others', /layout window/],
  ['HK305', 'g.mbarrier.init(w, 1);', 'w', /pointer/],
  ['HK305', 'const s = g.shared("u32", 4); g.prefetch(s);', 's', /must be in global memory/],
  [
    'HK305',
    'g.bulk.store(lines, lines, 16);',
    'lines',
    /argument 2 of g\.bulk\.store must be in shared memory/,
  ],
  ['HK305', 'g.store(lines, g.pack("u32", [u, u]));', '[u, u]', /4 lanes/],
  ['HK306', 'g.store(out.at(0));', 'g.store(out.at(0))', /pointer, value, options\?/],
  ['HK306', 'g.barrier(1);', 'g.barrier(1)', /1 arguments/],
  ['HK306', 'helper({ x: u });', 'helper({ x: u })', /lacks win/],
  ['HK306', 'helper({ x: u, win, y: u });', 'helper({ x: u, win, y: u })', /no parameter y/],
  [
    'HK306',
    'g.awaitEpoch(out, u, { order: "acquire", scope: "sys" });',
    'g.awaitEpoch(out, u, { order: "acquire", scope: "sys" })',
    /limit/,
  ],
  ['HK307', 'const x = u + 5 / 2;', '5 / 2', /g\.u32\(5\) \/ 2 for 2, or g\.f32\(5\) \/ 2/],
  ['HK401', 'g.laod(out);', 'g.laod', /did you mean load/],
  ['HK401', 'g.syncthreads();', 'g.syncthreads', /; write g\.barrier\(\)/],
  ['HK401', 'g.malloc(u);', 'g.malloc', /docs\/language\.md lists/],
  ['HK401', 'g.warp.bardier();', 'g.warp.bardier', /warp\.barrier/],
  ['HK402', 'const x = win.at(0).flag;', 'win.at(0).flag', /did you mean flags.*it has flags, rows/],
  ['HK402', 'const x = win.flags;', 'win.flags', /win\.at\(rank\)\.flags/],
  ['HK402', 'const x = u.at(0);', 'u.at', /u32 has no member at/],
  ['HK402', 'const x = out[0];', 'out[0]', /g\.load\(pointer\.at\(index\)\)/],
  ['HK402', 'g.load(out, { oder: "weak" });', '{ oder: "weak" }', /no option oder/],
  ['HK403', 'u = 1;', 'u', /declared with let/],
  ['HK403', 'const x = u; x += 1;', 'x', /declared with let/],
  ['HK403', 'N++;', 'N', /let/],
  ['HK403', 'out[0] = 1;', 'out[0]', /g\.store/],
  ['HK404', 'const x = u + win;', 'win', /the windows win is used as a run-time value/],
  ['HK404', 'let x = MODE;', 'MODE', /text 'sum'/],
  ['HK404', 'const x = g.barrier();', 'g.barrier()', /returns nothing/],
  ['HK404', 'g.store(out, g.load);', 'g.load', /function g\.load/],
  ['HK501', 'const r = g.registers("f32", u);', 'u', /known only at run time/],
  ['HK501', 'const r = g.registers("f32", 4); const x = r[u];', 'u', /loop with g\.unroll/],
  ['HK501', 'const x = g.load(many[u]);', 'u', /must be a constant/],
  ['HK501', 'for (const k of g.unroll(u)) g.barrier();', 'u', /number of iterations/],
  ['HK501', 'const x = out.as(u);', 'u', /written as text/],
  ['HK502', 'const r = g.registers("f32", 4); const x = r[4];', '4', /from 0 to 3/],
  ['HK502', 'const x = g.load(many[2]);', '2', /from 0 to 1/],
  ['HK502', 'const x = u << 32;', '32', /from 0 to 31/],
  ['HK502', 'const x = N / 0;', 'N / 0', /divides by the constant 0/],
  ['HK502', 'const r = g.registers("f32", 0);', '0', /at least 1/],
  [
    'HK503',
    'for (const a of g.unroll(200)) for (const b of g.unroll(200)) g.barrier();',
    'for (const b of g.unroll(200)) g.barrier();',
    /plain for loop/,
  ],
  ['HK601', 'const x = q && g.load(out) === 1;', 'g.load(out) === 1', /use an if/],
  ['HK601', 'const x = q ? g.load(out) : 0;', 'g.load(out)', /use an if/],
  ['HK602', 'g.store(g.shared("u32", 4), 1);', 'g.shared("u32", 4)', /const name = g\.shared/],
  ['HK603', 'let r = g.registers("f32", 4);', 'g.registers("f32", 4)', /const name/],
  ['HK604', 'for (let k = 0; k < 4; g.barrier()) k++;', 'g.barrier()', /end of the body/],
  ['HK605', 'for (const k of g.unroll(4)) { if (q) break; }', 'break;', /use an if/],
  ['HK606', 'u + 1;', 'u + 1', /does nothing/],
  ['HK606', 'g.min(u, u);', 'g.min(u, u)', /does nothing/],
  ['HK607', 'return u;', 'return u;', /a kernel returns nothing/],
  [
    'HK608',
    'const s = g.shared("u32", 58113);',
    'const s = g.shared("u32", 58113);',
    /232452 bytes.*at most 232448/,
  ],
  ['HK609', 'g.load(out, { order: "acquire" });', 'g.load(out, { order: "acquire" })', /say its scope/],
  [
    'HK609',
    'g.atomicAdd(out, 1, { scope: "gpu" });',
    'g.atomicAdd(out, 1, { scope: "gpu" })',
    /say its order/,
  ],
  ['HK702', 'u(1);', 'u(1)', /`u` is u32, not a function/],
];

describe('each mistake has its own error, at its own place', () => {
  test.each(cases)('%s: %s', (code, body, at, message) => {
    const error = failure(body);
    const [first] = error.diagnostics;
    expect(error.code).toBe(code);
    expect(first?.message).toMatch(message);
    // The frame shows the line and marks the piece.
    const [shown = '', carets = ''] = first!.frame.split('\n').slice(1, 3);
    expect(shown.startsWith('>')).toBe(true);
    expect(shown.slice(carets.indexOf('^'), carets.lastIndexOf('^') + 1)).toBe(at);
  });
});

describe('device functions', () => {
  const call = (using: UsingSpec, body = 'fn({});') => failure(body, using);

  test('a recursive one', () => {
    const later = { fn: device({ params: {} }, () => {}) };
    later.fn = device({ params: {}, using: { later } }, (_g, _p, { later }) => {
      later.fn({});
    });
    expect(call({ fn: later.fn }).code).toBe('HK701');
  });
  test('some that call each other so often that it would take for ever', () => {
    let fn = device({ params: {} }, (g) => g.barrier());
    for (let depth = 0; depth < 30; depth++) {
      fn = device({ params: {}, using: { fn } }, (_g, _p, { fn }) => {
        fn();
        fn();
      });
    }
    expect(call({ fn }).code).toBe('HK703');
  });
  test('one that may end without its result', () => {
    const fn = device({ params: {}, returns: 'u32' }, ((g: { rank: number }) => {
      if (g.rank === 0) return 1;
      return;
    }) as never);
    expect(call({ fn: fn as never }, 'const x = fn({});').code).toBe('HK607');
  });
  test('one that returns what its header does not say', () => {
    const fn = device({ params: {} }, ((g: { rank: number }) => g.rank) as never);
    expect(call({ fn: fn as never }).message).toMatch(/HK606|HK607/);
  });
  test('an error inside one shows the line inside it', () => {
    const fn = device({ params: { x: 'u32', y: 'i32' } }, (g, { x, y }) => {
      g.sleep(x + y);
    });
    const [first] = call({ fn: fn as never }, 'fn({ x: u, y: i });').diagnostics;
    expect(first?.code).toBe('HK301');
    expect(first?.file).toBe('test/lang/diagnostics.test.ts');
    expect(first?.frame).toContain('>');
    expect(first?.frame).toContain('g.sleep(x + y);');
  });
});

describe('headers', () => {
  const body = () => {};
  test('a parameter of no known type', () => {
    const error = thrown(() => kernel({ name: 'k', params: { x: 'double' as never } }, body));
    expect(error.code).toBe('HK201');
    expect(error.message).toContain('parameter x is "double"');
  });
  test.each([
    [{ x: () => 1 }, /using\.x is an ordinary function; make it a device\(\)/],
    [{ x: undefined }, /using\.x is undefined/],
    [{ x: { y: new Map() } }, /using\.x\.y is a Map/],
    [{ x: [1, null] }, /using\.x\[1\] is null/],
  ])('a value that is not known to the compiler: %o', (using, message) => {
    const error = thrown(() => kernel({ name: 'k', params: {}, using: using as never }, body));
    expect(error.code).toBe('HK202');
    expect(error.message).toMatch(message);
  });
  test('a name that CUDA would not accept', () => {
    expect(thrown(() => kernel({ name: 'my kernel', params: {} }, body)).code).toBe('HK203');
    expect(thrown(() => kernel({ name: 'k', params: { 'a-b': 'u32' } }, body)).code).toBe('HK203');
  });
  test('a name that an item of a list has', () => {
    const error = thrown(() => kernel({ name: 'k', params: { xs: list('u32', 2), xs_1: 'u32' } }, body));
    expect(error.message).toMatch(/HK203 two parameters are called xs_1: one is an item of a list/);
    expect(() => kernel({ name: 'k', params: { xs: list('u32', 2), xs_2: 'u32' } }, body)).not.toThrow();
  });
  test('a body that is no ordinary function', () => {
    const of = (made: unknown) => thrown(() => kernel({ name: 'k', params: {} }, made as never).ir()).code;
    expect(of(Math.max)).toBe('HK103');
    expect(of(body.bind(null))).toBe('HK103');
    expect(of(new Function(`return (g) => { g.sleep(${'('.repeat(300)}1${' + 1)'.repeat(300)}); }`)())).toBe(
      'HK103',
    );
    expect(of(new Function(`return (g) => ${'{'.repeat(300)}g.barrier();${'}'.repeat(300)}`)())).toBe(
      'HK103',
    );
    expect(of(async () => {})).toBe('HK104');
    expect(of(new Function('return function* () {}')())).toBe('HK104');
    expect(of(new Function('return (a, b, c, d) => {}')())).toBe('HK104');
    expect(of(class {})).toBe('HK104');
  });
});

test('several mistakes are told at once, and none twice', () => {
  const error = failure(
    'const x = u + i;\nconst y = x + 1;\ng.laod(out);\nfor (const k of g.unroll(4)) if (u) g.barrier();',
  );
  expect(error.diagnostics.map(({ code }) => code)).toEqual(['HK301', 'HK401', 'HK304']);
  expect(error.message).toContain('has 3 errors');
});

test('what a minifier did is one mistake', () => {
  // Not as it stands in this file, where it would be taken for an author's.
  const text = 'return (G,{out:o})=>{const x=G.threadIdx.x;x<4&&(G.store(o,x),G.store(o.at(1),missing))}';
  const body = new Function(text.replaceAll('G', 'g'))();
  const made = kernel({ name: 'minified', params: { out: pointer('u32') } }, body);
  expect(thrown(() => made.ir()).diagnostics.map(({ code }) => code)).toEqual(['HK105']);
});

test('a message names the file, line and column of the TypeScript source', () => {
  const placed = kernel(
    { name: 'placed', params: { n: 'u32', i: 'i32', out: pointer('u32') } },
    (g, { n, i, out }) => {
      g.store(out, n + i);
    },
  );
  const { message, diagnostics } = thrown(() => placed.ir());
  const { file, line, column } = diagnostics[0]!;
  const lines = readFileSync(new URL(import.meta.url), 'utf8').split('\n');
  expect(lines[line - 1]!.slice(column - 1)).toBe('n + i);');
  expect([file, message]).toEqual([
    'test/lang/diagnostics.test.ts',
    expect.stringContaining(`test/lang/diagnostics.test.ts:${line}:${column}: HK301`),
  ]);
});

test('docs/language.md lists exactly these codes, each with an anchor', () => {
  const page = readFileSync(new URL('../../docs/language.md', import.meta.url), 'utf8');
  const rows = [...page.matchAll(/^- <a id="hk(\d{3})"><\/a>(HK\1): (.+)$/gm)].map(([, , code, text]) => [
    code,
    text,
  ]);
  expect(rows).toEqual(Object.entries(codes));
});

test('every code has a case here', () => {
  const text = readFileSync(new URL(import.meta.url), 'utf8');
  // HK900 is for failures of the compiler itself; the fuzz test shows that there are none. HK610: hopper/sums.test.ts. HK704: foreign.test.ts. HK705: puts.test.ts.
  const missing = Object.keys(codes).filter(
    (code) => !['HK610', 'HK704', 'HK705', 'HK900'].includes(code) && !text.includes(`'${code}'`),
  );
  expect(missing).toEqual([]);
});
