/** Source files, read once, with the starts of their lines. */
import { requireText } from '../base/errors.js';
import { type Token, tokenize } from './align.js';
import { readText } from './files.js';

/** A line and column, both from 1; 0 where unknown. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

export class Text {
  readonly lines: readonly string[];
  readonly #starts: readonly number[];
  #cachedTokens: readonly Token[] | undefined;

  constructor(readonly content: string) {
    this.lines = content.split('\n');
    let offset = 0;
    this.#starts = this.lines.map((line) => {
      const start = offset;
      offset += line.length + 1;
      return start;
    });
  }

  get tokens(): readonly Token[] {
    this.#cachedTokens ??= tokenize(this.content);
    return this.#cachedTokens;
  }

  place(offset: number): Position {
    let low = 0;
    let high = this.#starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return { line: low + 1, column: offset - this.#starts[low]! + 1 };
  }

  /** The offset of a place; the end where there is no such line. */
  offset({ line, column }: Position): number {
    const start = this.#starts[Math.max(0, line - 1)];
    return start === undefined ? this.content.length : start + Math.max(0, column - 1);
  }
}

const read = new Map<string, Text>();
const provided = new Map<string, Text>();

/** Undefined where there is no such file. Many kernels come from one file, so each is read once. */
export function textFile(path: string): Text | undefined {
  let text = provided.get(path) ?? read.get(path);
  if (text === undefined) {
    const content = readText(path);
    if (content === undefined) return undefined;
    text = new Text(content);
    read.set(path, text);
  }
  return text;
}

/**
 * Gives the text of a source that is no file, as in a browser, so that errors and findings can show its lines. `name` must be
 * the `sourceURL` of the script that makes the kernels.
 */
export function provideSource(name: string, text: string): void {
  requireText('name', name);
  requireText('text', text);
  provided.set(name, new Text(text));
}

export const providedSources = (): IterableIterator<[string, Text]> => provided.entries();
export const isProvided = (name: string): boolean => provided.has(name);
