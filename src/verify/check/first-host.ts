/** Writes a host to begin with. Its launches are guesses from what the source of a kernel says of its parameters. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { demangled, type PtxFunction, type PtxParameter, type PtxProgram } from '../../lang/ptx/index.js';
import { type ElementType, type Fields, struct } from './elements.js';

/** A parameter, or a field of a struct. */
interface Declared {
  readonly name: string;
  /** In C++, without qualifiers: 'float**'. */
  readonly type: string;
  /** The elements of an array; null where it is none. */
  readonly count: number | null;
}

type Bytes = Pick<PtxParameter, 'name' | 'bytes' | 'type'>;

interface Kernel {
  readonly name: string;
  /** In C++, without its arguments. */
  readonly plain: string;
  readonly entry: PtxFunction;
  readonly params: readonly (Declared & { readonly bytes: number; readonly isNumber: boolean })[];
  /** All parameters and fields of structs. */
  readonly leaves: readonly Declared[];
}

/** A configuration for each kernel; one for kernels that wait for each other, which ranks run beside each other. */
export function firstHost(program: PtxProgram, paramsOf: (name: string) => readonly Bytes[]): string {
  const source = new Source(program.module);
  const kernels = program.kernels.map((name): Kernel => {
    const entry = program.module.functions.get(name)!;
    const { plain, params } = source.kernel(name, paramsOf(name));
    const leaves = params.flatMap((param) => [param, ...(source.fields(param.type) ?? [])]);
    return { name, plain, entry, params, leaves };
  });
  const structs = new Map<string, string>();
  const beside = kernels.filter((one) => isMeeting(one.entry) && !reachesOthers(one));
  const shared = (one: Kernel): Kernel[] =>
    beside.filter(
      (other) => other === one || pointersOf(other).some((name) => pointersOf(one).includes(name)),
    );
  const done = new Set<Kernel>();
  const configurations = kernels.flatMap((one) => {
    if (done.has(one)) return [];
    const group = beside.includes(one) ? shared(one) : [one];
    for (const each of group) done.add(each);
    return configurationOf(group, source, structs);
  });
  return [
    `import { everyRank, type PtxHost${structs.size > 0 ? ', struct' : ''} } from 'heddle/check';`,
    '',
    '// Shapes, sizes and values are guesses: look at each. `count` is what kernels are told, `size` how much memory there is.',
    `const [ranks, count, size] = [2, 64, 4096];`,
    'const zeros = new Array(size).fill(0);',
    ...structs.values(),
    '',
    'const host: PtxHost = (kernels) => [',
    ...configurations,
    '];',
    'export default host;',
    '',
  ].join('\n');
}

const pointersOf = ({ leaves }: Kernel): string[] =>
  leaves.filter((one) => isPointer(one) && !isOutput(one.name)).map(({ name }) => name);
const isPointer = ({ type }: Declared): boolean => type.endsWith('*');
const isList = ({ type, count }: Declared): boolean =>
  type.endsWith('**') || (type.endsWith('*') && count !== null);
const isOutput = (name: string): boolean => /^(d_)?(out|res|sum|dst|y$)/i.test(name);

/** Whether threads wait for others by what instructions say. */
const isMeeting = ({ instructions }: PtxFunction): boolean =>
  instructions.some(({ parts }) => parts.includes('sys') || parts.includes('volatile'));
const reachesOthers = ({ leaves }: Kernel): boolean =>
  leaves.some(
    (one) => isList(one) || ofRank(one.name) !== null || (isPointer(one) && whose(one.name) === 'other'),
  );
const uses = ({ instructions }: PtxFunction, special: string): boolean =>
  instructions.some(({ operands }) =>
    operands.some((one) => one.kind === 'special' && one.name.startsWith(special)),
  );

const words = (name: string): string[] =>
  name
    .replaceAll(/([a-z\d])([A-Z])/g, '$1_$2')
    .toLowerCase()
    .match(/[a-z\d]+/g) ?? [];
const ofOthers = /^(peers?|remote|theirs?|others?|neighbou?r|partner|next|there|far)$/;
const ofOwn = /^(my|mine|own|self|local|here|me)$/;

