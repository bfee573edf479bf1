/**
 * Every kind of value that a body can have, in every way to hold it, as text. Each cell stores a number at a place of its own in
 * `out`; a cell that the language refuses has the code of the error.
 */
import { expect } from 'vitest';
import { formatFinding, type KernelModule, SimMachine } from '../../src/gpu/sim/index.js';
import { KernelError } from '../../src/lang/diagnostics.js';
import {
  constant,
  device,
  field,
  type IrModule,
  kernel,
  layout,
  list,
  peers,
  pointer,
  record,
  registers,
  tensorMap,
  tile,
  tiles,
  type Using,
  windowOf,
} from '../../src/lang/index.js';
import type { DeviceParam } from '../../src/lang/kernel.js';

/** Its words count from 0. */
export const window = layout('holding', {
  rows: field('u32', [4, 8]),
  others: field('u32', [4, 8]),
  cube: field('u32', [2, 4, 8]),
  flat: field('u32', 32),
  pair: [field('u32', [4, 8]), field('u32', [4, 8])],
});
const Tile = tile('u32', [8, 4], { swizzle: 0 });

export const params = {
  out: pointer('u32'),
  data: pointer('u32'),
  bytes: pointer('u8'),
  win: peers(window),
  map: tensorMap(Tile),
  n: 'u32',
  yes: 'bool',
} as const;
const using = {
  Tile,
  WORD: 'u32',
  SEVEN: 7,
  double: device({ params: { x: 'u32' }, returns: 'u32' }, (_g, { x }) => x * 2),
};

interface Kind {
  /** One value, made of m, which is 5 until it changes; and another one of its type. */
  readonly one: string;
  readonly other: string;
  /** A u32 of the value v. */
  readonly use: string;
  /** The number that comes of `one`; its spec in headers of device functions, where it has one. */
  readonly is: number;
  readonly as?: DeviceParam;
  /** That number where a header has made a plain pointer of it. */
  readonly isPassed?: number;
}

