import { HeddleError } from '../../base/errors.js';

/** One message of the CUDA compiler, at the line that `#line` led it to. */
export interface CompilerMessage {
  readonly file: string;
  readonly line: number;
  readonly severity: 'error' | 'warning';
  readonly message: string;
}

/** Returns the text of a line of a file; null where it is not known. */
export type LineOf = (file: string, line: number) => string | null;

/** The CUDA compiler refused a kernel. */
export class CompileError extends HeddleError {
  constructor(
    readonly kernel: string,
    readonly diagnostics: readonly CompilerMessage[],
    /** Everything that the compiler said. */
    readonly log: string,
    lineOf: LineOf,
  ) {
    const errors = diagnostics.filter(({ severity }) => severity === 'error');
    const shown = errors.length > 0 ? errors.map((error) => frame(error, lineOf)).join('\n') : log.trim();
    super('HEDDLE_COMPILE', `The CUDA compiler refused the kernel ${kernel}:\n${shown}`);
  }
}

/** Reads the output of nvcc or NVRTC, which share one form: `file(line): error: message`. */
export function parseDiagnostics(log: string): readonly CompilerMessage[] {
  const found: CompilerMessage[] = [];
  for (const line of log.split('\n')) {
    const match = /^(.+)\((\d+)\): (?:catastrophic )?(error|warning)(?: #[\w-]+)?: (.*)$/.exec(
      line.trimEnd(),
    );
    if (match === null) continue;
    const [, file, number, severity, message] = match;
    found.push({
      file: file!,
      line: Number(number),
      severity: severity as CompilerMessage['severity'],
      message: message!,
    });
  }
  return found;
}

function frame({ file, line, severity, message }: CompilerMessage, lineOf: LineOf): string {
  const text = lineOf(file, line);
  const head = `${file}:${line}: ${severity}: ${message}`;
  return text === null ? head : `${head}\n  ${String(line).padStart(5)} | ${text}`;
}
