/** A source map of a kernel's JavaScript, for debuggers: breakpoints stand in what the author wrote. */
import type { IrModule, Span } from '../../../lang/index.js';

const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** A signed number as source maps have it: five bits a digit, the lowest first, the sign in the lowest bit. */
function quantity(value: number): string {
  let rest = value < 0 ? (-value << 1) | 1 : value << 1;
  let text = '';
  do {
    const five = rest & 31;
    rest >>>= 5;
    text += digits[five | (rest > 0 ? 32 : 0)];
  } while (rest > 0);
  return text;
}

/** Whether somebody debugs this process (`node --inspect`), so that a map is worth its time. */
export const isDebugged = (): boolean =>
  globalThis.process?.getBuiltinModule?.('node:inspector').url() !== undefined;

/**
 * The comments that name the script and its map. `spans`: of each line the statement that it belongs to. Two lines that V8
 * puts around a function's body come before all.
 */
export function mapComments(
  { name, sources }: IrModule,
  lines: readonly string[],
  spans: readonly (Span | undefined)[],
): string {
  const files = sources.map(({ path = '' }) => path);
  let last = { source: 0, line: 0, column: 0 };
  const mapped = spans.map((span, i) => {
    const place = span === undefined ? undefined : sources[span.source]?.position(span.start);
    if (span === undefined || place === undefined || place.line === 0 || files[span.source] === '') return '';
    const now = { source: span.source, line: place.line - 1, column: place.column - 1 };
    const indent = /^\s*/.exec(lines[i] ?? '')![0].length;
    const deltas = [indent, now.source - last.source, now.line - last.line, now.column - last.column];
    last = now;
    return deltas.map(quantity).join('');
  });
  if (mapped.every((one) => one === '')) return '';
  const map = JSON.stringify({
    version: 3,
    sources: files.map((path) => (path === '' ? '' : `file://${encodeURI(path)}`)),
    names: [],
    mappings: `;;${mapped.join(';')}`,
  });
  const encoded = btoa(String.fromCharCode(...new TextEncoder().encode(map)));
  return [
    `//# sourceURL=heddle-kernel/${encodeURIComponent(name)}.js`,
    `//# sourceMappingURL=data:application/json;base64,${encoded}`,
  ].join('\n');
}
