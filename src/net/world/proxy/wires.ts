/**
 * Where the wires of a world's layers lie: in the GPU's memory where NICs reach that, else in the host's. It is found before the
 * first is allocated, by trying. Each rank finds it for itself: what peers write to is told them with its keys.
 */

import { HeddleError, messageOf, onlyGiven, requireOneOf, UnavailableError } from '../../../base/errors.js';
import type { Device, WireSide } from '../../../gpu/index.js';
import { type ProviderName, type Region, TransferEngine } from '../../fabric/index.js';
import type { Circle } from '../circle.js';
import {
  agreeOnProvider,
  type FabricOptions,
  flushOf,
  offerHere,
  registerWire,
  withEnvironment,
} from './network.js';

/** Where they lie, and why. */
export interface Wires {
  readonly side: WireSide;
  readonly why: string;
}

/**
 * Their NICs read and write a GPU's memory themselves. Others move it by copies of CUDA, each of which may wait for a kernel that
 * runs, which waits for the message.
 */
const direct: readonly ProviderName[] = ['efa', 'verbs;ofi_rxm'];

const asked = 'HEDDLE_WIRES, or fabric.wires, says so';

type Wanted = WireSide | 'auto';

const wantedIn = ({ wires = 'auto' }: FabricOptions): Wanted =>
  requireOneOf('fabric.wires', wires, ['auto', 'host', 'gpu']);

/** The cases that need no try. */
const untried = (wires: Wanted): Wires =>
  wires === 'auto' ? { side: 'host', why: 'the GPU is simulated' } : { side: wires, why: asked };

/** Wires of ranks of one simulated machine, whose NICs reach what they are given. */
export const simulatedWires = (options: FabricOptions): Wires => untried(wantedIn(withEnvironment(options)));

/**
 * Finds where the wires of a rank lie whose proxies reach others over libfabric; every rank calls it.
 * @throws UnavailableError where they must lie in the GPU's memory, and cannot.
 */
export async function findWires(
  circle: Pick<Circle, 'allGather' | 'ranks'>,
  device: Device,
  options: FabricOptions,
): Promise<Wires> {
  const given = withEnvironment(options);
  // All ranks say, no matter what the others were told, what they have.
  const provider = await agreeOnProvider(circle, offerHere(given, circle.ranks));
  const wires = wantedIn(given);
  if (wires === 'host' || (wires === 'auto' && device.kind === 'sim')) return untried(wires);
  try {
    return { side: 'gpu', why: await tryWire(device, given, provider) };
  } catch (error) {
    if (!(error instanceof HeddleError)) throw error;
    if (wires === 'auto') return { side: 'host', why: messageOf(error) };
    throw new UnavailableError(
      `Wires must lie in the GPU's memory (${asked}), but ${messageOf(error)}`,
      'Leave it to be found: HEDDLE_WIRES=auto',
      { cause: error },
    );
  }
}

/** The bytes that are written in a try, and how they are told from what was there. */
const tried = { bytes: 4096, value: 0x5a } as const;
const timeoutMs = 5000;

/** Writes by a NIC from memory of the GPU to other memory of it. Returns how that was registered. */
async function tryWire(device: Device, options: FabricOptions, provider: ProviderName): Promise<string> {
  if (device.kind === 'cuda' && !direct.includes(provider))
    throw new UnavailableError(
      `${provider} would move a GPU's memory by copies of CUDA, which may wait for the kernel that waits for the message`,
      `NICs reach it over ${direct.join(' and ')}`,
    );
  const { bytes, value } = tried;
  const front = 16;
  const wire = device.allocateWire({ bytes: front + 2 * bytes, front, side: 'gpu' }, 'a wire, to try it', [
    { offset: front, bytes, value },
  ]);
  const flush = flushOf(wire.nics);
  const engines: TransferEngine[] = [];
  const stream = device.createStream();
  try {
    const wanted = { ...onlyGiven(options, 'devices', 'near'), provider, timeoutMs, gpuMemory: true };
    for (let n = 0; n < 2; n++) engines.push(await TransferEngine.open(wanted));
    const [from, to] = engines as [TransferEngine, TransferEngine];
    const [source, region] = engines.map((engine) => registerWire(engine, wire.nics)) as [Region, Region];
    const target = from.remote(from.addPeer(to.address, 'the other'), region.descriptor);
    to.addPeer(from.address, 'the one');
    const counter = from.counter();
    from.write({ source, sourceOffset: 0, target, targetOffset: bytes, bytes, counter });
    await counter.wait();
    flush?.flush();
    const landed = await stream.copyOut(wire.address + front + bytes, bytes);
    if (!landed.every((byte) => byte === value))
      throw new HeddleError('HEDDLE_FABRIC', `what ${provider} wrote into memory of the GPU is not there`);
    return `a write over ${provider} landed there (${device.kind === 'sim' ? 'simulated' : region.path})`;
  } finally {
    for (const engine of engines) await engine.close();
    flush?.close();
    stream.dispose();
    wire.free();
  }
}
