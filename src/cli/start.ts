/**
 * The checks made before any command is loaded, by means that an old Node.js has too: the version of Node.js, and whether a
 * build is as new as its sources. In a clone `npx heddle` runs `dist`, and an edit of `src` would not be what runs. An installed
 * package has no configuration of the build beside its `dist`, and its times mean nothing.
 */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const about = (): { readonly version: string; readonly engines: { readonly node: string } } =>
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));

export const version = (): string => about().version;

/** The message for a `version` that is older than package.json asks for; null where it is not. */
export function tooOld(version: string): string | null {
  const oldest = about().engines.node.replace('>=', '');
  const [major, minor] = numbersOf(version);
  const [leastMajor, leastMinor] = numbersOf(oldest);
  if (major > leastMajor || (major === leastMajor && minor >= leastMinor)) return null;
  return `heddle: this is Node.js ${version}, and heddle needs ${oldest} or newer (https://nodejs.org)`;
}

function numbersOf(version: string): [major: number, minor: number] {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return [major, minor];
}

/** The message where a source of the clone at `root` is newer than what was built of it; null where none is. */
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
