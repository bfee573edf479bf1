/** `heddle doctor`: what of Heddle this machine can run, and what is missing. */
import { integerIn, messageOf, requireOneOf, requireThat } from '../../base/errors.js';
import { probe } from '../../base/native/index.js';
import { formatBytes, nvtxAskedFor, requireOwnCache, windowKinds } from '../../gpu/cuda/index.js';
import { field, kernel, layout, peers } from '../../lang/index.js';
import { type Family, families } from '../../moe/families/index.js';
import { readTuning, tuningPath } from '../../moe/index.js';
import {
  distancesFrom,
  listNics,
  listProviders,
  type Nic,
  providers,
  shmRemedy,
  shmShortage,
  shmSpace,
  TransferEngine,
} from '../../net/fabric/index.js';
import { askEtcd, World } from '../../net/world/index.js';
import { type CudaReport, examineCuda, type GpuReport } from './cuda.js';
import { about, type DoctorFinding } from './finding.js';

export type { GpuReport };

export type Diagnosis = Awaited<ReturnType<typeof diagnose>>;

/** Everything that `heddle doctor` finds; what `--json` prints. */
export async function diagnose() {
  const native = examineNative();
  // Only the simulator works without foreign functions.
  const cuda: CudaReport = native.state === 'found' ? await examineCuda() : { findings: [], gpus: [] };
  const nics = listNics();
  const simulator = await examineSimulator();
  const fabric = native.state === 'found' ? [examineLibfabric()] : [];
  if (fabric[0]?.state === 'found') {
    fabric.push(await examineNetwork());
    if (cuda.gpus.length > 0) fabric.push(await examineWires());
  }
  const findings = [
    simulator,
    native,
    examineSettings(),
    ...(await examineRendezvous()),
    ...cuda.findings,
    ...fabric,
    sharedMemory(shmSpace()),
    examineNics(nics, cuda.gpus),
  ];
  // Whether anything at all can run: the simulator at least.
  const usable = simulator.state === 'found';
  return { summary: summarise(findings, cuda.gpus), usable, findings, gpus: cuda.gpus, nics };
}

/** Checks the variables of the environment that no other finding tries. */
function examineSettings(): DoctorFinding {
  const of = about('Settings', 'what HEDDLE_… variables ask for');
  const settings: Readonly<Record<string, (value: string) => unknown>> = {
    HEDDLE_DEVICE: (value) => requireOneOf('HEDDLE_DEVICE', value, ['cuda', 'sim']),
    HEDDLE_WINDOWS: (value) => requireOneOf('HEDDLE_WINDOWS', value, windowKinds),
    HEDDLE_CACHE: requireOwnCache,
    HEDDLE_TUNING: () => readTuning(tuningPath()),
    HEDDLE_NVTX: nvtxAskedFor,
    HEDDLE_WIRES: (value) => requireOneOf('HEDDLE_WIRES', value, ['auto', 'host', 'gpu']),
    HEDDLE_PROXY_CPUS: (value) => {
      const known = value.split(',').every((one) => integerIn(one.trim(), 0, 2 ** 16) !== null);
      requireThat(known, 'HEDDLE_PROXY_CPUS', value, 'numbers of processors, separated by commas');
    },
  };
  const set: string[] = [];
  const wrong: string[] = [];
  for (const [variable, requireSense] of Object.entries(settings)) {
    const value = process.env[variable];
    if (!value) continue;
    set.push(`${variable}=${value}`);
    try {
      requireSense(value);
    } catch (error) {
      wrong.push(`${variable}: ${messageOf(error)}`);
    }
  }
  return wrong.length > 0
    ? of.broken(wrong.join('; '), 'Set these otherwise, or unset them')
    : of.found(set.join(', ') || 'none is set');
}

/** The etcd that ranks are to meet in, where one is named. */
export async function examineRendezvous(): Promise<DoctorFinding[]> {
  const { HEDDLE_RENDEZVOUS: rendezvous } = process.env;
  if (!rendezvous) return [];
  const of = about('Rendezvous', 'worlds of processes that meet in etcd (HEDDLE_RENDEZVOUS)');
  return [
    await of.tried(
      async () => `etcd ${await askEtcd(rendezvous)} answers`,
      'Start etcd, let it be reached from here, and give its user leave for the prefix; or unset HEDDLE_RENDEZVOUS',
    ),
  ];
}

