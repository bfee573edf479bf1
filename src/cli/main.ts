#!/usr/bin/env node
import { heddle } from './program.js';

// Whoever read the output may go away (`heddle emit … | head`); that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') return;
  process.stderr.write(`heddle: standard output cannot be written: ${error.message}\n`);
  process.exit(1);
});
process.exitCode = await heddle(process.argv.slice(2));
