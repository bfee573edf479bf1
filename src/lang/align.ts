/**
 * Finds a transpiled function in the TypeScript file it came from, where no source map says so. Transpilers drop
 * types, comments and line breaks, but the remaining tokens keep their order; so the tokens of the function are
 * matched, in order, against the tokens of the file.
 */

export interface Token {
  /** Normalised: the value of a number, the content of a string. */
  readonly key: string;
  readonly start: number;
  readonly end: number;
}

const pattern =
  /(\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/)|([A-Za-z_$][\w$]*)|(0[xXbBoO][\da-fA-F_]+n?|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?n?)|('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`)|([\s\S])/g;

export function tokenize(text: string): Token[] {
  const tokens: Token[] = [];
  for (const match of text.matchAll(pattern)) {
    const [whole, skipped, , number, string] = match;
    // Transpilers add and drop separators and parentheses freely; they say nothing about the place.
    if (skipped !== undefined || whole === ';' || whole === ',' || whole === '(' || whole === ')') continue;
    tokens.push({
      key:
        number !== undefined ? numberKey(number) : string !== undefined ? `'${string.slice(1, -1)}` : whole,
      start: match.index,
      end: match.index + whole.length,
    });
  }
  return tokens;
}

function numberKey(text: string): string {
  const digits = text.replaceAll('_', '');
  return digits.endsWith('n') ? `${BigInt(digits.slice(0, -1))}n` : String(Number(digits));
}

/** Distances in which the next common token is looked for: over a type annotation, or a helper call that was put in. */
const fileLookahead = 60;
const textLookahead = 6;
const probeLength = 48;

/**
 * `there` are the file's tokens; `near` is an offset in it where the function is suspected (its header). Among
 * equally good places the first one behind it wins.
 */
export function align(text: string, there: readonly Token[], near: number) {
  const wanted = tokenize(text);
  const probe = wanted.slice(0, probeLength);
  let best: Candidate | undefined;
  for (let start = 0; start < there.length; start++) {
    if (!mayStart(probe, there, start)) continue;
    const score = match(probe, there, start).filter((index) => index >= 0).length;
    if (best === undefined || better({ start, score }, best, there, near)) best = { start, score };
  }
  if (best === undefined || best.score < probe.length / 2) return undefined;
  const indices = match(wanted, there, best.start);
  const first = indices.findIndex((index) => index >= 0);
  return {
    /** The offset in the file for one in the function's text: that of the nearest token that was found, where it lies in none. */
    locate(offset: number): number | undefined {
      let last = first;
      for (let i = first; i < wanted.length && wanted[i]!.start <= offset; i++)
        if (indices[i]! >= 0) last = i;
      const token = there[indices[last] ?? -1];
      return token && Math.min(token.start + Math.max(0, offset - wanted[last]!.start), token.end);
    },
  };
}

/** The first token, and the second not far behind: most places are ruled out at once. */
function mayStart(probe: readonly Token[], there: readonly Token[], start: number): boolean {
  if (there[start]!.key !== probe[0]?.key) return false;
  const second = probe[1]?.key;
  for (let i = 1; i <= 12; i++) if (there[start + i]?.key === second) return true;
  return false;
}

type Candidate = { readonly start: number; readonly score: number };

function better(a: Candidate, b: Candidate, there: readonly Token[], near: number): boolean {
  if (a.score !== b.score) return a.score > b.score;
  const distance = ({ start }: Candidate): number => {
    const away = there[start]!.start - near;
    return away >= 0 ? away : Number.MAX_SAFE_INTEGER / 2 - away;
  };
  return distance(a) < distance(b);
}

/** The index of each wanted token's counterpart, or -1. */
function match(wanted: readonly Token[], there: readonly Token[], start: number): number[] {
  const result = new Array<number>(wanted.length).fill(-1);
  let i = 0;
  let j = start;
  while (i < wanted.length && j < there.length) {
    if (wanted[i]!.key === there[j]!.key) {
      result[i++] = j++;
      continue;
    }
    if (isRenaming(wanted, i)) {
      i += 2;
      continue;
    }
    const next = resume(wanted, there, i, j);
    if (next === undefined) break;
    [i, j] = next;
  }
  return result;
}

/** `: A2`, where `{ A }` became `{ A: A2 }`: transpilers rename what shadows another name. */
function isRenaming(wanted: readonly Token[], i: number): boolean {
  const [name, is] = [wanted[i - 1]?.key, wanted[i + 1]?.key];
  if (wanted[i]!.key !== ':' || name === undefined || is === undefined) return false;
  return is.startsWith(name) && /^\d+$/.test(is.slice(name.length));
}

/** The nearest pair of positions from which two tokens in a row agree again. */
function resume(
  wanted: readonly Token[],
  there: readonly Token[],
  i: number,
  j: number,
): readonly [number, number] | undefined {
  for (let skipThere = 0; skipThere <= fileLookahead; skipThere++) {
    for (let skip = 0; skip <= textLookahead; skip++) {
      const a = i + skip;
      const b = j + skipThere;
      if (a >= wanted.length || b >= there.length || wanted[a]!.key !== there[b]!.key) continue;
      if (a + 1 >= wanted.length || wanted[a + 1]!.key === there[b + 1]?.key) return [a, b];
    }
  }
  return undefined;
}
