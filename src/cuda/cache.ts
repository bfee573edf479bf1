import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readFile, rename, unlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';

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
 * at once: an entry appears whole or not at all, and a damaged one is made again.
 */
export async function cached(
  folder: string,
  key: string,
  make: () => Promise<Uint8Array>,
): Promise<{ readonly bytes: Uint8Array; readonly hit: boolean }> {
  const file = join(folder, `${key}.cubin`);
  const found = await read(file);
  if (found !== null) return { bytes: found, hit: true };
  const bytes = await make();
  await write(folder, file, bytes);
  return { bytes, hit: false };
}

async function read(file: string): Promise<Uint8Array | null> {
  let entry: Buffer;
  try {
    entry = await readFile(file);
  } catch {
    return null;
  }
  const at = header.length + digestBytes;
  const bytes = entry.subarray(at);
  const whole =
    entry.length > at &&
    entry.subarray(0, header.length).equals(header) &&
    entry.subarray(header.length, at).equals(sha256(bytes));
  return whole ? bytes : null;
}

async function write(folder: string, file: string, bytes: Uint8Array): Promise<void> {
  const temporary = join(folder, `.${process.pid}-${randomBytes(6).toString('hex')}.tmp`);
  try {
    await mkdir(folder, { recursive: true });
    await writeFile(temporary, Buffer.concat([header, sha256(bytes), bytes]), { flag: 'wx' });
    await rename(temporary, file);
  } catch (error) {
    await unlink(temporary).catch(() => {});
    warnOnce(folder, error);
  }
}

let warned = false;

/** A cache that cannot be written costs time, not results. */
function warnOnce(folder: string, error: unknown): void {
  if (warned) return;
  warned = true;
  const reason = error instanceof Error ? error.message : String(error);
  process.emitWarning(
    `compiled kernels are not kept: ${folder} cannot be written (${reason}); set HEDDLE_CACHE to a folder that can`,
    { code: 'HEDDLE_CACHE' },
  );
}

function sha256(data: string | Uint8Array): Buffer {
  return createHash('sha256').update(data).digest();
}
