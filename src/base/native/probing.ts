/** The process that `probe` starts: opens the first library that comes up, and prints what it is or why there is none. */
import { messageOf } from '../errors.js';
import { type Library, openOne } from './library.js';
import type { Probe, VersionCall } from './probe.js';

const [candidates, version] = JSON.parse(process.argv.at(-1)!) as [readonly string[], VersionCall | null];

function versionOf({ functions }: Library, { symbol, how, initialise }: VersionCall): number | null {
  if (initialise !== undefined) {
    const status = functions({ [initialise]: ['i32', 'u32'] })[initialise]!(0);
    if (status !== 0) throw new Error(`${initialise} returned ${status}`);
  }
  if (how === 'returns') return functions({ [symbol]: ['u32'] })[symbol]!();
  const cell = new Int32Array(1);
  return functions({ [symbol]: ['i32', 'buffer'] })[symbol]!(cell) === 0 ? cell[0]! : null;
}

function ask(): Probe {
  const reasons: string[] = [];
  for (const name of candidates) {
    try {
      const library = openOne(name);
      return { ok: true, name, path: library.path, version: version && versionOf(library, version) };
    } catch (error) {
      reasons.push(`${name}: ${messageOf(error)}`);
    }
  }
  return { ok: false, reason: reasons.join('; ') };
}

// A library may have printed something without an end of line.
console.log(`\n${JSON.stringify(ask())}`);