/** Two simulated GPUs write into each other's windows. */
const examineSimulator = (): Promise<DoctorFinding> =>
  about('Simulator', 'running and checking every kernel without a GPU (`heddle demo`, `heddle check`)').tried(
    async () => {
      await runSimulated();
      return `two simulated GPUs exchanged a word; Node.js ${process.versions.node}`;
    },
    'This should not happen: reinstall Heddle (npm install), with Node.js 20.19 or newer',
  );

async function runSimulated(): Promise<void> {
  const Trial = layout('Trial', { word: field('u32', 1) });
  const trial = kernel({ name: 'trial', params: { win: peers(Trial) } }, (g, { win }) => {
    g.store(win.at(1 - g.rank).word.at(0), g.rank + 42);
  });
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { device, rank } = world;
    const window = await world.createWindow(Trial.bytes, 'trial window');
    const launcher = (await device.load(trial.ir())).launcher({ grid: 1, block: 1, rank });
    launcher.setWindow('win', window);
    const stream = device.createStream();
    launcher.launch(stream);
    await stream.synchronize();
    await world.barrier('both have stored');
    const [word] = await stream.copyOut(window.own.address, 4);
    if (word !== 43 - rank) throw new Error(`rank ${rank} was told ${word} instead of ${43 - rank}`);
  });
}

function examineNative(): DoctorFinding {
  const functions = about('Foreign functions', 'opening the CUDA driver, NCCL and libfabric from Node.js');
  const libc = probe(['libc.so.6', 'libSystem.dylib']);
  return libc.ok
    ? functions.found('koffi works')
    : functions.broken(libc.reason, 'npm rebuild koffi, on Linux with glibc');
}

function examineLibfabric(): DoctorFinding {
  const { HEDDLE_LIBFABRIC: asked } = process.env;
  const found = probe([asked ?? 'libfabric.so.1'], { symbol: 'fi_version', how: 'returns' });
  // The upper half is the major version, the lower the minor.
  const version = (number: number) => `${number >>> 16}.${number & 0xffff}`;
  const libfabric = about('libfabric', `ranks on several machines (the transport of ${familiesBeyond()})`);
  const remedy = 'apt-get install libfabric1, or the EFA or NIC vendor’s package';
  if (!found.ok && asked !== undefined)
    return libfabric.broken(found.reason, 'Set HEDDLE_LIBFABRIC otherwise, or unset it');
  const finding = libfabric.library(found, version, remedy);
  if (finding.state !== 'found') return finding;
  try {
    const usable = listProviders().filter(({ devices }) => devices.length > 0);
    const names = usable.map(({ provider, devices }) => {
      const gpu = devices.some(({ gpuMemory }) => gpuMemory) ? '; claims GPU memory' : '';
      return `${provider} (${devices.map(({ device }) => device).join(', ')}${gpu})`;
    });
    return libfabric.found(`${finding.detail}; providers: ${names.join(', ') || 'none with a device'}`);
  } catch (error) {
    return libfabric.broken(error, 'Update libfabric');
  }
}

const examineNetwork = (): Promise<DoctorFinding> =>
  about('Network of proxies', `rows between nodes (the proxies of ${familiesBeyond()})`).tried(
    tryNetwork,
    'HEDDLE_PROVIDER and HEDDLE_NICS choose another; `heddle fabric list` shows what there is',
  );

const namesOf = (some: readonly Family[]): string => some.map(({ name }) => name).join(', ');

const familiesBeyond = (): string => namesOf(families.filter(({ reach }) => reach === 'world'));

/** Two engines of the provider that proxies would take write from one's host memory to the other's. */
async function tryNetwork(): Promise<string> {
  const { HEDDLE_PROVIDER: asked, HEDDLE_NICS: nics } = process.env;
  const devices = nics ? nics.split(',') : [];
  const engines: TransferEngine[] = [];
  try {
    const provider = asked ? requireOneOf('HEDDLE_PROVIDER', asked, providers) : 'auto';
    for (let n = 0; n < 2; n++)
      engines.push(await TransferEngine.open({ provider, devices, timeoutMs: 5000 }));
    const [from, to] = engines as [TransferEngine, TransferEngine];
    const [source, target] = [from.allocate(8), to.allocate(8)];
    const peer = from.addPeer(to.address, 'the other');
    to.addPeer(from.address, 'the one');
    const write = { source, sourceOffset: 0, target: from.remote(peer, target.descriptor), targetOffset: 0 };
    const counter = from.counter();
    from.write({ ...write, bytes: 8, counter });
    await counter.wait();
    const { provider: taken, device } = from.devices[0]!;
    return `${taken} over ${device} (${asked ? 'HEDDLE_PROVIDER' : 'the best here'}) reached host memory`;
  } finally {
    for (const engine of engines) await engine.close();
  }
}

