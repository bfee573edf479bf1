/** The functions of a program from which its calls come. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

interface Mapping {
  readonly from: number;
  readonly to: number;
  readonly file: string;
  /** The first address of the file. */
  readonly base: number;
}

function mappingsOf(process: number): readonly Mapping[] {
  const bases = new Map<string, number>();
  const lines = readFileSync(`/proc/${process}/maps`, 'utf8').split('\n');
  return lines.flatMap((line) => {
    const [, begin, end, file] = /^(\w+)-(\w+) (?:\S+ +){4}(\/.*)$/.exec(line) ?? [];
    if (begin === undefined || end === undefined || file === undefined) return [];
    const from = Number.parseInt(begin, 16);
    if (!bases.has(file)) bases.set(file, from);
    return [{ from, to: Number.parseInt(end, 16), file, base: bases.get(file)! }];
  });
}

/** The libraries that stand for CUDA, and how programs start with them. */
const isAround = /^(lib(cudart|cuda|c)\.so|ld-)/;
/** Stubs of kernels, and what CUDA's headers put around the runtime. */
const isBetween = /^(_ZL?\d+)?_*((wrapper__)?device_stub_|cuda[A-Z])/;
/** So many are shown. */
const most = 3;

/** Names them, the innermost first, without the stub of the kernel that is launched; null where none is known. */
export type Callers = (kernel: string) => string | null;

/** Finds their functions and lines once somebody asks, when the process may be gone. */
export function callersOf(process: number, stack: Buffer): Callers {
  const mappings = mappingsOf(process);
  const places = Array.from({ length: stack.length / 8 }, (_, i) =>
    Number(stack.readBigUInt64LE(8 * i)),
  ).flatMap((at) => {
    const mapping = mappings.find(({ from, to }) => at >= from && at < to);
    return mapping === undefined || isAround.test(basename(mapping.file)) ? [] : [{ at, mapping }];
  });
  let told: string | null | undefined;
  return (kernel) => {
    if (told === undefined) {
      const named = places.map(({ at, mapping }) => nameOf(at, mapping)).filter((name) => name !== null);
      const own = named.filter(({ symbol }) => symbol !== kernel && !isBetween.test(symbol));
      const texts = own.slice(0, most).map(({ text }) => text);
      told = texts.join(', called by ') || null;
    }
    return told;
  };
}

/** As `addr2line` knows it. */
function nameOf(at: number, { file, base }: Mapping) {
  try {
    // A program that is not relocated (ELF's type 2) has its addresses in the file. A return address lies behind the call.
    const isFixed = readFileSync(file).readUInt16LE(16) === 2;
    const address = (at - 1 - (isFixed ? 0 : base)).toString(16);
    const ask = (...options: readonly string[]) =>
      execFileSync('addr2line', [...options, '-fe', file, address], {
        encoding: 'utf8',
        stdio: 'pipe',
      }).split('\n');
    const [symbol = '??'] = ask();
    const [name = '??', line = '??'] = ask('-C');
    if (symbol === '??' || symbol === '_start') return null;
    const known = /^(.+:\d+)/.exec(basename(line))?.[1];
    return { symbol, text: known === undefined ? name : `${name} (${known})` };
  } catch {
    return null;
  }
}
