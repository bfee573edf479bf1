/** Programs that await at their top level in a project whose modules are CommonJS, where none may. */
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/** What mends such a program, for one that failed; null where it is none. */
export function awaitsInCommonJs(program: string): string | null {
  // .mts and .cts, .mjs and .cjs say themselves what they are.
  if (!/\.[jt]sx?$/.test(program)) return null;
  const nearest = nearestPackage(dirname(resolve(program)));
  if (nearest === null || nearest.type === 'module') return null;
  // What is not indented is at the top level.
  if (!/^((const|let|var)\b.*=\s*)?await\b/m.test(readFileSync(program, 'utf8'))) return null;
  return (
    `${program} awaits at its top level, which only modules may, and ${nearest.path} does not say ` +
    `"type": "module"; if that is why it failed: npm pkg set type=module`
  );
}

function nearestPackage(folder: string): { readonly path: string; readonly type: unknown } | null {
  const path = join(folder, 'package.json');
  try {
    return { path, type: JSON.parse(readFileSync(path, 'utf8')).type };
  } catch {
    const above = dirname(folder);
    return above === folder ? null : nearestPackage(above);
  }
}
