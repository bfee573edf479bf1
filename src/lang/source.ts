/**
 * Finds a body's text in the TypeScript file that a person edits. The text comes from `toString()`, so it
 * is what the transpiler made of it; the call of `kernel()` says in which file. A tsc build has a source map
 * next to it; everywhere else the text is found by its tokens. When nothing helps, the place is unknown: never
 * an error, for a kernel must run where its sources were not shipped.
 */
import { requireInteger, requireObject, requireText } from '../base/errors.js';
import { align } from './align.js';
import { codeFrame, type FramedSource } from './diagnostics.js';
import { besideFile, scriptPath, shownPath, sourceMapOf } from './files.js';
import { isProvided, type Position, providedSources, Text, textFile } from './textfile.js';

export interface CallSite {
  /** The file as the engine ran it, and a position in the code it was transpiled to. */
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** The line in the source, if Node.js or a loader maps stacks. */
  mappedLine(): number;
}

/** The frame that called `callee`. Only V8 tells it. */
export function callSite(callee: (...args: never[]) => unknown): CallSite | undefined {
  if (Error.captureStackTrace === undefined) return undefined;
  const { prepareStackTrace, stackTraceLimit } = Error;
  const mapped: { stack?: string } = {};
  const raw: { stack?: unknown } = {};
  let site: NodeJS.CallSite | undefined;
  try {
    // A frame keeps its function and its `this`; those further up would live as long as the kernel.
    Error.stackTraceLimit = 1;
    Error.captureStackTrace(mapped, callee);
    Error.prepareStackTrace = (_, sites) => sites;
    Error.captureStackTrace(raw, callee);
    if (Array.isArray(raw.stack)) site = raw.stack[0];
  } finally {
    Object.assign(Error, { prepareStackTrace, stackTraceLimit });
  }
  const file = site?.getFileName() ?? site?.getScriptNameOrSourceURL();
  if (site === undefined || file === undefined || file === null) return undefined;
  const line = site.getLineNumber() ?? 0;
  return {
    file,
    line,
    column: site.getColumnNumber() ?? 0,
    mappedLine: () => {
      const frame = String(mapped.stack).split('\n')[1] ?? '';
      return Number(/:(\d+):\d+\)?$/.exec(frame)?.[1] ?? line);
    },
  };
}

const unknown: Position = { line: 0, column: 0 };

/** The facts about a text: its file, that file's lines, and where an offset lies. */
interface Resolved {
  readonly file: string;
  readonly path: string;
  readonly lines: readonly string[];
  place(offset: number): Position;
  /** The file that the author wrote, where this is it. */
  readonly original?: Text | undefined;
}

export function functionSource(text: string, site: CallSite | undefined): FramedSource {
  let found: Resolved | undefined;
  const resolved = (): Resolved => {
    if (found === undefined) {
      try {
        found = site === undefined ? amongProvided(text) : locate(text, site);
      } catch {
        // An unreadable map or file is no reason to fail: the place stays unknown.
      }
      found ??= { file: '', path: '', lines: [], place: () => unknown };
    }
    return found;
  };
  // Unrolled code asks for the same places again and again.
  const places = new Map<number, Position>();
  const position = (offset: number): Position => {
    const known = places.get(offset) ?? resolved().place(offset);
    places.set(offset, known);
    return known;
  };
  const written = (start: number, end: number): string | null => {
    const { original } = resolved();
    const [from, to] = [position(start), position(Math.max(start, end - 1))];
    if (original === undefined || from.line === 0 || to.line === 0) return null;
    return closed(original.content, original.offset(from), original.offset(to) + 1);
  };
  return {
    text,
    get file() {
      return resolved().file;
    },
    get path() {
      return resolved().path;
    },
    position,
    written,
    piece: (start, end) => (written(start, end) ?? text.slice(start, end)).replace(/\s+/g, ' ').trim(),
    frame(start, end) {
      const { lines, place } = resolved();
      const from = place(start);
      if (from.line > 0 && lines.length > 0) {
        const last = place(Math.max(start, end - 1));
        const to = last.line === from.line ? last.column + 1 : (lines[from.line - 1]?.length ?? 0) + 1;
        return codeFrame(lines, from.line, from.column, to);
      }
      const own = new Text(text);
      const { line, column } = own.place(start);
      return codeFrame(own.lines, line, column, column + (end - start));
    },
  };
}

/** The piece of a text; the brackets that it leaves open are closed, for transpilers move what stands between. */
function closed(text: string, start: number, end: number): string {
  const piece = text.slice(start, Math.max(start, end));
  let open = piece.split('(').length - piece.split(')').length;
  let at = end;
  for (; open > 0 && /[\s,)]/.test(text.charAt(at)); at++) if (text.charAt(at) === ')') open--;
  return open === 0 ? text.slice(start, Math.max(start, at)) : piece;
}

