import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';

/** The facts about a library that a child process found. */
export type Probe =
  | { readonly ok: true; readonly name: string; readonly path: string; readonly version: number | null }
  | { readonly ok: false; readonly reason: string };

/** How to ask a library for its version: a function that returns it, or one that stores an int at its argument. */
export interface VersionCall {
  readonly symbol: string;
  readonly how: 'returns' | 'stores';
  /** A function such as `cuInit` that is called first, with a zero: the library is of no use where it returns anything else. */
  readonly initialise?: string;
}

const timeoutMs = 20_000;
const known = new Map<string, Probe>();

/**
 * Opens a library in a child process before this process trusts it: a broken driver that crashes or hangs in
 * its initialisers then costs one child, not the program. The answer is kept for the life of the process.
 */
export function probe(candidates: readonly string[], version?: VersionCall): Probe {
  const key = JSON.stringify([candidates, version]);
  let answer = known.get(key);
  if (answer === undefined) {
    answer = ask(candidates, version);
    known.set(key, answer);
  }
  return answer;
}

function ask(candidates: readonly string[], version: VersionCall | undefined): Probe {
  const koffiPath = createRequire(import.meta.url).resolve('koffi');
  const child = spawnSync(
    process.execPath,
    ['-e', script, '--', JSON.stringify({ koffiPath, candidates, version: version ?? null })],
    // Preloaded loaders of the parent (a test runner's, a profiler's) have no business in the child.
    { encoding: 'utf8', timeout: timeoutMs, env: { ...process.env, NODE_OPTIONS: '' } },
  );
  if (child.error) return { ok: false, reason: `the probing process failed: ${child.error.message}` };
  if (child.signal) return { ok: false, reason: `opening it ended the probing process with ${child.signal}` };
  // A library may print on stdout while it loads; the answer is the last line.
  const line = child.stdout.trim().split('\n').at(-1) ?? '';
  try {
    return JSON.parse(line) as Probe;
  } catch {
    const said = child.stderr.trim().split('\n').at(-1) ?? '';
    return {
      ok: false,
      reason: `opening it ended the probing process with exit code ${child.status}: ${said}`,
    };
  }
}

// CommonJS text, because it runs under `node -e` whatever form this module was loaded in.
const script = `
const { koffiPath, candidates, version } = JSON.parse(process.argv.at(-1));
const koffi = require(koffiPath);
const fs = require('node:fs');
const { basename } = require('node:path');
const reasons = [];
let answer;
for (const name of candidates) {
  let library;
  try {
    library = koffi.load(name);
  } catch (error) {
    reasons.push(name + ': ' + error.message.replace('Failed to load shared library: ', ''));
    continue;
  }
  let path = name;
  try {
    for (const line of fs.readFileSync('/proc/self/maps', 'utf8').split('\\n')) {
      const at = line.indexOf('/');
      if (at >= 0 && basename(line.slice(at)).startsWith(basename(name).replace(/\\.so\\b.*/, '.so'))) path = line.slice(at);
    }
  } catch {}
  let number = null;
  if (version) {
    try {
      if (version.initialise) {
        const status = library.func(version.initialise, 'int', ['uint'])(0);
        if (status !== 0) throw new Error(version.initialise + ' returned ' + status);
      }
      if (version.how === 'returns') number = library.func(version.symbol, 'uint32_t', [])();
      else {
        const cell = new Int32Array(1);
        const status = library.func(version.symbol, 'int', ['void *'])(cell);
        if (status === 0) number = cell[0];
      }
    } catch (error) {
      reasons.push(name + ': ' + error.message);
      continue;
    }
  }
  answer = { ok: true, name, path, version: number };
  break;
}
console.log('\\n' + JSON.stringify(answer ?? { ok: false, reason: reasons.join('; ') }));
`;
