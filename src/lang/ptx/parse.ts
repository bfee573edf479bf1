/** Text of PTX to a module. It reads every instruction there may be; what the machine knows of them, src/gpu/sim says. */
import { requireArray, requireText } from '../../base/errors.js';
import {
  isPtxType,
  type PtxFloat,
  type PtxFunction,
  type PtxGuard,
  type PtxInstruction,
  type PtxInteger,
  type PtxLocation,
  type PtxModule,
  type PtxOperand,
  type PtxRegister,
  type PtxSpace,
  type PtxSymbol,
  type PtxText,
  type PtxType,
  type PtxVariable,
  ptxBytes,
} from './module.js';
import { Tokens } from './tokens.js';

const spaces: ReadonlySet<string> = new Set(['.global', '.shared', '.local', '.const', '.param']);
const linkage: ReadonlySet<string> = new Set(['.visible', '.extern', '.weak', '.common']);

/** The text before the zeros with which it ends where C gave it, or a fat binary. */
function withoutEnd(text: string): string {
  const end = text.indexOf('\0');
  return end < 0 || /[^\0\s]/.test(text.slice(end)) ? text : text.slice(0, end);
}

/** The module of some files, while they are read. */
interface Reading {
  readonly files: { readonly file: string; readonly first: number }[];
  version: string;
  target: string;
  readonly sources: Map<number, string>;
  readonly variables: Map<string, PtxVariable>;
  readonly functions: Map<string, PtxFunction>;
  readonly lines: string[];
  /** Names that no other file may define again. */
  readonly strong: Set<string>;
}

/** Reads files of PTX into one module, in which each finds what the others define for all. */
export function parsePtx(files: readonly PtxText[]): PtxModule {
  const module: Reading = {
    ...{ files: [], version: '', target: '', sources: new Map(), lines: [], strong: new Set() },
    ...{ variables: new Map(), functions: new Map() },
  };
  requireArray('files', files, 'the texts of files');
  for (const { file, text } of files)
    readFile(module, withoutEnd(requireText('text', text)), requireText('file', file));
  return { ...module, variables: [...module.variables.values()] };
}