function locate(text: string, site: CallSite): Resolved | undefined {
  const path = isProvided(site.file) ? site.file : scriptPath(site.file);
  const file = path === undefined ? undefined : textFile(path);
  if (path === undefined || file === undefined) return undefined;
  if (/\.[cm]?tsx?$/.test(path)) return inTypeScript(text, path, file, site.mappedLine());
  const start = nearest(file.content, text, file.offset(site));
  if (start === undefined) return undefined;
  return throughMap(path, file, start) ?? inFile(path, file, (offset) => start + offset);
}

function amongProvided(text: string): Resolved | undefined {
  for (const [name, source] of providedSources()) {
    const found = inTypeScript(text, name, source, 1);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The loader transpiled in memory (or Node stripped the types): the file on disk is the source itself. */
function inTypeScript(text: string, path: string, file: Text, line: number): Resolved | undefined {
  const near = file.offset({ line, column: 1 });
  const start = nearest(file.content, text, near);
  const alignment = start === undefined ? align(text, file.tokens, near) : undefined;
  if (start === undefined && alignment === undefined) return undefined;
  const at = (offset: number) => (start === undefined ? alignment?.locate(offset) : start + offset);
  return { ...inFile(path, file, at), original: file };
}

function inFile(path: string, file: Text, at: (offset: number) => number | undefined): Resolved {
  return {
    file: shownPath(path),
    path,
    lines: file.lines,
    place(offset) {
      const there = at(offset);
      return there === undefined ? unknown : file.place(there);
    },
  };
}

const maps = new Map<string, ReturnType<typeof sourceMapOf>>();

/** Decodes the source map of a file once, because several bodies come from one file. */
function sourceMap(path: string) {
  if (!maps.has(path)) maps.set(path, sourceMapOf(path));
  return maps.get(path);
}

function throughMap(path: string, file: Text, start: number): Resolved | undefined {
  const map = sourceMap(path);
  if (map === undefined) return undefined;
  const entry = (offset: number) => {
    const { line, column } = file.place(start + offset);
    const found = map.findEntry(line - 1, column - 1);
    return 'originalLine' in found ? { found, beyond: column - 1 - found.generatedColumn, line } : undefined;
  };
  const first = entry(0);
  if (first === undefined) return undefined;
  const name = besideFile(path, first.found.originalSource);
  const original = textFile(name);
  return {
    file: shownPath(name),
    path: name,
    lines: original?.lines ?? [],
    original,
    place(offset) {
      const at = entry(offset);
      if (at === undefined) return unknown;
      const { generatedLine, generatedColumn, originalLine, originalColumn } = at.found;
      // Between two entries of a line the text is unchanged, but for space that a transpiler puts before a statement.
      const added =
        spaceAt(file.lines[generatedLine], generatedColumn) -
        spaceAt(original?.lines[originalLine], originalColumn);
      const beyond = generatedLine === at.line - 1 ? Math.max(0, at.beyond - Math.max(0, added)) : 0;
      return { line: originalLine + 1, column: originalColumn + 1 + beyond };
    },
  };
}

const spaceAt = (line: string | undefined, column: number): number =>
  /^\s*/.exec(line?.slice(column) ?? '')![0].length;

/** A frame of a stack in the file that a person edits, and its line; as the engine names it where nobody knows better. */
export function writtenLine(script: string, at: Position): { readonly where: string; readonly text: string } {
  requireText('script', script);
  requireObject('at', at);
  requireInteger('at.line', at.line, 1, 2 ** 31);
  requireInteger('at.column', at.column, 1, 2 ** 31);
  const path = scriptPath(script) ?? script;
  const entry = sourceMap(path)?.findEntry(at.line - 1, at.column - 1);
  const mapped = entry !== undefined && 'originalLine' in entry;
  const file = mapped ? besideFile(path, entry.originalSource) : path;
  const { line, column } = mapped ? { line: entry.originalLine + 1, column: entry.originalColumn + 1 } : at;
  const text = textFile(file)?.lines[line - 1]?.trim() ?? '';
  return { where: `${shownPath(file)}:${line}:${column}`, text };
}

/** The first place at which `text` occurs behind `near`, or else the last place before it. */
function nearest(content: string, text: string, near: number): number | undefined {
  const behind = content.indexOf(text, near);
  const found = behind >= 0 ? behind : content.lastIndexOf(text);
  return found >= 0 ? found : undefined;
}
