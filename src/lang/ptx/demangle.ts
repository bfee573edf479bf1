/** Names of C++ functions as their source has them, after the ABI of Itanium. A name with what is rare in kernels stays mangled. */

export interface CppName {
  /** 'ns::reduce<float, 512>' */
  readonly name: string;
  /** 'float*, int'; null where it is no name of C++. */
  readonly params: string | null;
}

export function demangled(mangled: string): CppName {
  if (!mangled.startsWith('_Z')) return { name: mangled, params: null };
  try {
    return new Reader(mangled.slice(2)).encoding();
  } catch {
    return { name: mangled, params: null };
  }
}

const types: Readonly<Record<string, string>> = {
  ...{ v: 'void', b: 'bool', c: 'char', a: 'signed char', h: 'unsigned char', w: 'wchar_t', z: '...' },
  ...{ s: 'short', t: 'unsigned short', i: 'int', j: 'unsigned int', l: 'long', m: 'unsigned long' },
  ...{ x: 'long long', y: 'unsigned long long', n: '__int128', o: 'unsigned __int128' },
  ...{ f: 'float', d: 'double', e: 'long double', Dh: 'half', DF16_: '_Float16', DF16b: '__bf16' },
  ...{ Dn: 'nullptr_t', Di: 'char32_t', Ds: 'char16_t' },
};
const longest = 10_000;
const builtin = /D(h|F16_|F16b|n|i|s)|[vbcahwzstijlmxynofde]/y;
const library: Readonly<Record<string, string>> = { t: 'std', a: 'std::allocator', s: 'std::string' };
const behind: Readonly<Record<string, string>> = { P: '*', R: '&', O: '&&' };
const qualifiers: Readonly<Record<string, string>> = { K: ' const', V: ' volatile', r: ' __restrict__' };