function readFile(module: Reading, text: string, file: string): void {
  const { sources, lines } = module;
  const tokens = new Tokens(text, file, lines.length);
  const suffix = module.files.length === 0 ? '' : `@${file}`;
  const firstSource = suffix === '' ? 0 : 1 + Math.max(0, ...sources.keys());
  /** Symbols that other files do not see, by their names here: the names that they have among all files. */
  const own = new Map<string, string>();
  /** Symbols that are none of a function. */
  const symbols: { name: string }[] = [];
  let version = '';
  module.files.push({ file, first: lines.length });
  for (const line of text.split('\n')) lines.push(line);

  while (tokens.next !== '') directive();
  if (version === '') throw tokens.error("this is no PTX: it has no '.version'");
  module.version ||= version;
  for (const symbol of symbols) symbol.name = own.get(symbol.name) ?? symbol.name;

  function directive(): void {
    switch (tokens.next) {
      case '.version':
        tokens.take();
        version = tokens.take();
        return;
      case '.target':
        tokens.take();
        module.target = tokens.take();
        while (tokens.accept(',')) tokens.take();
        return;
      case '.address_size':
        tokens.take();
        if (tokens.take() !== '64') throw tokens.error('addresses must have 64 bits');
        return;
      case '.file':
        source(tokens.restOfLine());
        return;
      case '.section':
        tokens.take();
        tokens.take();
        tokens.skipBraces();
        return;
      case '.pragma':
        while (!tokens.accept(';')) tokens.take();
        return;
    }
    definition();
  }

  function source(line: string): void {
    const [, number, path] = /^\.file\s+(\d+)\s+"([^"]*)"/.exec(line) ?? [];
    if (path === undefined) throw tokens.error(`'${line}' names no file`);
    sources.set(firstSource + Number(number), path);
  }

  function definition(): void {
    let linked = '';
    while (linkage.has(tokens.next)) linked = tokens.take();
    if (tokens.next === '.entry' || tokens.next === '.func') {
      const found = oneFunction();
      if (found !== null) define(module.functions, found, linked);
    } else if (spaces.has(tokens.next))
      for (const one of variableList()) define(module.variables, one, linked);
    else throw tokens.error(`'${tokens.next}' is nothing that a module may have`);
  }

  function define<T extends PtxFunction | PtxVariable>(all: Map<string, T>, one: T, linked: string): void {
    const { name } = one;
    // A file that declares what another defines; but of dynamic shared memory there is no more.
    if (linked === '.extern' && !('bytes' in one && one.space === 'shared')) return;
    if (linked === '') {
      own.set(name, name + suffix);
      all.set(name + suffix, { ...one, name: name + suffix });
    } else if (linked === '.visible') {
      if (module.strong.has(name)) throw tokens.error(`'${name}' has been defined before`);
      module.strong.add(name);
      all.set(name, one);
    } else if (!all.has(name)) all.set(name, one);
  }

  /** `.shared .align 16 .b8 name[64];`, and more of the same type behind commas. */
  function variableList(): PtxVariable[] {
    const declared = declaration();
    const variables = [variable(declared)];
    while (tokens.accept(',')) variables.push(variable(declared));
    tokens.expect(';');
    return variables;
  }

  function declaration(): Declared {
    const space = tokens.take().slice(1) as PtxSpace;
    let align = 0;
    let elements = 1;
    let managed = false;
    for (;;) {
      const token = tokens.take();
      if (token === '.align') align = tokens.takeCount();
      else if (token === '.v2') elements = 2;
      else if (token === '.v4') elements = 4;
      // The type to which a pointer points.
      else if (token === '.ptr') {
        while (spaces.has(tokens.next) || tokens.next === '.align')
          if (tokens.take() === '.align') tokens.take();
        return { space, type: 'u64', align: align || 8, elements, managed };
      } else if (isPtxType(token.slice(1))) {
        const type = token.slice(1) as PtxType;
        if (tokens.next === '.ptr') continue;
        return { space, type, align: align || ptxBytes[type] * elements, elements, managed };
      } else if (token === '.attribute') {
        tokens.expect('(');
        managed = tokens.take() === '.managed';
        tokens.expect(')');
      } else {
        throw tokens.error(`'${token}' is not known in a declaration`);
      }
    }
  }

  function variable({ space, type, align, elements, managed }: Declared): PtxVariable {
    const line = tokens.moduleLine;
    const name = tokens.take();
    const extents: (number | null)[] = [];
    while (tokens.accept('[')) {
      extents.push(tokens.next === ']' ? null : tokens.takeCount());
      tokens.expect(']');
    }
    if (elements > 1) extents.push(elements);
    const init = tokens.accept('=') ? initial(extents) : null;
    const known = product(extents);
    let length: number | null = known;
    // The list says how long the first extent is, where the brackets do not.
    if (extents.includes(null)) length = init && Math.ceil(init.length / known) * known;
    const bytes = length === null ? null : length * ptxBytes[type];
    return { name, space, type, align, bytes, init, line, managed };
  }

  /** The values of a list in braces. As in C, elements that it leaves out are zero. */
  function initial(extents: readonly (number | null)[]): (PtxInteger | PtxFloat | PtxSymbol)[] {
    if (tokens.accept('{')) {
      const values: (PtxInteger | PtxFloat | PtxSymbol)[] = [];
      const inner = extents.slice(1);
      while (!tokens.accept('}')) {
        const end = tokens.next === '{' ? values.length + product(inner) : 0;
        values.push(...tokens.nested(() => initial(inner)));
        while (values.length < end) values.push({ kind: 'integer', value: 0n });
        tokens.accept(',');
      }
      return values;
    }
    if (tokens.accept('generic')) {
      tokens.expect('(');
      const value = constant();
      tokens.expect(')');
      return [value];
    }
    return [constant()];
  }

  function constant(): PtxInteger | PtxFloat | PtxSymbol {
    const operand = operandsOf(tokens, null, (symbol) => symbols.push(symbol)).operand();
    if (operand.kind === 'integer' || operand.kind === 'float' || operand.kind === 'symbol') return operand;
    throw tokens.error('a constant must stand here');
  }

  function parameters(): PtxVariable[] {
    const params: PtxVariable[] = [];
    tokens.expect('(');
    while (!tokens.accept(')')) {
      if (tokens.next === '.reg')
        throw tokens.error('a function of old PTX, with registers as its parameters');
      params.push(variable(declaration()));
      tokens.accept(',');
    }
    return params;
  }

  /** Null where it is defined elsewhere. */
  function oneFunction(): PtxFunction | null {
    const isEntry = tokens.take() === '.entry';
    const returns = tokens.next === '(' ? parameters() : [];
    const line = tokens.moduleLine;
    const name = tokens.take();
    const params = tokens.next === '(' ? parameters() : [];
    let maxThreads: number | null = null;
    let cluster: readonly number[] | null = null;
    const extents = (): number[] => {
      const all = [tokens.takeCount()];
      while (tokens.accept(',')) all.push(tokens.takeCount());
      return all;
    };
    while (tokens.next !== '{' && tokens.next !== ';') {
      const directive = tokens.take();
      if (directive === '.maxntid' || directive === '.reqntid') maxThreads = product(extents());
      else if (directive === '.reqnctapercluster') cluster = extents();
      else if (['.minnctapersm', '.maxnreg', '.maxnctapersm', '.maxclusterrank'].includes(directive))
        tokens.take();
      else if (directive === '.pragma') while (tokens.next !== '{' && !tokens.accept(';')) tokens.take();
      else if (directive !== '.noreturn' && directive !== '.explicitcluster')
        throw tokens.error(`'${directive}' is not known of a function`);
    }
    if (tokens.accept(';')) return null;
    const body = readBody(tokens, firstSource, variableList, (symbol) => symbols.push(symbol));
    return { name, isEntry, params, returns, ...body, maxThreads, cluster, line };
  }
}