/** Reads from a name whose memory or number it is; null where the name does not say so. */
function whose(name: string): 'own' | 'other' | null {
  const all = words(name);
  if (all.some((word) => ofOthers.test(word))) return 'other';
  return all.some((word) => ofOwn.test(word)) ? 'own' : null;
}

/** Gives `my_flag` and `peer_flags` the same name. */
const stem = (name: string): string =>
  words(name)
    .filter((word) => !ofOthers.test(word) && !ofOwn.test(word) && !/^(ptrs?|p|d)$/.test(word))
    .map((word) => word.replace(/s$/, ''))
    .join('_');

const ofAll =
  /world|^(n|num|tp|ep)?_?(ranks|gpus|pes|devices|peers)$|(rank|gpu|pe|device)s?_?(count|num|size)/i;

/** A number of ranks, or one of them; null for others. */
function ofRank(name: string): string | null {
  if (ofAll.test(name)) return 'ranks';
  if (whose(name) === 'other' && !/flag|off/i.test(name)) return 'other';
  return /rank|^(my_?)?(me|pe|gpu|dev|device|self)(_?id)?$/i.test(name) ? 'rank' : null;
}

function numberFor({ name, type }: Declared): string {
  if (/f/.test(elementOf(type))) return '1';
  const rank = ofRank(name);
  if (rank !== null) return rank;
  if (/epoch|round|flag|seq|gen|phase|token|step|iter|signal|stamp|value/i.test(name)) return '1';
  return type === 'bool' || /off|base|start|begin|idx|index|channel|root|slot/i.test(name) ? '0' : 'count';
}

const names: Readonly<Partial<Record<ElementType, string>>> = {
  ...{ f32: 'float', f64: 'double', f16: '.*half', bf16: '.*(bfloat16|bf16)', i32: 'int(32_t)?' },
  ...{ u8: 'unsigned char|u?int8_t|char|bool', u16: 'unsigned short|u?int16_t|short' },
  ...{ u64: 'unsigned long( long)?|u?int64_t|size_t|long( long)?', u32: 'unsigned( int)?|uint32_t|void' },
};
const known = (type: string): ElementType | undefined =>
  (Object.keys(names) as ElementType[]).find((one) => new RegExp(`^(${names[one]})[*]*$`).test(type));
const elementOf = (type: string): ElementType => known(type) ?? 'u32';

