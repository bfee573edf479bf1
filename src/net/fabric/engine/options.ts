import {
  ArgumentError,
  requireFlag,
  requireInteger,
  requireObject,
  requireOneOf,
  requireText,
} from '../../../base/errors.js';
import type { CoreOptions } from '../core/core.js';
import { createShared } from '../core/shared.js';
import { libfabric } from '../libfabric/bindings.js';
import { choose, type ProviderName } from '../libfabric/provider.js';

/** How an engine is opened. */
export interface EngineOptions {
  /** `auto` takes the first of efa, verbs;ofi_rxm, shm, tcp;ofi_rxm, udp;ofi_rxd that has a device. */
  readonly provider?: ProviderName | 'auto';
  /** Which of the provider's devices; all but loopback by default. */
  readonly devices?: readonly string[];
  /** The PCI address of a GPU, as '0000:1b:00.0': where no devices are named, those nearest to it come first. */
  readonly near?: string;
  /** NICs to use at once; 1 by default. With fewer devices than rails, devices are shared. */
  readonly rails?: number;
  /** Each peer's writes over one rail, or each write cut up over all rails. Peers must agree. */
  readonly shard?: 'peer' | 'bytes';
  /**
   * `worker`: a thread of its own posts, polls and completes. `caller`: the engine's calls do, and nothing moves
   * between them; for a thread that polls anyway, such as a proxy.
   */
  readonly thread?: 'worker' | 'caller';
  /** Every operation ends within this, well or with an error. It must cover the time that a full queue takes. */
  readonly timeoutMs?: number;
  /** Writes under way to one peer; a call that would exceed it waits. */
  readonly queue?: number;
  /** The most different immediates that are counted. */
  readonly immediates?: number;
  /**
   * The fate of immediates that land: counted by tag, for `immediate`, or listed, for `nextImmediate`. Listed ones
   * must be taken, or nothing moves any more; and each write is one, so not with `shard: 'bytes'`.
   */
  readonly arrivals?: 'counted' | 'listed';
  /** Ask for a provider that takes GPU memory itself. */
  readonly gpuMemory?: boolean;
}

/**
 * Checks the options and adds the defaults, and chooses the devices: here, in the caller's thread, what is thrown keeps its class.
 * @throws UnavailableError when there is no libfabric or no usable provider.
 */
export function coreOptions(options: EngineOptions): CoreOptions {
  requireObject('options', options);
  const { provider = 'auto', devices = [], gpuMemory = false } = options;
  if (!Array.isArray(devices) || !devices.every((name) => typeof name === 'string')) {
    throw new ArgumentError('devices', devices, 'names of devices');
  }
  const { near } = options;
  if (near !== undefined) requireText('near', near, 'a PCI address');
  const { rails = 1, shard = 'peer', queue = 128 } = options;
  requireInteger('rails', rails, 1, 16);
  requireInteger('queue', queue, 1, Math.floor(4096 / rails));
  requireOneOf('shard', shard, ['peer', 'bytes']);
  const { arrivals = 'counted', thread = 'worker', immediates = 4096 } = options;
  requireOneOf('arrivals', arrivals, shard === 'bytes' ? ['counted'] : ['counted', 'listed']);
  requireOneOf('thread', thread, ['worker', 'caller']);
  requireFlag('gpuMemory', gpuMemory);
  const timeoutMs = requireInteger('timeoutMs', options.timeoutMs ?? 30_000, 10, 2 ** 30);
  requireInteger('immediates', immediates, 1, 2 ** 20);
  const shared = createShared(arrivals === 'listed' ? null : immediates);
  libfabric();
  const chosen = choose({ provider, devices, near, rails, gpuMemory });
  return { rails: chosen, shard, timeoutMs, queue, arrivals, shared };
}
