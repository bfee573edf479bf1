#!/usr/bin/env node
import { staleBuild, tooOld } from './start.js';

// The reader of the output may go away (`heddle emit … | head`); that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') return;
  process.stderr.write(`heddle: standard output cannot be written: ${error.message}\n`);
  process.exit(1);
});
// A reader of stderr that goes away (`heddle bench --json 2> >(head)`) ends nothing either. Nobody is left to hear more.
process.stderr.on('error', () => {});
const built = import.meta.url.endsWith('.js');
const refusal =
  tooOld(process.versions.node) ?? (built ? staleBuild(new URL('../../', import.meta.url)) : null);
if (refusal === null) {
  const { heddle } = await import('./program.js');
  process.exitCode = await heddle(process.argv.slice(2));
} else {
  process.stderr.write(`${refusal}\n`);
  process.exitCode = 2;
}
