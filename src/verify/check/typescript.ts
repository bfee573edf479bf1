/**
 * Loads TypeScript as it is: hooks that take the types out and leave every character where it was, so that findings name the lines of
 * the file. Node.js 22.18 and newer do that by themselves, with the same stripper, but find no file under the name of what becomes of it.
 */
import { readFileSync } from 'node:fs';
import nodeModule, {
  createRequire,
  type LoadFnOutput,
  type LoadHookContext,
  type ResolveHook,
} from 'node:module';
import { fileURLToPath } from 'node:url';

const { transformSync } = createRequire(import.meta.url)('amaro') as {
  transformSync(source: string, options: { readonly mode: 'strip-only' }): { readonly code: string };
};

type Next<Context, T> = (of: string, context: Context) => T;

/** What Node.js 22.15 and newer have, and their types here not yet. */
const { registerHooks } = nodeModule as {
  registerHooks?(hooks: {
    resolve<C>(specifier: string, context: C, next: Next<C, unknown>): unknown;
    load(url: string, context: LoadHookContext, next: Next<LoadHookContext, unknown>): unknown;
  }): void;
};

/** Loads TypeScript from now on: by hooks of this thread, or of a thread of its own where Node.js has no others. */
export function loadTypeScript(): void {
  if (registerHooks === undefined) nodeModule.register(import.meta.url);
  registerHooks?.({
    resolve(specifier, context, next) {
      try {
        return next(specifier, context);
      } catch (error) {
        return next(sourceOf(specifier, error), context);
      }
    },
    load,
  });
}

export const resolve: ResolveHook = async (specifier, context, next) => {
  try {
    return await next(specifier, context);
  } catch (error) {
    return next(sourceOf(specifier, error), context);
  }
};

/** The other name of a file that was not found: what TypeScript calls `./layout.js` may be `./layout.ts`. */
function sourceOf(specifier: string, error: unknown): string {
  const missing = (error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND';
  if (!missing || !/^\.{1,2}\/.*\.m?js$/.test(specifier)) throw error;
  return specifier.replace(/js$/, 'ts');
}

export function load<T>(
  url: string,
  context: LoadHookContext,
  next: Next<LoadHookContext, T>,
): T | LoadFnOutput {
  if (!url.startsWith('file:') || !/\.m?ts$/.test(url)) return next(url, context);
  const path = fileURLToPath(url);
  return { format: 'module', shortCircuit: true, source: withoutTypes(path, readFileSync(path, 'utf8')) };
}

function withoutTypes(path: string, source: string): string {
  try {
    return transformSync(source, { mode: 'strip-only' }).code;
  } catch (error) {
    // The stripper shows the line, but does not know the file.
    throw new SyntaxError(`${path}\n${error instanceof Error ? error.message : String(error)}`);
  }
}
