/**
 * The mistakes that a kernel can have. Codes are stable: tools and people may rely on them. docs/language.md lists
 * this table, and a test compares the two.
 */
import { HeddleError } from '../base/errors.js';
import type { SourceText } from './ir.js';

export const codes = {
  HK101: 'A body uses a name that is neither its own nor one of its parameters.',
  HK102: 'A piece of TypeScript that the kernel language does not have.',
  HK103: 'The text of a body cannot be read.',
  HK104: 'A body is not an ordinary function of (g, params, using).',
  HK105: 'A minifier has rewritten a body.',
  HK201: 'A parameter of a header has no known type.',
  HK202: 'A value in `using` is not a compile-time value.',
  HK203: 'A name in a header cannot be used, or a limit is out of range.',
  HK301: 'Two values of different types meet.',
  HK302: 'An operator does not apply to values of this type.',
  HK303: 'A constant does not fit the type it meets.',
  HK304: 'A condition is not a boolean.',
  HK305: 'An argument is not what the function expects.',
  HK306: 'Arguments are missing, or there are too many.',
  HK307: 'A division of two constant integers has a remainder.',
  HK401: 'No such intrinsic.',
  HK402: 'No such member.',
  HK403: 'An assignment to something that cannot be assigned.',
  HK404: 'Something is used as a value that is none.',
  HK501: 'A constant is needed here.',
  HK502: 'A constant is out of range.',
  HK503: 'A loop is unrolled too often.',
  HK601: 'An effect happens on one side of &&, ||, ?: only.',
  HK602: 'Shared memory is not declared by a const.',
  HK603: 'A register array is not declared by a const.',
  HK604: 'An effect in the update of a for loop.',
  HK605: 'A break or continue leaves an unrolled loop.',
  HK606: 'A statement does nothing.',
  HK607: 'A return does not fit what the header says.',
  HK608: 'More shared memory than a block has.',
  HK609: 'A synchronising access does not name its order and scope.',
  HK610: 'Sums of a product are read or written before it is awaited.',
  HK701: 'A device function calls itself.',
  HK702: 'Something is called that is no function.',
  HK703: 'Device functions are called too often.',
  HK704: 'The twin of a foreign function does not do what the header says.',
  HK705: 'Something that only the twin of a foreign function may do.',
  HK900: 'The compiler itself failed on this kernel.',
} as const;
export type Code = keyof typeof codes;

/** One thing that is wrong, and where. */
export interface Diagnostic {
  readonly code: Code;
  /** The mistake, what was expected, and what to write instead. */
  readonly message: string;
  /** '' where the place is unknown. */
  readonly file: string;
  /** The line, from 1; 0 where the place is unknown. */
  readonly line: number;
  readonly column: number;
  /** The lines around it with a caret; '' where there is no text. */
  readonly frame: string;
}

/** Thrown when a kernel cannot be compiled. Carries everything that was found; `code` is the first one's. */
export class KernelError extends HeddleError {
  readonly kernel: string;
  /** Not printed beside the message, which has them. */
  readonly #diagnostics: readonly Diagnostic[];

  constructor(kernel: string, diagnostics: readonly Diagnostic[], options?: ErrorOptions) {
    super(diagnostics[0]?.code ?? 'HK900', describe(kernel, diagnostics), options);
    this.kernel = kernel;
    this.#diagnostics = diagnostics;
  }

  get diagnostics(): readonly Diagnostic[] {
    return this.#diagnostics;
  }
}

const mostShown = 8;

function describe(kernel: string, diagnostics: readonly Diagnostic[]): string {
  const count = diagnostics.length;
  const head = `kernel ${kernel} has ${count === 1 ? 'an error' : `${count} errors`}`;
  const shown = diagnostics.slice(0, mostShown).map(formatDiagnostic);
  if (count > mostShown) shown.push(`… and ${count - mostShown} more`);
  return [head, ...shown].join('\n\n');
}

/** `file:line:column: HK301 message`, then the code frame. */
export function formatDiagnostic(diagnostic: Diagnostic): string {
  const { code, message, file, line, column, frame } = diagnostic;
  const place = file === '' ? '' : line === 0 ? `${file}: ` : `${file}:${line}:${column}: `;
  return `${place}${code} ${message}${frame === '' ? '' : `\n${frame}`}`;
}

/** Thrown inside the compiler to give up on one statement. Never leaves it. */
export class Problem extends Error {
  constructor(
    readonly code: Code,
    message: string,
    readonly source: FramedSource,
    readonly start: number,
    readonly end: number,
  ) {
    super(message);
  }

  diagnostic(): Diagnostic {
    const { line, column } = this.source.position(this.start);
    return {
      code: this.code,
      message: this.message,
      file: this.source.file,
      line,
      column,
      frame: this.source.frame(this.start, this.end),
    };
  }
}

export interface FramedSource extends SourceText {
  frame(start: number, end: number): string;
  /** A piece of `text` as its author wrote it, before loaders and bundlers; null where that is not known. */
  written(start: number, end: number): string | null;
}

const frameWidth = 110;

/** The line with its neighbours, and carets under the columns (from 1) `column` to `endColumn`. */
export function codeFrame(lines: readonly string[], line: number, column: number, endColumn: number): string {
  const gutter = String(line + 1).length;
  const shown: string[] = [];
  // A transpiler may have put a whole function on one line: show a part of it.
  const shift = column > frameWidth - 20 ? column - 30 : 0;
  for (let number = Math.max(1, line - 2); number <= Math.min(lines.length, line + 1); number++) {
    const text = (lines[number - 1] ?? '').slice(shift, shift + frameWidth).trimEnd();
    shown.push(`${number === line ? '>' : ' '} ${String(number).padStart(gutter)} | ${text}`);
    if (number !== line) continue;
    const start = column - 1 - shift;
    const carets = '^'.repeat(Math.max(1, Math.min(endColumn - column, text.length - start)));
    shown.push(`  ${' '.repeat(gutter)} | ${' '.repeat(start)}${carets}`);
  }
  return shown.join('\n');
}