class Reader {
  #at = 0;
  /** What `S_`, `S0_` and so on stand for. */
  readonly #known: string[] = [];
  /** What `T_`, `T0_` and so on stand for. */
  #args: readonly string[] = [];
  #isTemplate = false;
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  get #next(): string {
    return this.#text[this.#at] ?? '';
  }

  #accept(text: string): boolean {
    const is = this.#text.startsWith(text, this.#at);
    if (is) this.#at += text.length;
    return is;
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const [found] = pattern.exec(this.#text) ?? [];
    if (found === undefined) throw new Error(`'${this.#text}' at ${this.#at}`);
    this.#at += found.length;
    return found;
  }

  #until<T>(end: string, read: () => T): T[] {
    const all: T[] = [];
    while (!this.#accept(end)) all.push(read());
    return all;
  }

  #keep(text: string): string {
    // What stands for itself several times over grows without end.
    if (text.length > longest) throw new Error('it is too long');
    this.#known.push(text);
    return text;
  }

  encoding(): CppName {
    const name = this.#name();
    if (this.#isTemplate) this.#type(); // what it returns
    const params: string[] = [];
    while (this.#next !== '' && this.#next !== 'E' && this.#next !== '.') params.push(this.#type());
    // Of a variable, or a function with a name of C.
    return { name, params: params.length === 0 ? null : listed(params) };
  }

  #name(): string {
    this.#isTemplate = false;
    if (this.#accept('N')) return this.#nested();
    if (this.#accept('Z')) {
      const { name, params } = this.encoding();
      this.#match(/E/y);
      return `${name}${params === null ? '' : `(${params})`}::${this.#name()}`;
    }
    const isKnown = this.#next === 'S' && !this.#text.startsWith('St', this.#at);
    const name = isKnown ? this.#substitution() : this.#accept('St') ? `std::${this.#part()}` : this.#part();
    if (this.#next !== 'I') return name;
    if (!isKnown) this.#keep(name);
    return name + this.#arguments();
  }

  #nested(): string {
    this.#match(/[rVK]*/y);
    let name = '';
    while (!this.#accept('E')) {
      const before = name;
      this.#isTemplate = false;
      if (this.#next === 'S') name = this.#substitution();
      else if (this.#next === 'I') name += this.#arguments();
      else if (this.#next === 'T') name = this.#parameter();
      else name += `${name === '' ? '' : '::'}${this.#part()}`;
      if (this.#next !== 'E' && name !== 'std' && !(before === '' && this.#known.includes(name)))
        this.#keep(name);
    }
    return name;
  }

  /** One name, without what it is in. */
  #part(): string {
    this.#accept('L');
    if (this.#accept('cl')) return 'operator()';
    if (this.#accept('Ul')) {
      const params = listed(this.#until('E', () => this.#type()));
      return `{lambda(${params})#${this.#number() + 1}}`;
    }
    const length = Number(this.#match(/\d+/y));
    const text = this.#text.slice(this.#at, this.#at + length);
    this.#at += length;
    return text.startsWith('_GLOBAL__N_') ? '(anonymous namespace)' : text;
  }

  /** `_` is 0, `0_` is 1. */
  #number(): number {
    const digits = this.#match(/[0-9A-Z]*_/y).slice(0, -1);
    return digits === '' ? 0 : Number.parseInt(digits, 36) + 1;
  }

  #substitution(): string {
    this.#match(/S/y);
    const short = library[this.#next];
    if (short === undefined) return required(this.#known[this.#number()]);
    this.#at++;
    return short;
  }

  #parameter(): string {
    this.#match(/T/y);
    return required(this.#args[this.#number()]);
  }

  #arguments(): string {
    this.#match(/I/y);
    const args = this.#until('E', () => this.#argument());
    this.#args = args;
    this.#isTemplate = true;
    return `<${listed(['', ...args.filter((one) => one !== '')]).slice(2)}>`;
  }

  #argument(): string {
    if (this.#accept('J')) return this.#until('E', () => this.#argument()).join(', ');
    if (this.#accept('X')) {
      const value = this.#parameter();
      this.#match(/E/y);
      return value;
    }
    if (!this.#accept('L')) return this.#type();
    if (this.#accept('_Z')) {
      const { name } = this.encoding();
      this.#match(/E/y);
      return name;
    }
    const isPlain = /[ijlmxy]/.test(this.#next);
    const type = this.#type();
    const value = this.#match(/n?\w*?(?=E)/y).replace('n', '-');
    this.#match(/E/y);
    if (type === 'bool') return value === '1' ? 'true' : 'false';
    return isPlain ? value : `(${type})${value}`;
  }

  #type(): string {
    const outer = [this.#args, this.#isTemplate] as const;
    const text = this.#anyType();
    [this.#args, this.#isTemplate] = outer;
    return text;
  }

  #anyType(): string {
    const c = this.#next;
    if (behind[c] !== undefined) {
      this.#at++;
      const to = this.#type();
      return this.#keep(to.includes('@') ? to.replace('@', `(${behind[c]}@)`) : to + behind[c]);
    }
    if (qualifiers[c] !== undefined) {
      const all = [...this.#match(/[rVK]+/y)].reverse();
      return this.#keep(this.#type() + all.map((one) => qualifiers[one]).join(''));
    }
    if (c === 'T') {
      const name = this.#keep(this.#parameter());
      return this.#next === 'I' ? this.#keep(name + this.#arguments()) : name;
    }
    if (this.#accept('Dp')) return this.#keep(this.#type());
    if (this.#accept('F')) {
      const [returns, ...params] = this.#until('E', () => this.#type());
      return this.#keep(`${returns} @(${listed(params)})`);
    }
    if (this.#accept('A')) {
      const length = this.#match(/\d*_/y).slice(0, -1);
      return this.#keep(`${this.#type()} @ [${length}]`);
    }
    if (this.#accept('u')) return this.#keep(this.#part());
    builtin.lastIndex = this.#at;
    if (builtin.test(this.#text)) return types[this.#match(builtin)]!;
    const before = this.#at;
    const name = this.#name();
    // What was known before is so still; with arguments it is something new.
    if (c === 'S' && this.#text[this.#at - 1] !== 'E' && !this.#text.startsWith('St', before)) return name;
    return this.#keep(name);
  }
}

/** `@` stands where a function or an array has what points at it. */
const listed = (all: readonly string[]): string =>
  all.length === 1 && all[0] === 'void' ? '' : all.join(', ').replaceAll(' @ [', ' [').replaceAll('@', '');

function required(text: string | undefined): string {
  if (text === undefined) throw new Error('it stands for nothing');
  return text;
}