interface Declared {
  readonly space: PtxSpace;
  readonly type: PtxType;
  readonly align: number;
  readonly elements: number;
  readonly managed: boolean;
}

interface Scope {
  readonly parent: Scope | null;
  /** `%r` of `%r<12>` stands for all that begin so. */
  readonly registers: Map<string, { readonly type: PtxType | 'pred'; readonly count: number | null }>;
  /** Names of labels and variables, as the function has them. */
  readonly names: Map<string, string>;
  /** Tells its names from those of other scopes. */
  readonly suffix: string;
}

type Found = Pick<PtxFunction, 'variables' | 'instructions' | 'labels' | 'tables'>;

function readBody(
  tokens: Tokens,
  firstSource: number,
  variables: () => PtxVariable[],
  outside: (symbol: { name: string }) => void,
): Found {
  const found: PtxVariable[] = [];
  const instructions: PtxInstruction[] = [];
  const labels = new Map<string, number>();
  const tables = new Map<string, readonly string[]>();
  /** Labels and variables that instructions name, with the scope in which they do. */
  const named: { readonly operand: { name: string }; readonly scope: Scope }[] = [];
  let scopes = 0;
  let source: PtxLocation | null = null;
  /** The latest at each place: who is inlined there, and into what that was inlined itself. */
  const located = new Map<string, PtxLocation>();

  block(null);
  // A label may stand behind the instruction that names it.
  for (const { operand, scope } of named) {
    let at: Scope | null = scope;
    while (at !== null && !at.names.has(operand.name)) at = at.parent;
    if (at !== null) operand.name = at.names.get(operand.name)!;
    else outside(operand);
  }
  return { variables: found, instructions, labels, tables };

  function block(parent: Scope | null): void {
    const suffix = parent === null ? '' : `#${++scopes}`;
    const scope: Scope = { parent, registers: new Map(), names: new Map(), suffix };
    tokens.expect('{');
    while (!tokens.accept('}')) {
      const { next } = tokens;
      if (next === '') throw tokens.error("a '}' is missing");
      else if (next === '{') tokens.nested(() => block(scope));
      else if (next === '.reg') registers(scope);
      else if (spaces.has(next)) {
        for (const variable of variables()) {
          const name = `${variable.name}${suffix}`;
          scope.names.set(variable.name, name);
          found.push({ ...variable, name });
        }
      } else if (next === '.loc') location(tokens.restOfLine());
      else if (next === '.pragma') while (!tokens.accept(';')) tokens.take();
      else if (next === ';') tokens.take();
      else statement(scope);
    }
  }

  function registers(scope: Scope): void {
    tokens.take();
    const type = tokens.take().slice(1);
    if (type !== 'pred' && !isPtxType(type))
      throw tokens.error(`'.${type}' is no type of registers that is known`);
    do {
      const name = tokens.take();
      let count: number | null = null;
      if (tokens.accept('<')) {
        count = tokens.takeCount();
        tokens.expect('>');
      }
      scope.registers.set(name, { type, count });
    } while (tokens.accept(','));
    tokens.expect(';');
  }

  function location(line: string): void {
    const found = /^\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?/.exec(line);
    if (found === null) throw tokens.error(`'${line}' names no line`);
    const [file, row, column, ofFile, ofRow, ofColumn] = found.slice(1).map(Number);
    const at = `${ofFile} ${ofRow} ${ofColumn}`;
    const inlinedAt =
      ofFile === undefined || Number.isNaN(ofFile)
        ? null
        : (located.get(at) ?? {
            file: firstSource + ofFile,
            line: ofRow!,
            column: ofColumn!,
            inlinedAt: null,
          });
    // Line 0 is nobody's: what was moved there keeps the line before.
    if (row === 0) return;
    source = { file: firstSource + file!, line: row!, column: column!, inlinedAt };
    located.set(`${file} ${row} ${column}`, source);
  }

  function statement(scope: Scope): void {
    const line = tokens.moduleLine;
    const operands = operandsOf(tokens, scope, (operand) => named.push({ operand, scope }));
    let guard: PtxGuard | null = null;
    if (tokens.accept('@')) {
      const negated = tokens.accept('!');
      guard = { register: operands.register(), negated };
    }
    const first = tokens.take();
    if (guard === null && tokens.accept(':')) {
      label(first, scope);
      return;
    }
    const parts = first.split('.');
    const list: PtxOperand[] = [];
    while (!tokens.accept(';')) {
      list.push(operands.operand());
      if (!tokens.accept(',') && tokens.next !== ';')
        throw tokens.error(`';' should stand before '${tokens.next}'`);
    }
    instructions.push({ parts, guard, operands: list, line, source });
  }

  function label(name: string, scope: Scope): void {
    if (tokens.accept('.branchtargets')) {
      const labels: string[] = [];
      do labels.push(tokens.take());
      while (tokens.accept(','));
      tokens.expect(';');
      tables.set(name, labels);
      return;
    }
    // Of calls by an address, which nothing simulates.
    if (tokens.accept('.callprototype') || tokens.accept('.calltargets')) {
      while (!tokens.accept(';')) tokens.take();
      return;
    }
    const unique = `${name}${scope.suffix}`;
    scope.names.set(name, unique);
    labels.set(unique, instructions.length);
  }
}

