/** PTX as words and signs. */
import { PtxError } from './module.js';

/** Names, numbers, directives and instructions with all their dots: 'ld.global.L1::no_allocate.u32'. */
const word = /(?:[\w$%.]|::)+/y;
/** Deeper than compilers nest anything, and no danger to the stack of whoever reads it by recursion. */
const mostNested = 256;
const blank = /(?:[ \t\r]+|\/\/[^\n]*|\/\*[\s\S]*?\*\/|\n)+/y;

export class Tokens {
  /** The token that comes next; '' at the end. */
  next = '';
  line = 1;
  #at = 0;
  #start = 0;
  #depth = 0;
  readonly #text: string;

  /** `first`: the lines of the module that are before this file. */
  constructor(
    text: string,
    readonly file: string,
    readonly first: number,
  ) {
    this.#text = text;
    this.#read();
  }

  #read(): void {
    this.#skipBlank();
    const text = this.#text;
    this.#start = this.#at;
    if (this.#at >= text.length) {
      this.next = '';
      return;
    }
    word.lastIndex = this.#at;
    const found = word.exec(text);
    if (found !== null) {
      this.next = found[0];
      this.#at = word.lastIndex;
    } else if (text[this.#at] === '"') {
      const end = text.indexOf('"', this.#at + 1);
      if (end < 0) throw this.error('a text without an end');
      this.next = text.slice(this.#at, end + 1);
      this.#at = end + 1;
    } else {
      this.next = text[this.#at++]!;
    }
  }

  #skipBlank(): void {
    blank.lastIndex = this.#at;
    const found = blank.exec(this.#text);
    if (found === null) return;
    const skipped = found[0];
    for (let at = skipped.indexOf('\n'); at >= 0; at = skipped.indexOf('\n', at + 1)) this.line++;
    this.#at = blank.lastIndex;
  }

  get moduleLine(): number {
    return this.first + this.line;
  }

  take(): string {
    const { next } = this;
    if (next === '') throw this.error('the text ends where more must follow');
    this.#read();
    return next;
  }

  /** Takes what must be a number: of bytes, elements, threads or registers. */
  takeCount(): number {
    const count = /^(0[xX][\da-fA-F]+|\d+)$/.test(this.next) ? Number(this.next) : Number.NaN;
    // All such numbers together stay exact.
    if (!(count <= 2 ** 32)) throw this.error(`'${this.next}' is no number of anything`);
    this.#read();
    return count;
  }

  accept(wanted: string): boolean {
    if (this.next !== wanted) return false;
    this.#read();
    return true;
  }

  expect(wanted: string): void {
    if (!this.accept(wanted)) throw this.error(`'${wanted}' should stand before '${this.next}'`);
  }

  /** Reads something that may have more of its kind inside. */
  nested<T>(read: () => T): T {
    if (++this.#depth > mostNested) throw this.error(`this is nested more than ${mostNested} deep`);
    const found = read();
    this.#depth--;
    return found;
  }

  /** The rest of the line, with the next token. */
  restOfLine(): string {
    const end = this.#text.indexOf('\n', this.#start);
    const rest = this.#text.slice(this.#start, end < 0 ? undefined : end);
    this.#at = this.#start + rest.length;
    this.#read();
    return rest;
  }

  skipBraces(): void {
    const end = this.#text.indexOf('}', this.#start);
    if (end < 0) throw this.error("'{' without '}'");
    for (
      let at = this.#text.indexOf('\n', this.#start);
      at >= 0 && at < end;
      at = this.#text.indexOf('\n', at + 1)
    )
      this.line++;
    this.#at = end + 1;
    this.#read();
  }

  error(message: string): PtxError {
    return new PtxError(`${this.file}:${this.line}`, message);
  }
}
