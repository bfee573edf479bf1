/**
 * What it takes to compile each kernel, TypeScript to CUDA text, as the first in a process: `npm run bench:compile`.
 * What counts is the time that the main thread has had a core (Linux tells): V8 optimises on other threads meanwhile.
 */
import { spawnSync } from 'node:child_process';
import { registry } from '../../src/verify/kernels/index.js';

const times = 5;
const goalMs = 100;

/** Runs in a process of its own, on what users get: the built package. */
const compile = `
import { readFileSync } from 'node:fs';
import { registry } from './dist/verify/kernels/index.js';
import { printCuda } from './dist/lang/index.js';
const onCore = () => Number(readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[0]) / 1e6;
const { build } = registry().find(({ name }) => name === process.argv[1]);
onCore();
const started = onCore();
const module = build({}).ir();
const lowered = onCore();
const text = printCuda([module]);
console.log(JSON.stringify({ ms: onCore() - started, irMs: lowered - started, lines: text.split('\\n').length }));`;

interface Compiled {
  readonly ms: number;
  /** Of it, until the intermediate representation was there. */
  readonly irMs: number;
  readonly lines: number;
}

function once(name: string): Compiled {
  const args = ['--input-type=module', '--eval', compile, name];
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${name}: ${stderr}`);
  return JSON.parse(stdout) as Compiled;
}

console.log('kernel                   lines    ms: least  median    most   of it to the IR');
for (const { name } of registry()) {
  const runs = Array.from({ length: times }, () => once(name)).sort((a, b) => a.ms - b.ms);
  const [least, median, most] = [runs[0]!, runs[times >> 1]!, runs.at(-1)!];
  const columns = [least, median, most].map(({ ms }) => ms.toFixed(0).padStart(7)).join(' ');
  const over = median.ms > goalMs ? `  over ${goalMs}` : '';
  console.log(
    `${name.padEnd(24)} ${String(median.lines).padStart(5)}     ${columns}            ${median.irMs.toFixed(0).padStart(7)}${over}`,
  );
}
