/**
 * Refuses a build that is older than its sources: in a clone `npx heddle` runs `dist`, and an edit of `src` would not be what
 * runs. An installed package has no configuration of the build beside its `dist`, and its times mean nothing.
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** What to tell where a source of the clone at `root` is newer than what was built of it; null where none is. */
export function staleBuild(root: URL): string | null {
  if (!existsSync(new URL('tsconfig.build.json', root))) return null;
  const sources = new URL('src/', root);
  const newer = readdirSync(sources, { recursive: true, encoding: 'utf8' })
    .filter((path) => /\.(ts|json)$/.test(path))
    .find((path) => {
      const built = statSync(new URL(`dist/${path.replace(/ts$/, 'js')}`, root), { throwIfNoEntry: false });
      return built === undefined || built.mtimeMs < statSync(new URL(path, sources)).mtimeMs;
    });
  if (newer === undefined) return null;
  return (
    `heddle: src/${newer} is newer than the build in ${fileURLToPath(new URL('dist', root))}, so this would not run what it ` +
    'says: `npm run build` builds anew, `npm run heddle -- …` runs the sources themselves'
  );
}