const where = { gpu: 'in the GPU’s memory', host: 'in host memory, which kernels reach over PCIe' };

/** Where the messages of a layer would lie, tried on the first GPU. */
const examineWires = (): Promise<DoctorFinding> =>
  about('Messages of proxies', 'rows between nodes that a NIC takes from the GPU’s own memory').tried(
    async () => {
      const [wires] = await World.local({ ranks: 1, device: 'cuda' }, (world) => world.wires());
      return `they lie ${where[wires!.side]}: ${wires!.why}`;
    },
    'HEDDLE_WIRES=host lets them lie there',
  );

/** Endpoints of the largest usual run: two ranks, of which one meets 63 engines of the other. */
const manyEndpoints = 127;

/** Says for what /dev/shm has room: containers have 64 MiB of it unless they are told otherwise. */
export function sharedMemory(space: ReturnType<typeof shmSpace>): DoctorFinding {
  const memory = about('Shared memory', 'libfabric between processes of one machine (shm)');
  const shortage = shmShortage(manyEndpoints, space);
  return space !== null && shortage === null
    ? memory.found(`/dev/shm has ${formatBytes(space.free)} free`)
    : memory.missing(shortage ?? '', shmRemedy(manyEndpoints));
}

export function examineNics(
  nics: readonly Nic[],
  gpus: readonly Pick<GpuReport, 'ordinal' | 'pciBusId'>[],
  root?: string,
): DoctorFinding {
  const show = ({ name, up, detail }: Nic) =>
    `${name} ${[up ? 'up' : 'down', detail].filter(Boolean).join(', ')}`;
  const rdma = nics.filter(({ kind }) => kind === 'rdma');
  const isSoft = rdma.length > 0 && rdma.every(({ detail }) => detail.startsWith('soft-RoCE'));
  const fast = 'fast transport between machines (RDMA: InfiniBand, RoCE, EFA)';
  const of = about('NICs', isSoft ? 'a trial of verbs between machines' : fast);
  if (rdma.length > 0) {
    const detail = [...rdma.map(show), ...gpus.flatMap((gpu) => nearestTo(gpu, rdma, root))].join('; ');
    // A port without a cable is no defect.
    return rdma.some(({ up }) => up)
      ? of.found(detail)
      : of.missing(detail, 'Bring a port up (`ibstat`, `rdma link`)');
  }
  const plain = nics.map(show).join('; ');
  return of.missing(
    `no RDMA device${plain === '' ? '' : `; ordinary interfaces: ${plain}`}`,
    'Ranks on several machines use TCP, which is much slower; RDMA needs such a NIC and its driver',
  );
}

/** The NICs with the fewest steps to a GPU, which a proxy of its rank takes unless HEDDLE_NICS says. */
function nearestTo(
  { ordinal, pciBusId }: Pick<GpuReport, 'ordinal' | 'pciBusId'>,
  nics: readonly Nic[],
  root: string | undefined,
): string[] {
  const distances = distancesFrom(pciBusId, root);
  const least = Math.min(...nics.map(({ name }) => distances.get(name) ?? Number.POSITIVE_INFINITY));
  const nearest = nics.filter(({ name }) => distances.get(name) === least).map(({ name }) => name);
  return nearest.length > 0 ? [`nearest to GPU ${ordinal}: ${nearest.join(', ')}`] : [];
}

/** The abilities of Heddle on this machine, best first. */
function summarise(findings: readonly DoctorFinding[], gpus: readonly GpuReport[]): readonly string[] {
  const found = (name: string) =>
    findings.some((finding) => finding.name === name && finding.state === 'found');
  const summary: string[] = [];
  if (found('A first kernel')) {
    const ranks = found('Peer access') ? gpus.length : 1;
    summary.push(`GPU: ${ranks === 1 ? 'one rank' : `up to ${ranks} ranks over peer access`}`);
    if (found('Windows between machines'))
      summary.push('GPU: ranks of one NVLink domain on several machines');
    if (found('NCCL')) summary.push('GPU: `heddle bench` with NCCL as its baseline');
  } else if (gpus.length > 0) {
    summary.push('GPU: found, but kernels cannot run yet: see what is broken or missing');
  } else {
    summary.push('GPU: none here');
  }
  if (found('libfabric')) summary.push(`Several machines: over libfabric, with ${familiesBeyond()}`);
  if (found('Simulator'))
    summary.push(`Simulator: any number of ranks, on this CPU, with ${namesOf(families)}`);
  return summary;
}