const kinds: Readonly<Record<string, Kind>> = {
  i32: { one: 'g.i32(m) - 9', other: 'g.i32(m)', use: 'g.u32(v >> 1)', is: 0xffff_fffe, as: 'i32' },
  u32: { one: 'm - 9', other: 'm', use: 'v >> 1', is: 0x7fff_fffe, as: 'u32' },
  u64: { one: 'g.u64(m) - 9n', other: 'g.u64(m)', use: 'g.u32(v >> 40n)', is: 0xff_ffff, as: 'u64' },
  f32: { one: 'g.f32(m) / 2', other: 'g.f32(m)', use: 'g.u32(v * 4)', is: 10, as: 'f32' },
  bool: { one: 'm === 5', other: 'm > 9', use: 'g.u32(v)', is: 1, as: 'bool' },
  bf16: { one: 'g.bf16(g.f32(m))', other: 'g.bf16(1)', use: 'g.u32(g.f32(v))', is: 5, as: 'bf16' },
  f16: { one: 'g.f16(g.f32(m))', other: 'g.f16(1)', use: 'g.u32(g.f32(v))', is: 5, as: 'f16' },
  e4m3: { one: 'g.e4m3(g.f32(m))', other: 'g.e4m3(1)', use: 'g.u32(g.f32(v))', is: 5, as: 'e4m3' },
  v16: {
    one: "g.pack('u32', [m, m + 1, m, m])",
    other: "g.pack('u32', [m, m, m, m])",
    use: "g.lane(v, 'u32', 1)",
    is: 6,
    as: 'v16',
  },
  'narrow lane': {
    one: "g.lane(g.pack('u32', [0x8181, m, m, m]), 'u8', 1)",
    other: 'm',
    use: '(v << 24) >> 24',
    is: 0x81,
    as: 'u32',
  },
  'narrow load': { one: 'g.load(bytes.at(m))', other: 'm', use: '(v << 24) >> 24', is: 0x85, as: 'u32' },
  'narrow load, shared': {
    one: 'g.load(sharedBytes.at(m))',
    other: 'm',
    use: '(v << 24) >> 24',
    is: 0x85,
    as: 'u32',
  },
  builtin: { one: 'g.blockDim.x', other: 'm', use: 'v', is: 32, as: 'u32' },
  register: { one: 'regs[1]', other: 'm', use: 'v', is: 21, as: 'u32' },
  pointer: { one: 'data.at(m)', other: 'data', use: 'g.load(v.at(1))', is: 6, as: pointer('u32') },
  'narrow pointer': {
    one: "data.at(m).as('u8')",
    other: 'bytes',
    use: 'g.load(v.at(4))',
    is: 6,
    as: pointer('u8'),
  },
  'shared pointer': { one: 'words.at(m)', other: 'words', use: 'g.load(v.at(1))', is: 6, as: pointer('u32') },
  'shaped field': {
    one: 'win.at(0).rows',
    other: 'win.at(0).others',
    use: 'g.load(v.at(1, 2)) + g.load(v.at(2).at(3)) + g.load(v)',
    is: 29,
    as: pointer('u32'),
  },
  'part of a field': {
    one: 'win.at(0).cube.at(m - 4)',
    other: 'win.at(0).cube.at(0)',
    use: 'g.load(v.at(1).at(2))',
    is: 106,
    isPassed: 99,
    as: pointer('u32'),
  },
  'other shapes': {
    one: 'win.at(0).rows',
    other: 'win.at(0).cube',
    use: 'g.load(v.at(1).at(2))',
    is: 10,
    isPassed: 3,
    as: pointer('u32'),
  },
  'a shape and none': {
    one: 'win.at(0).flat.at(m)',
    other: 'win.at(0).rows',
    use: 'g.load(v.at(1))',
    is: 134,
    as: pointer('u32'),
  },
  'view of a field': {
    one: "win.at(0).rows.as('u16')",
    other: "win.at(0).others.as('u16')",
    use: 'g.load(v.at(1, 2))',
    is: 9,
    as: pointer('u16'),
  },
  'list of fields': {
    one: 'win.at(0).pair',
    other: 'win.at(0).pair',
    use: 'g.load(v[1].at(1, 2))',
    is: 202,
    as: list(pointer('u32'), 2),
  },
  window: {
    one: 'win.at(m - 5)',
    other: 'win.at(0)',
    use: 'g.load(v.rows.at(1, 2))',
    is: 10,
    as: windowOf(window),
  },
  windows: { one: 'win', other: 'win', use: 'g.load(v.at(0).rows.at(1, 2))', is: 10, as: peers(window) },
  tensorMap: { one: 'map', other: 'map', use: 'v.rank', is: 2, as: tensorMap(Tile) },
  tiles: {
    one: 'boxes.at(m - 4)',
    other: 'boxes',
    use: 'g.load(v.at(1).element(1, 2))',
    is: 70,
    as: tiles(Tile),
  },
  'rows of a tile': {
    one: 'boxes.at(m - 4).rows(0, 8)',
    other: 'boxes.rows(0, 8)',
    use: 'g.load(v.element(1, 2))',
    is: 38,
    as: tiles(Tile),
  },
  tile: { one: 'Tile', other: 'Tile', use: 'v.rows', is: 8 },
  registers: { one: 'regs', other: 'regs', use: 'v[1] + v.length', is: 23, as: registers('u32') },
  'new registers': {
    one: "g.registers('u32', 2, m)",
    other: "g.registers('u32', 2)",
    use: 'v[1] + v.length',
    is: 7,
    as: registers('u32'),
  },
  'narrow registers': { one: 'small', other: 'small', use: 'v[1]', is: 300, as: registers('u8', 2) },
  'new shared array': {
    one: "g.shared('u32', 4)",
    other: "g.shared('u32', 4)",
    use: 'g.distance(v.at(1), v)',
    is: 4,
    as: pointer('u32'),
  },
  constant: { one: 'SEVEN', other: '9', use: 'g.u32(v + 1)', is: 8, as: constant<number>() },
  complement: { one: '~0', other: '1', use: 'v & m', is: 5, as: 'u32' },
  text: {
    one: 'WORD',
    other: "'f32'",
    use: "g.lane(g.pack('u32', [m, m, m, m]), v, 1)",
    is: 5,
    as: constant<string>(),
  },
  list: { one: '[m, m + 1]', other: '[1, 2]', use: 'v[1] + v.length', is: 8, as: list('u32', 2) },
  record: {
    one: '{ a: m, b: [m + 1] }',
    other: '{ a: 1, b: [2] }',
    use: 'v.a + v.b[0]',
    is: 11,
    as: record({ a: 'u32', b: list('u32', 1) }),
  },
  'device function': { one: 'double', other: 'double', use: 'v({ x: m + 1 })', is: 12 },
  'function of g': { one: 'g.min', other: 'g.max', use: 'v(n, 3)', is: 3 },
  'part of g': { one: 'g.blockDim', other: 'g.blockIdx', use: 'v.x', is: 32 },
  method: { one: 'data.at', other: 'data.at', use: 'g.load(v(n))', is: 5 },
};

