/** Refuses a Node.js that is too old, before anything is imported that it does not have. */
import { readFileSync } from 'node:fs';

/** What to tell where `version` is older than package.json asks for; null where it is not. */
export function tooOld(version: string): string | null {
  const about = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { engines } = JSON.parse(about) as { readonly engines: { readonly node: string } };
  const oldest = engines.node.replace('>=', '');
  const [major, minor] = numbersOf(version);
  const [leastMajor, leastMinor] = numbersOf(oldest);
  if (major > leastMajor || (major === leastMajor && minor >= leastMinor)) return null;
  return `heddle: this is Node.js ${version}, and heddle needs ${oldest} or newer (https://nodejs.org)`;
}

function numbersOf(version: string): [major: number, minor: number] {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return [major, minor];
}
