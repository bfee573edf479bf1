import { createHash } from 'node:crypto';
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '../../base/errors.js';
import * as files from '../../base/files/index.js';

/** Raised when the form of an entry or of its key changes. */
const format = 1;
const header = Buffer.from('heddle-cubin\n');
const digestBytes = 32;

/** $HEDDLE_CACHE, else ~/.cache/heddle (under $XDG_CACHE_HOME where that is set). */
export function cacheFolder(): string {
  const { HEDDLE_CACHE, XDG_CACHE_HOME } = process.env;
  return HEDDLE_CACHE || join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'heddle');
}

/** The name of what a compiler makes of a source: everything that could change the result goes into it. */
export function cacheKey(parts: {
  readonly compiler: string;
  readonly architecture: string;
  readonly options: readonly string[];
  readonly text: string;
}): string {
  const { compiler, architecture, options, text } = parts;
  return sha256(JSON.stringify([format, compiler, architecture, options, text]))
    .toString('hex')
    .slice(0, 40);
}

/**
 * The cached result for `key`, else what `make` returns, which is then kept. Any number of processes may do this
 * at once: an entry appears whole or not at all, and a damaged one is made again. Entries are code: what another user may
 * have written is not read.
 */
export async function cached(
  folder: string,
  key: string,
  make: () => Promise<Uint8Array>,
): Promise<{ readonly bytes: Uint8Array; readonly hit: boolean }> {
  const usable = trying('compiled kernels are not kept', () => requireCache(folder));
  if (!usable) return { bytes: await make(), hit: false };
  const file = join(folder, `${key}.cubin`);
  const found = read(file);
  if (found !== null) return { bytes: found, hit: true };
  const bytes = await make();
  trying('a compiled kernel is not kept', () => {
    files.writeWhole(file, Buffer.concat([header, sha256(bytes), bytes]), 0o600);
    sweep(folder);
  });
  return { bytes, hit: false };
}

/** Requires that nobody else can write to this process's folder of compiled kernels. @throws FileError */
export const requireOwnCache = (): void => requireCache(cacheFolder());

/** Makes the folder where there is none, and requires that nobody else puts entries there. @throws FileError */
function requireCache(folder: string): void {
  files.makeFolder(folder, 0o700);
  files.naming(folder, 'trusted with code', () => files.requireUnshared(statSync(folder)));
}

function read(file: string): Uint8Array | null {
  let entry: Buffer = Buffer.alloc(0);
  if (existsSync(file))
    trying('a compiled kernel is made again', () => {
      entry = files.readRegular(file, files.requireUnshared);
    });
  const at = header.length + digestBytes;
  const bytes = entry.subarray(at);
  const whole =
    entry.length > at &&
    entry.subarray(0, header.length).equals(header) &&
    entry.subarray(header.length, at).equals(sha256(bytes));
  return whole ? bytes : null;
}

/** Leftovers of a writer that was killed. Nobody takes an hour to write a file. */
function sweep(folder: string): void {
  const longAgo = Date.now() - 3_600_000;
  for (const name of readdirSync(folder).filter(files.isTemporary)) {
    const file = join(folder, name);
    const stats = statSync(file, { throwIfNoEntry: false });
    if (stats !== undefined && stats.mtimeMs < longAgo) rmSync(file, { force: true });
  }
}

/** A cache that cannot be used costs time, not results. */
function trying(otherwise: string, act: () => void): boolean {
  try {
    act();
    return true;
  } catch (error) {
    files.warnOnce(
      'HEDDLE_CACHE',
      `${otherwise}: ${messageOf(error)}; set HEDDLE_CACHE to a folder that you alone can write to (chmod go-w)`,
    );
    return false;
  }
}

function sha256(data: string | Uint8Array): Buffer {
  return createHash('sha256').update(data).digest();
}