/** Operands, with the registers that a scope knows. */
function operandsOf(
  tokens: Tokens,
  scope: Scope | null,
  named: (operand: { name: string }) => void = () => {},
) {
  function operand(): PtxOperand {
    if (tokens.accept('[')) return address();
    if (tokens.accept('{')) return list('}');
    if (tokens.accept('(')) return list(')');
    if (tokens.accept('!')) return { kind: 'not', of: register() };
    const first = simple();
    if (!tokens.accept('|')) return first;
    return { kind: 'pair', first, second: simple() };
  }

  function list(end: string): PtxOperand {
    const elements: PtxOperand[] = [];
    while (!tokens.accept(end)) {
      elements.push(tokens.nested(operand));
      tokens.accept(',');
    }
    return { kind: 'list', elements };
  }

  function address(): PtxOperand {
    const base = simple();
    if (base.kind !== 'register' && base.kind !== 'symbol' && base.kind !== 'integer')
      throw tokens.error('this is no address');
    const offset = tokens.accept('+') ? distance() : 0;
    const coordinates = tokens.accept(',') ? [tokens.nested(operand)] : [];
    tokens.expect(']');
    return { kind: 'address', base, offset, coordinates };
  }

  function distance(): number {
    const value = simple();
    if (value.kind !== 'integer') throw tokens.error('a distance from an address must be a number');
    return Number(value.value);
  }

  function simple(): PtxOperand {
    if (tokens.accept('-')) {
      const value = number(tokens.take());
      if (value.kind === 'integer') return { ...value, value: -value.value };
      throw tokens.error("'-' should stand before a whole number");
    }
    const text = tokens.take();
    if (text === '_') return { kind: 'sink' };
    if (/^\d/.test(text)) return number(text);
    const register = registerNamed(text);
    if (register !== null) return register;
    if (text.startsWith('%')) return { kind: 'special', name: text.slice(1) };
    if (!/^[\w$.]/.test(text)) throw tokens.error(`'${text}' is no operand`);
    const symbol = { kind: 'symbol' as const, name: text, offset: 0 };
    if (tokens.next === '+') {
      tokens.take();
      symbol.offset = distance();
    }
    named(symbol);
    return symbol;
  }

  function register(): PtxRegister {
    const name = tokens.take();
    const register = registerNamed(name);
    if (register === null) throw tokens.error(`'${name}' is no register`);
    return register;
  }

  function registerNamed(name: string): PtxRegister | null {
    const stem = name.replace(/\d+$/, '');
    const number = stem === name ? Number.NaN : Number(name.slice(stem.length));
    for (let at = scope; at !== null; at = at.parent) {
      let found = at.registers.get(name);
      if (found === undefined || found.count !== null) {
        found = at.registers.get(stem);
        if (found === undefined || found.count === null || !(number < found.count)) continue;
      }
      return { kind: 'register', name: `${name}${at.suffix}`, type: found.type };
    }
    return null;
  }

  function number(text: string): PtxOperand {
    const single = /^0[fF]([\da-fA-F]{8})$/.exec(text);
    if (single !== null) {
      const bits = Number.parseInt(single[1]!, 16);
      view.setUint32(0, bits);
      return { kind: 'float', value: view.getFloat32(0), bits: BigInt(bits), single: true };
    }
    const double = /^0[dD]([\da-fA-F]{16})$/.exec(text);
    if (double !== null) {
      const bits = BigInt(`0x${double[1]}`);
      view.setBigUint64(0, bits);
      return { kind: 'float', value: view.getFloat64(0), bits, single: false };
    }
    if (/^(0[xX][\da-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?$/.test(text)) {
      const digits = text.replace(/U$/, '');
      return { kind: 'integer', value: BigInt(/^0\d/.test(digits) ? `0o${digits.slice(1)}` : digits) };
    }
    const value = Number(text);
    if (Number.isNaN(value) || /^0\d/.test(text)) throw tokens.error(`'${text}' is no number`);
    view.setFloat64(0, value);
    return { kind: 'float', value, bits: view.getBigUint64(0), single: false };
  }

  return { operand, register };
}

const product = (extents: readonly (number | null)[]): number =>
  extents.reduce<number>((all, extent) => all * (extent ?? 1), 1);

const view = new DataView(new ArrayBuffer(8));
