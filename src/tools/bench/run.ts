/** A benchmark from outside: in this process, or with a process for each rank. */
import { extname, join } from 'node:path';
import { ArgumentError } from '../../base/errors.js';
import { requirePlaces } from '../../moe/layer/index.js';
import { launchReporting } from '../../net/world/index.js';
import { onRanks } from './harness.js';
import { ncclHere, requireGpus } from './machine.js';
import { type BenchEvent, benchmark, type Plan } from './program.js';
import { type BenchReport, type Point, reportHead } from './report.js';
import type { Spread } from './statistics.js';
import { workload } from './workload.js';

/**
 * Runs the plan; tells each event as it comes, and the report so far with it.
 * @throws UnavailableError where there are fewer GPUs than ranks.
 */
export async function runBenchmark(
  wanted: Plan,
  on: (event: BenchEvent, soFar: BenchReport) => void = () => {},
): Promise<BenchReport> {
  const of = workload(wanted.workload); // refuses nonsense before anything starts
  for (const tokens of wanted.tokens)
    if (tokens % of.replicas !== 0)
      throw new ArgumentError('tokens', tokens, `a multiple of replicas, ${of.replicas}, which share them`);
  const { places } = wanted;
  if (places !== undefined) requirePlaces('places', places, of);
  const real = wanted.device === 'cuda';
  if (!real && wanted.world === 'processes')
    throw new ArgumentError('world', wanted.world, 'local: simulated GPUs live in one process');
  const otherwise = '; with --device sim the simulator counts bytes and steps instead of time';
  if (real) requireGpus(of.ranks, otherwise);
  const notes: string[] = [];
  // With --nodes the ranks of one machine only pretend to be apart: NCCL would go by NVLink, so it is no comparison.
  const nccl = real && wanted.nccl && wanted.nodes === 1 ? ncclHere() : { version: null, reason: '' };
  if (nccl.reason !== '') notes.push(`NCCL is not compared: ${nccl.reason}`);
  const plan: Plan = { ...wanted, nccl: nccl.version !== null };

  let barrier: Spread | null = null;
  const points: Point[] = [];
  const head = await reportHead(plan, of, nccl.version);
  const report = (): BenchReport => ({ ...head, barrier, points: [...points], notes });
  const hear = (event: BenchEvent): void => {
    if (event.type === 'barrier') barrier = event.spread;
    if (event.type === 'point') points.push(event.point);
    on(event, report());
  };
  if (plan.world === 'processes') await inProcesses(plan, hear);
  else {
    const { nodes, device, iterations } = plan;
    const setting = { ranks: of.ranks, nodes, device, iterations, seed: of.seed };
    await onRanks(setting, (rig) => benchmark(rig, of, plan, rig.timing.world.rank === 0 ? hear : () => {}));
  }
  return report();
}

/** Rank 0 prints an event a line; the others print nothing unless they fail. */
async function inProcesses(plan: Plan, hear: (event: BenchEvent) => void): Promise<void> {
  const launch = {
    ranks: plan.workload.ranks,
    ...(plan.nodes > 1 && { nodes: plan.nodes }),
    program: join(import.meta.dirname, `worker${extname(import.meta.filename)}`),
    args: [JSON.stringify(plan)],
  };
  await launchReporting('the benchmark', launch, (report) => hear(report as BenchEvent));
}