type Way = (
  kind: Kind,
) => { readonly text: string; readonly using?: Readonly<Record<string, Using>> } | undefined;

/** A device function of the text of its body, where the kind has a spec. */
function called(
  body: string,
  takes: readonly string[],
  { as, use }: Kind,
  returns?: DeviceParam,
): Exclude<Using, boolean | number | bigint | string> | undefined {
  if (as === undefined) return undefined;
  const header = {
    params: { ...Object.fromEntries(takes.map((name) => [name, as])), yes: 'bool', m: 'u32' } as const,
    using,
  };
  const text = new Function(
    `return (g, { ${takes.join(', ')}, yes, m }) => { ${body.replace('USE', use)} }`,
  )();
  return device({ ...header, returns: returns ?? as }, text) as unknown as { readonly heddle: 'device' };
}

const through =
  (body: string, takes: readonly string[], hold: string): Way =>
  (kind) => {
    const call = called(body, takes, kind);
    const args = ['one', 'other']
      .slice(0, takes.length)
      .map((which, i) => `${takes[i]}: ${kind[which as 'one']}`);
    return call && { text: `${hold} v = call({ ${args.join(', ')}, yes, m });`, using: { call } };
  };

const ways: Readonly<Record<string, Way>> = {
  const: ({ one }) => ({ text: `const v = ${one};` }),
  'const, before m changes': ({ one }) => ({ text: `const v = ${one}; m = 0; if (yes) m = 5;` }),
  let: ({ one }) => ({ text: `let v = ${one};` }),
  'let, assigned': ({ one, other }) => ({ text: `let v = ${other}; if (yes) v = ${one};` }),
  '?:': ({ one, other }) => ({ text: `const v = yes ? ${one} : ${other};` }),
  '?: of a constant': ({ one, other }) => ({ text: `const v = true ? ${one} : ${other};` }),
  select: ({ one, other }) => ({ text: `const v = g.select(!yes, ${other}, ${one});` }),
  object: ({ one, other }) => ({ text: `const { v, w: [w] } = { v: ${one}, w: [${other}] };` }),
  array: ({ one, other }) => ({ text: `const [, v] = [${other}, ${one}];` }),
  item: ({ one, other }) => ({ text: `const all = [${other}, ${one}]; const v = all[1];` }),
  passed: (kind) => {
    const call = called('return USE;', ['v'], kind, 'u32');
    return call && { text: `const v = call({ v: ${kind.one}, yes, m });`, using: { call } };
  },
  returned: through('return v;', ['v'], 'const'),
  'returned to let': through('return v;', ['v'], 'let'),
  'returned in two places': through('if (yes) { return v; } return w;', ['v', 'w'], 'const'),
};

export interface Cell {
  readonly name: string;
  readonly is: number;
  /** The statements that store its number at `out.at(place)`. */
  text(place: number): string;
  readonly using: Readonly<Record<string, Using>>;
}

export const cells: readonly Cell[] = Object.entries(kinds).flatMap(([kind, made]) =>
  Object.entries(ways).flatMap(([way, hold]) => {
    const held = hold(made);
    if (held === undefined) return [];
    const { text, using: own = {} } = held;
    const use = way === 'passed' ? 'v' : made.use;
    return [
      {
        name: `${kind} by ${way}`,
        is: /passed|returned/.test(way) ? (made.isPassed ?? made.is) : made.is,
        using: own,
        text: (place: number) => `{ let m = n; ${text} g.store(out.at(${place}), ${use}); }`,
      },
    ];
  }),
);

