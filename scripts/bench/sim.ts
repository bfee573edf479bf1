/**
 * What the simulator costs on this machine: `npm run bench:sim`. Each figure is one run, since each takes seconds; run
 * it on an idle machine. Exit code 1 where a goal is missed.
 */
import { spawnSync } from 'node:child_process';
import { cpus, totalmem } from 'node:os';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { profiles } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  expectedRound,
  makeSources,
  type RoundsShape,
  runRounds,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';

interface Figure {
  readonly what: string;
  readonly seconds: number;
  readonly goalSeconds: number;
  /** Peak of resident memory, of the process that did it. */
  readonly mebibytes: number;
  readonly goalMebibytes?: number;
  /** What it did. */
  readonly detail: string;
}

/** A command as a person would start it; what it printed, how long it took, and the most memory that it held. */
function command(args: readonly string[]) {
  const tellPeak =
    'data:text/javascript,process.on("exit",()=>console.error("peak",process.resourceUsage().maxRSS))';
  const started = performance.now();
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ['--import', 'tsx', '--import', tellPeak, 'src/cli/main.ts', ...args],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`heddle ${args.join(' ')} ended with ${status}:\n${stdout}${stderr}`);
  const peak = Number(/^peak (\d+)$/m.exec(stderr)?.[1]);
  return { stdout, seconds: (performance.now() - started) / 1000, mebibytes: peak / 1024 };
}

function start(): Figure {
  const { stdout, ...cost } = command(['demo', '--device', 'sim', '--json']);
  const { ranks, tokens, hidden } = JSON.parse(stdout) as { ranks: number; tokens: number; hidden: number };
  const detail = `${ranks} ranks × ${tokens} tokens, hidden ${hidden}, twice, and the reference`;
  return { what: 'npm start', ...cost, goalSeconds: 10, goalMebibytes: 1024, detail };
}

function check(): Figure {
  const { stdout, ...cost } = command(['check', '--json']);
  const report = JSON.parse(stdout) as { configurations: number; schedules: number };
  const detail = `${report.configurations} configurations, ${report.schedules} schedules`;
  return { what: 'heddle check', ...cost, goalSeconds: 120, detail };
}

/** Inputs, one round, and the comparison with the reference. */
async function roundTrip(
  what: string,
  layer: RoundsShape,
  mode: 'fast' | 'checked',
  goalSeconds: number,
): Promise<Figure> {
  const started = performance.now();
  const shape = shapeOfRounds(layer);
  const rounds = [makeSources(shape, layer.maxTokens, 1)];
  const sim = SimMachine.create({ ranks: layer.ranks, mode, seed: '1' });
  const results = await World.local({ ranks: layer.ranks, device: 'sim', sim }, (world) =>
    runRounds(world, shape, rounds),
  );
  const expected = rounds.map((sources) => expectedRound(shape, sources));
  for (const [rank, { out }] of results.entries()) {
    for (const [round, rows] of out.entries()) {
      const wanted = expected[round]![rank]!;
      if (rows?.some((bits, i) => bits !== wanted[i]))
        throw new Error(`${what}: rank ${rank} differs from the reference`);
    }
  }
  if (sim.findings.length > 0) throw new Error(sim.findings.map(formatFinding).join('\n\n'));
  return {
    what,
    seconds: (performance.now() - started) / 1000,
    goalSeconds,
    mebibytes: process.resourceUsage().maxRSS / 1024,
    detail: `${layer.ranks} ranks × ${layer.maxTokens} tokens, hidden ${layer.hidden}, ${mode}`,
  };
}

const deepseek = { ...profiles.deepseek_v3, dtype: 'bf16' } as const;
const figures: Figure[] = [];
// Commands first: Linux counts the memory of whoever starts a process into its peak, and this one is still small.
for (const measure of [
  start,
  check,
  () => roundTrip('a verified round trip', { ...deepseek, ranks: 8, maxTokens: 128 }, 'fast', 8),
  () => roundTrip('64 ranks, checked', { ...deepseek, ranks: 64, maxTokens: 8, hidden: 1024 }, 'checked', 60),
]) {
  const figure = await measure();
  figures.push(figure);
  if (!process.argv.includes('--json')) console.log(lineOf(figure));
}

const machine = {
  cpu: cpus()[0]?.model ?? 'unknown',
  processors: cpus().length,
  memoryGiB: Math.round(totalmem() / 2 ** 30),
  node: process.versions.node,
};
if (process.argv.includes('--json')) {
  console.log(JSON.stringify({ date: new Date().toISOString().slice(0, 10), machine, figures }, null, 2));
} else console.log(`on ${machine.processors} × ${machine.cpu}, Node.js ${machine.node}`);
process.exitCode = figures.every(isReached) ? 0 : 1;

function isReached({
  seconds,
  goalSeconds,
  mebibytes,
  goalMebibytes = Number.POSITIVE_INFINITY,
}: Figure): boolean {
  return seconds <= goalSeconds && mebibytes <= goalMebibytes;
}

function lineOf(figure: Figure): string {
  const { what, seconds, goalSeconds, mebibytes, detail } = figure;
  const time = `${seconds.toFixed(1).padStart(6)} s of ${goalSeconds}`;
  return `${what.padEnd(22)} ${time.padEnd(15)} ${mebibytes.toFixed(0).padStart(6)} MiB  ${
    isReached(figure) ? 'reached' : 'missed '
  }  ${detail}`;
}
