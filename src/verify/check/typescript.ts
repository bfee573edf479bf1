/**
 * Loads TypeScript as it is: hooks that take the types out and leave every character where it was, so that findings name the lines of
 * the file. Node.js 22.18 and newer do that by themselves, with the same stripper, but find no file under the name of what becomes of it.
 */
import { readFile } from 'node:fs/promises';
import { createRequire, type LoadHook, type ResolveHook } from 'node:module';
import { fileURLToPath } from 'node:url';

const { transformSync } = createRequire(import.meta.url)('amaro') as {
  transformSync(source: string, options: { readonly mode: 'strip-only' }): { readonly code: string };
};

/** A file that TypeScript calls `./layout.js` may be `./layout.ts`. */
export const resolve: ResolveHook = async (specifier, context, next) => {
  try {
    return await next(specifier, context);
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND';
    if (!missing || !/^\.{1,2}\/.*\.m?js$/.test(specifier)) throw error;
    return next(specifier.replace(/js$/, 'ts'), context);
  }
};

export const load: LoadHook = async (url, context, next) => {
  if (!url.startsWith('file:') || !/\.m?ts$/.test(url)) return next(url, context);
  const source = await readFile(fileURLToPath(url), 'utf8');
  return { format: 'module', shortCircuit: true, source: withoutTypes(fileURLToPath(url), source) };
};

function withoutTypes(path: string, source: string): string {
  try {
    return transformSync(source, { mode: 'strip-only' }).code;
  } catch (error) {
    // The stripper shows the line, but does not know the file.
    throw new SyntaxError(`${path}\n${error instanceof Error ? error.message : String(error)}`);
  }
}
