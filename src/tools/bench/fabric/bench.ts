import { cpus, loadavg } from 'node:os';
import { requireOneOf, UnavailableError } from '../../../base/errors.js';
import {
  libfabricVersion,
  listProviders,
  type ProviderName,
  requireShmSpace,
} from '../../../net/fabric/index.js';
import { buildBaseline } from './baseline.js';
import { type FabricBenchOptions, type Figure, measureProvider, scatterPeers } from './measurements.js';

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
    // An endpoint for each engine, and one for each peer of it.
    if (provider === 'shm') requireShmSpace('fabric bench --provider shm', 1 + 2 * scatterPeers);
  }
  const built = await buildBaseline();
  const [baseline, lacking] = typeof built === 'string' ? [null, built] : [built, null];
  const figures: Figure[] = [];
  try {
    for (const provider of options.providers)
      figures.push(
        ...(await measureProvider({
          ...{ ...options, provider, baseline, device: deviceOf(provider, options.device) },
        })),
      );
  } finally {
    await baseline?.remove();
  }
  // `baseline` says why there is nothing from C to compare with, if so.
  return { machine, when: new Date().toISOString(), baseline: lacking, figures };
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