/** A host that every rank runs. Of several kernels each rank runs one. */
function configurationOf(kernels: readonly Kernel[], source: Source, structs: Map<string, string>): string[] {
  const windows = new Map<string, string>();
  const crosses = kernels.some((one) => isMeeting(one.entry) || reachesOthers(one));
  const lists = kernels.flatMap(({ leaves }) =>
    leaves.filter((one) => isList(one) || whose(one.name) === 'other'),
  );
  const others = lists.filter(isPointer);
  /** Finds the list that a pointer belongs to: by its name, or as a struct of its own by the type. */
  const among = ({ name, type }: Declared): Declared | undefined =>
    others.find((one) => stem(one.name) === stem(name)) ??
    others.find(
      (one) => whose(name) === 'own' && !known(type) && withoutScope(one.type) === withoutScope(type),
    );
  const isApart = kernels.length > 1;
  const hasRank = kernels.some(({ leaves }) => leaves.some(({ name }) => ofRank(name) === 'rank'));

  function window({ name, type }: Declared): string {
    const key = stem(name).replace(/^(?=\d|$)/, 'box');
    if (!windows.has(key)) windows.set(key, elementOf(type));
    return `windows.${key}`;
  }
  function value(one: Declared): string {
    const { name, type } = one;
    const fields = source.fields(type);
    if (isList(one)) {
      const all = window(one);
      return one.count === null
        ? `host.buffer('${name}', 'pointer', ${all}.map(({ address }) => address))`
        : all;
    }
    if (fields?.some(isPointer)) {
      const made = ofFields(type, fields);
      return isPointer(one) ? `host.buffer('${name}', 'u8', [...${made}])` : made;
    }
    if (!isPointer(one)) return numberFor(one);
    if (whose(name) === 'other') return `${window(one)}[other]!`;
    const list = among(one);
    if (list !== undefined) return `${window(list)}[rank]!`;
    const isShared = isApart
      ? kernels.every((all) => pointersOf(all).includes(name))
      : others.length === 0 && hasRank;
    if (isShared && !isOutput(name)) return `${window(one)}[0]!`;
    return `host.buffer('${name}', '${elementOf(type)}', zeros)`;
  }
  function ofFields(type: string, fields: readonly Declared[]): string {
    const name = withoutScope(type);
    const types = fields.map((one) =>
      one.count === null
        ? `${one.name}: '${fieldType(one)}'`
        : `${one.name}: ['${fieldType(one)}', ${one.count}]`,
    );
    structs.set(name, `const ${name} = struct({ ${types.join(', ')} });`);
    return `${name}.of({ ${fields.map((field) => `${field.name}: ${value(field)}`).join(', ')} })`;
  }
  const launches = kernels.flatMap(({ name, entry, params }, i) => {
    const grid = uses(entry, 'ctaid') ? 2 : 1;
    const block = Math.min(uses(entry, 'tid') ? 64 : 1, entry.maxThreads ?? 64);
    const shape = `grid: ${grid}, block: ${block}${uses(entry, 'envreg') ? ', cooperative: true' : ''}`;
    const names = params.map((one) => `'${one.name}'`).join(', ');
    const options = `{ params: [${names}]${source.sharedBytes > 0 ? `, sharedBytes: ${source.sharedBytes}` : ''} }`;
    return [
      ...(isApart ? [`    if (rank === ${i})`] : []),
      `    host.launch(kernels.kernel('${name}', ${options}), { ${shape} }, {`,
      ...params.map((one) => {
        const fields = source.fields(one.type);
        const isKnown =
          isPointer(one) || one.isNumber || (fields && struct(structOf(fields)).bytes === one.bytes);
        return `      ${one.name}: ${isKnown ? `${value(one)},` : `new Uint8Array(${one.bytes}), // struct({ its fields }).of({ … })`}`;
      }),
      '    });',
    ];
  });
  const made = [...windows].map(
    ([key, type]) => `      ${key}: await host.windows('${key}', '${type}', size),`,
  );
  return [
    `  everyRank('${kernels.map(({ plain }) => plain).join(', ')}', { ranks${isApart ? `: ${kernels.length}` : crosses ? '' : ': 1'} }, async (host) => {`,
    ...(crosses
      ? [
          '    const { rank } = host;',
          '    const other = (rank + 1) % ranks;',
          '    // Memory that other ranks address, too, by rank. What `host.buffer` gives a rank has for itself: if waits do not end, or',
          '    // nothing is found, look for one below that is the other rank’s in truth, and make it `windows.box[other]!`.',
          '    const windows = {',
          ...made,
          '    };',
        ]
      : []),
    ...launches,
    '    // What stands behind the launch reads what it brought. To compare: await host.expect(memory, (i) => what must stand at i);',
    ...[...windows.keys()]
      .filter((key) => !/flag|sig|sem|bar|sync|pad|ready/.test(key))
      .map((key) => `    await host.read(windows.${key}[rank]!);`),
    '    await host.meet();',
    '  }),',
  ];
}

const fieldType = (one: Declared): ElementType => (isPointer(one) ? 'pointer' : elementOf(one.type));
const structOf = (fields: readonly Declared[]): Fields =>
  Object.fromEntries(
    fields.map((one) => [one.name, one.count === null ? fieldType(one) : [fieldType(one), one.count]]),
  );

/** The text of the files that a module names, and of what they include from beside them. */
class Source {
  readonly #text: string;
  /** Dynamic shared memory, if a kernel of the module has it. */
  readonly sharedBytes: number;

