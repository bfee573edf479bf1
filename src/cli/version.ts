import { createRequire } from 'node:module';

/** Heddle's own. */
export function version(): string {
  const require = createRequire(import.meta.url);
  return (require('../../package.json') as { version: string }).version;
}
