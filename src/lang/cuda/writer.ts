/** Lines of C++ with indentation, and `#line` directives that point back into TypeScript. */
import type { SourceText, Span } from '../ir.js';

export class Writer {
  readonly #lines: string[] = [];
  readonly #sources: readonly SourceText[];
  readonly #directives: boolean;
  #depth = 0;
  /** The place at which the compiler believes the next line to be. */
  #file = '';
  #line = 0;

  constructor(sources: readonly SourceText[], directives: boolean) {
    this.#sources = sources;
    this.#directives = directives;
  }

  /** A line that comes from `span`; null for one that the printer made up. */
  line(text: string, span: Span | null = null): void {
    if (span !== null) this.#locate(span);
    this.#lines.push(`${'  '.repeat(this.#depth)}${text}`);
    this.#line++;
  }

  indented(body: () => void): void {
    this.#depth++;
    body();
    this.#depth--;
  }

  print(): string {
    return this.#lines.join('\n');
  }

  /** Writes a `#line` directive, unless the compiler's own counting arrives there anyway. */
  #locate(span: Span): void {
    const source = this.#sources[span.source];
    if (!this.#directives || source === undefined) return;
    const { file } = source;
    if (file === '') return;
    const { line } = source.position(span.start);
    if (file === this.#file && line === this.#line) return;
    this.#lines.push(`#line ${line}${file === this.#file ? '' : ` ${JSON.stringify(file)}`}`);
    this.#file = file;
    this.#line = line;
  }
}