const prologue = `if (g.threadIdx.x > 0) return; const words = g.shared('u32', 32); const sharedBytes = g.shared('u8', 8); const boxes = g.shared(Tile, 3);
  const regs = g.registers('u32', 2); regs[0] = 20; regs[1] = 21;
  const small = g.registers('u8', 2); small[0] = n; small[1] = n * 60;
  for (let i = 0; i < 96; i++) g.store(boxes.as('u32').at(i), i);
  for (let i = 0; i < 32; i++) g.store(words.at(i), i);
  for (let i = 0; i < 8; i++) g.store(sharedBytes.at(i), 0x80 + i);`;

/** A kernel of several cells. */
function kernelOf(of: readonly Cell[]) {
  const calls = of.flatMap((cell, i) =>
    Object.entries(cell.using).map(([name, call]) => [`${name}${i}`, call] as const),
  );
  const text = of.map((cell, i) => cell.text(i).replaceAll('call(', `call${i}(`)).join('\n  ');
  const names = [...Object.keys(using), ...calls.map(([name]) => name)];
  const body = new Function(`return (g, { ${Object.keys(params).join(', ')} }, { ${names.join(', ')} }) => {
  ${prologue}
  ${text}
}`)();
  return kernel({ name: 'holding', params, using: { ...using, ...Object.fromEntries(calls) } }, body);
}

/** The code of the first error of a cell by itself; undefined where it compiles. */
function refusalOf(cell: Cell): string | undefined {
  try {
    kernelOf([cell]).ir();
    return undefined;
  } catch (error) {
    if (error instanceof KernelError) return error.code;
    throw error;
  }
}

const codes = new Map(cells.map((cell) => [cell, refusalOf(cell)]));
/** `list by let: HK404`, sorted. */
export const refusals = cells
  .flatMap((cell) => (codes.get(cell) === undefined ? [] : [`${cell.name}: ${codes.get(cell)}`]))
  .sort();
export const held = cells.filter((cell) => codes.get(cell) === undefined);

/** The cells that a simulated machine computes otherwise. `compiled` makes of a kernel what runs in its place. */
export async function runCells(
  of: readonly Cell[],
  mode: 'fast' | 'checked',
  compiled: (module: KernelModule) => KernelModule = (module) => module,
): Promise<readonly string[]> {
  const machine = SimMachine.create({ ranks: 1, mode, seed: '1' });
  const device = machine.device(0);
  const stream = device.createStream();
  const filled = (bytes: Uint8Array<ArrayBuffer>): number => {
    const { address } = device.allocateWindow(bytes.length, 'memory');
    stream.copyIn(address, bytes);
    return address;
  };
  const counting = (count: number) => new Uint8Array(Uint32Array.from({ length: count }, (_, i) => i).buffer);
  const out = filled(new Uint8Array(4 * of.length));
  const data = filled(counting(32));
  const program = await device.load(compiled(kernelOf(of).ir()) as IrModule);
  const launcher = program.launcher({ grid: 1, block: 32, rank: 0 });
  const scalars = {
    out,
    data,
    bytes: filled(Uint8Array.from({ length: 32 }, (_, i) => 0x80 + i)),
    n: 5,
    yes: 1,
  };
  for (const [name, value] of Object.entries(scalars)) launcher.set(name, value);
  launcher.setWindow('win', { rank: 0, bytes: window.bytes, bases: [filled(counting(window.bytes / 4))] });
  launcher.setTensor('map', { address: data, extents: [8, 4] });
  launcher.launch(stream);
  const found = new Uint32Array((await stream.copyOut(out, 4 * of.length)).slice().buffer);
  expect(machine.findings.map(formatFinding)).toEqual([]);
  return of.flatMap(({ name, is }, i) => (found[i] === is ? [] : [`${name}: ${found[i]}, not ${is}`]));
}
