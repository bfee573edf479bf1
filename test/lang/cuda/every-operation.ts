/** Programs that meet every pure operation of a type: for the host's compiler here, for a GPU where there is one. */
import { device, type IrModule, kernel, pointer } from '../../../src/lang/index.js';
import { pureFunctions, pureNames } from '../../../src/lang/operations/pure.js';
import { edges } from './edges.js';

export const computed = ['i32', 'u32', 'u64', 'f32'] as const;
export type Computed = (typeof computed)[number];

/** The bits of a NaN are nobody's promise, so it counts as 0. */
const floatBits = device({ params: { x: 'f32' }, returns: 'u64' }, (g, { x }) =>
  g.u64(g.select(x <= 0 || x > 0, g.bits('u32', x), 0)),
);

/** The text of any scalar as a u64. */
const asWord: Readonly<Record<Computed | 'bool', (text: string) => string>> = {
  i32: (text) => `g.u64(${text})`,
  u32: (text) => `g.u64(${text})`,
  u64: (text) => text,
  f32: (text) => `floatBits({ x: ${text} })`,
  bool: (text) => `g.u64(g.u32(${text}))`,
};

/** A program of two values that writes, as u64 each, what every operation makes of them. */
export function everyOperation(type: Computed): {
  type: Computed;
  module: IrModule;
  names: readonly string[];
} {
  const made: Record<string, string> = {};
  const add = (name: string, text: string, of: keyof typeof asWord = type): void => {
    made[name] = asWord[of](text);
  };
  for (const op of ['+', '-', '*', '/']) add(op, `a ${op} b`);
  for (const op of ['<', '<=', '>', '>=', '===', '!==']) add(op, `a ${op} b`, 'bool');
  for (const name of pureNames) {
    const operands = pureFunctions[name].forms[type]?.compute.length;
    if (operands === 1) add(name, `g.${name}(a)`);
    if (operands === 2) add(name, `g.${name}(a, b)`);
    if (operands === 3)
      for (const i of edges[type].keys()) add(`${name} ${i}`, `g.${name}(a, b, EDGES[${i}])`);
  }
  for (const to of computed) add(`to ${to}`, `g.${to}(a)`, to);
  add('negative', '-a');
  if (type === 'f32') {
    for (const storage of ['bf16', 'f16', 'e4m3']) {
      add(storage, `g.f32(g.${storage}(a))`);
      // Packed two at a time, where the target has an instruction for that.
      const [lanes, word] = storage === 'e4m3' ? [16, 'a, b, a, b'] : [8, 'a, b'];
      add(`${storage} word`, `g.word('${storage}', [${word}])`, 'u32');
      add(`${storage} lane`, `g.f32(g.lane(g.pack('${storage}', lanes${lanes}), '${storage}', 5))`);
    }
  } else {
    for (const op of ['%', '&', '|', '^', '<<', '>>']) add(op, `a ${op} b`);
    for (const [i, value] of edges[type].entries()) {
      if (Number(value) !== 0) for (const op of ['/', '%']) add(`${op} ${value}`, `a ${op} EDGES[${i}]`);
      if (value >= 0 && value < (type === 'u64' ? 64 : 32))
        for (const op of ['<<', '>>']) add(`${op} ${value}`, `a ${op} EDGES[${i}]`);
    }
    add('complement', '~a');
  }
  const lanes = [8, 16].map(
    (count) =>
      `const lanes${count} = g.registers('f32', ${count}, a); for (const i of g.unroll(${count / 2})) lanes${count}[2 * i + 1] = b;`,
  );
  const stores = Object.values(made).map((word, i) => `g.store(output.at(${i}), ${word});`);
  const lines = [...(type === 'f32' ? lanes : []), ...stores].join('\n');
  const body = new Function(`return (g, { a, b, output }, { EDGES, floatBits }) => {\n${lines}\n}`)();
  const params = { a: type, b: type, output: pointer('u64') } as const;
  const using = { EDGES: [...edges[type]], floatBits };
  const module = kernel({ name: `every_${type}`, params, using }, body).ir();
  return { type, names: Object.keys(made), module };
}
