import { cpus, loadavg } from 'node:os';
import { requireOneOf, UnavailableError } from '../../../base/errors.js';
import {
  libfabricVersion,
  listProviders,
  type ProviderName,
  requireShmSpace,
} from '../../../net/fabric/index.js';
import { type Baseline, buildBaseline } from './baseline.js';
import {
  allToAllRanks,
  type FabricBenchOptions,
  type Figure,
  Measurements,
  scatterPeers,
} from './measurements.js';
import {
  measureAllToAll,
  measureCalls,
  measureFlags,
  measureRounds,
  measureSteadyState,
} from './measures.js';

export type FabricBenchReport = Awaited<ReturnType<typeof benchFabric>>;

/** Measures the engine between local processes, and the same libfabric calls from C, in one run. */
export async function benchFabric(options: FabricBenchOptions) {
  if (options.providers.length === 0)
    throw new UnavailableError(
      'no provider of libfabric can be measured here',
      '`heddle fabric list` says what each lacks',
    );
  const machine = {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    processors: cpus().length,
    loadBefore: loadavg()[0]!,
    node: process.version,
    libfabric: libfabricVersion(),
  };
  for (const provider of options.providers) {
    deviceOf(provider, options.device);
    requireRoom(provider, options);
  }
  const built = await buildBaseline();
  const [baseline, lacking] = typeof built === 'string' ? [null, built] : [built, null];
  const figures: Figure[] = [];
  try {
    for (const provider of options.providers)
      figures.push(...(await benchProvider(provider, options, baseline)));
  } finally {
    await baseline?.remove();
  }
  // `baseline` says why there is nothing from C to compare with, if so.
  return { machine, when: new Date().toISOString(), baseline: lacking, figures };
}

async function benchProvider(
  provider: ProviderName,
  options: FabricBenchOptions,
  baseline: Baseline | null,
): Promise<Figure[]> {
  const device = deviceOf(provider, options.device);
  const bench = new Measurements({ ...options, provider, device, baseline });
  await measureCalls(bench, 'caller');
  await measureCalls(bench, 'worker');
  await measureFlags(bench);
  await measureRounds(bench, options.ranks);
  await measureSteadyState(bench);
  if (options.allToAll) await measureAllToAll(bench);
  return bench.figures;
}

/** Says what is missing before anything is measured. */
function requireRoom(provider: ProviderName, { ranks, allToAll }: FabricBenchOptions): void {
  if (provider !== 'shm') return;
  // An endpoint for each engine, and one for each peer of it: the scatter's many receivers, or everybody to everybody.
  const meshes = [ranks, ...(allToAll ? [allToAllRanks] : [])].map((n) => n * n);
  requireShmSpace('fabric bench --provider shm', Math.max(1 + 2 * scatterPeers, ...meshes));
}

/** The device that was asked for, else the one for processes of one machine: loopback, where the provider has it. */
function deviceOf(provider: ProviderName, asked: string | undefined): string {
  const { devices, missing } = listProviders().find((report) => report.provider === provider)!;
  if (devices.length === 0) {
    throw new UnavailableError(
      `${provider} cannot be measured here: ${missing}`,
      '`heddle fabric list` shows which providers can',
    );
  }
  const names = [...new Set(devices.map(({ device }) => device))];
  if (asked !== undefined) return requireOneOf('--device', asked, names);
  return (devices.find(({ device }) => device === 'lo') ?? devices[0]!).device;
}