  constructor({ sources, variables }: PtxProgram['module']) {
    this.sharedBytes = variables.some(({ space, bytes }) => space === 'shared' && bytes === null)
      ? 16_384
      : 0;
    const read = (file: string): string =>
      existsSync(file) ? readFileSync(file, 'utf8').replaceAll(/\/\/.*|\/\*[\s\S]*?\*\//g, ' ') : '';
    this.#text = [...sources.values()]
      .flatMap((file) => {
        const text = read(file);
        const beside = [...text.matchAll(/#include\s+"([^"]+)"/g)].map(([, name]) =>
          join(dirname(file), name!),
        );
        return [text, ...beside.map(read)];
      })
      .join('\n');
  }

  /** The parameters of a kernel: their names from the source, their types from its name where that has them. */
  kernel(name: string, params: readonly Bytes[]) {
    const cpp = demangled(name);
    const plain = withoutScope(cpp.name);
    const written = parts(this.#inside(`__global__[^;{}]*?\\b${plain}\\s*\\(`) ?? '', ',').map((one) =>
      this.#declared(one),
    );
    const types = cpp.params === null ? null : parts(cpp.params, ',').map(unqualified);
    const isKnown = written.length === params.length && written.every((one) => one !== null);
    return {
      plain,
      params: params.map(({ name, bytes, type }, i) => {
        const { name: own, type: said } = isKnown
          ? written[i]!
          : { name, type: type === 'u64' ? 'void*' : '' };
        return { name: own, type: types?.[i] ?? said, count: null, bytes, isNumber: type !== null };
      }),
    };
  }

  /** The fields of a struct, or of that to which a pointer leads; null where the source does not say. */
  fields(type: string): readonly Declared[] | null {
    const name = withoutScope(type);
    const body = name === '' ? null : this.#inside(`\\bstruct\\b[^;{}]*?\\b${name}\\s*\\{`);
    if (body === null) return null;
    const written = parts(unqualified(body), ';').filter((one) => !/\(|\b(static|typedef|using)\b/.test(one));
    const all = written.map((one) => this.#declared(one));
    return all.every((one) => one !== null) ? all : null;
  }

  #declared(text: string): Declared | null {
    const [, type, name, array] =
      /^(.*?[\s*&>])\s*(\w+)\s*(?:\[\s*(\w*)\s*\]\s*)?$/s.exec(unqualified(text.replace(/=.*/s, ''))) ?? [];
    if (type === undefined) return null;
    const count = array === undefined || array === '' ? null : this.#constant(array);
    return { name: name!, type: unqualified(type) + (array === '' ? '*' : ''), count };
  }

  #constant(text: string): number {
    const said = new RegExp(`\\b${text}\\s*=?\\s*(\\d+)\\b`).exec(this.#text);
    return Number(/^\d/.test(text) ? text : (said?.[1] ?? 8));
  }

  /** Finds the text in the brackets that `opening` opens. */
  #inside(opening: string): string | null {
    const found = new RegExp(opening).exec(this.#text);
    if (found === null) return null;
    const from = found.index + found[0].length;
    let at = from;
    for (let depth = 1; depth > 0 && at < this.#text.length; at++)
      depth += /[({]/.test(this.#text[at]!) ? 1 : /[)}]/.test(this.#text[at]!) ? -1 : 0;
    return this.#text.slice(from, at - 1);
  }
}

/** Takes `Peers` from `ns::Peers<float>*`. */
const withoutScope = (name: string): string => /^(?:[^<]*::)?([^<*&\s]*)/.exec(name)![1]!;

const unqualified = (type: string): string =>
  type
    .replaceAll(
      /\b(const|volatile|__restrict__|__grid_constant__|struct|(?:alignas|__align__)\s*\([^)]*\))(?!\w)/g,
      ' ',
    )
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/ (?=[*&])/g, '')
    .trim();

/** Splits a text at the marks that are in no brackets. */
function parts(text: string, mark: string): string[] {
  const all = [''];
  let depth = 0;
  for (const one of text) {
    depth += /[<({[]/.test(one) ? 1 : /[>)}\]]/.test(one) ? -1 : 0;
    if (one === mark && depth === 0) all.push('');
    else all[all.length - 1] += one;
  }
  return all.filter((part) => part.trim() !== '');
}
