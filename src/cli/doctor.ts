import { styleText } from 'node:util';
import type { Command } from 'commander';
import { requireOneOf } from '../base/errors.js';
import { probe } from '../base/native/index.js';
import {
  type CudaReport,
  type DoctorFinding,
  examineCuda,
  formatBytes,
  type GpuReport,
  library,
  requireOwnCache,
  windowKinds,
} from '../gpu/cuda/index.js';
import { SimMachine } from '../gpu/sim/index.js';
import { field, kernel, layout, peers } from '../lang/index.js';
import { readTuning, tuningPath } from '../moe/tuning/index.js';
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
} from '../net/fabric/index.js';
import { World } from '../net/world/index.js';

/** Everything that `heddle doctor` found; what `--json` prints. */
export interface Diagnosis {
  /** What Heddle can do on this machine, best first. */
  readonly summary: readonly string[];
  /** Whether anything at all can run: the simulator at least. */
  readonly usable: boolean;
  readonly findings: readonly DoctorFinding[];
  readonly gpus: readonly GpuReport[];
  readonly nics: readonly Nic[];
}

/** Adds `heddle doctor`. */
export function register(program: Command): void {
  program
    .command('doctor')
    .description('look at this machine: what Heddle can use, what each thing enables, what is missing')
    .option('--json', 'print the findings as JSON')
    .addHelpText(
      'after',
      `
Every library is tried in a process of its own first, so a broken one cannot take doctor down.

Exit code: 0 when everything that is here and everything that is set works; what is missing (–) does not matter. 1 when
something is broken (✗): it is here, or a variable of the environment asks for it, and does not work.

Examples:
  $ heddle doctor
  $ heddle doctor --json | jq '.findings[] | select(.state != "found")'`,
    )
    .action(async ({ json }: { json?: boolean }) => {
      process.stderr.write('heddle doctor: looking at this machine …\n');
      const diagnosis = await diagnose();
      process.stdout.write(json === true ? `${JSON.stringify(diagnosis, null, 2)}\n` : render(diagnosis));
      process.exitCode = diagnosis.findings.some(({ state }) => state === 'broken') ? 1 : 0;
    });
}

/** Looks at this machine. */
async function diagnose(): Promise<Diagnosis> {
  const native = examineNative();
  // Everything but the simulator goes through foreign functions.
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
    ...cuda.findings,
    ...fabric,
    sharedMemory(shmSpace()),
    examineNics(nics, cuda.gpus),
  ];
  const usable = simulator.state === 'found';
  return { summary: summarise(findings, cuda.gpus), usable, findings, gpus: cuda.gpus, nics };
}

/** Variables of the environment that other findings do not try. */
function examineSettings(): DoctorFinding {
  const [name, enables] = ['Settings', 'what HEDDLE_… variables ask for'];
  const settings: Readonly<Record<string, (value: string) => unknown>> = {
    HEDDLE_DEVICE: (value) => requireOneOf('HEDDLE_DEVICE', value, ['cuda', 'sim']),
    HEDDLE_WINDOWS: (value) => requireOneOf('HEDDLE_WINDOWS', value, windowKinds),
    HEDDLE_CACHE: requireOwnCache,
    HEDDLE_TUNING: () => readTuning(tuningPath()),
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
    ? {
        name,
        state: 'broken',
        detail: wrong.join('; '),
        enables,
        remedy: 'Set these otherwise, or unset them',
      }
    : { name, state: 'found', detail: set.join(', ') || 'none is set', enables, remedy: null };
}

/** Two simulated GPUs write into each other's windows. */
async function examineSimulator(): Promise<DoctorFinding> {
  const name = 'Simulator';
  const enables = 'running and checking every kernel without a GPU (`heddle demo`, `heddle check`)';
  try {
    await runSimulated();
    const detail = `two simulated GPUs exchanged a word; Node.js ${process.versions.node}`;
    return { name, state: 'found', detail, enables, remedy: null };
  } catch (error) {
    const remedy = 'This should not happen: reinstall Heddle (npm install), with Node.js 20.19 or newer';
    return { name, state: 'broken', detail: messageOf(error), enables, remedy };
  }
}

async function runSimulated(): Promise<void> {
  const Trial = layout('Trial', { word: field('u32', 1) });
  const trial = kernel({ name: 'trial', params: { win: peers(Trial) } }, (g, { win }) => {
    g.store(win.at(1 - g.rank).word.at(0), g.rank + 42);
  });
  const machine = SimMachine.create({ ranks: 2 });
  const devices = [machine.device(0), machine.device(1)];
  const windows = devices.map((device) => device.allocateWindow(Trial.bytes, 'trial window'));
  const streams = devices.map((device) => device.createStream());
  for (const [rank, device] of devices.entries()) {
    const opened = await Promise.all(windows.map(({ handle }) => device.openWindow(handle)));
    const launcher = (await device.load(trial.ir())).launcher({ grid: 1, block: 1, rank });
    launcher.setWindow('win', { rank, bases: opened.map(({ address }) => address), bytes: Trial.bytes });
    launcher.launch(streams[rank]!);
  }
  await Promise.all(streams.map((stream) => stream.synchronize()));
  for (const [rank, stream] of streams.entries()) {
    const [word] = await stream.copyOut(windows[rank]!.address, 4);
    if (word !== 43 - rank) throw new Error(`rank ${rank} was told ${word} instead of ${43 - rank}`);
  }
  await Promise.all(devices.map((device) => device.dispose()));
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function examineNative(): DoctorFinding {
  const name = 'Foreign functions';
  const enables = 'opening the CUDA driver, NCCL and libfabric from Node.js';
  const libc = probe(['libc.so.6', 'libSystem.dylib']);
  return libc.ok
    ? { name, state: 'found', detail: 'koffi works', enables, remedy: null }
    : {
        name,
        state: 'broken',
        detail: libc.reason,
        enables,
        remedy: 'npm rebuild koffi, on Linux with glibc',
      };
}

function examineLibfabric(): DoctorFinding {
  const found = probe(['libfabric.so.1'], { symbol: 'fi_version', how: 'returns' });
  // The upper half is the major version, the lower the minor.
  const version = (number: number) => `${number >>> 16}.${number & 0xffff}`;
  const finding = library('libfabric', found, version, {
    enables: 'ranks on several machines (the portable and hybrid kernels’ transport)',
    remedy: 'apt-get install libfabric1, or the EFA or NIC vendor’s package',
  });
  if (finding.state !== 'found') return finding;
  try {
    const usable = listProviders().filter(({ devices }) => devices.length > 0);
    const names = usable.map(({ provider, devices }) => {
      const gpu = devices.some(({ gpuMemory }) => gpuMemory) ? '; claims GPU memory' : '';
      return `${provider} (${[...new Set(devices.map(({ device }) => device))].join(', ')}${gpu})`;
    });
    return {
      ...finding,
      detail: `${finding.detail}; providers: ${names.join(', ') || 'none with a device'}`,
    };
  } catch (error) {
    return { ...finding, state: 'broken', detail: messageOf(error), remedy: 'Update libfabric' };
  }
}

/** Two engines of the provider that proxies would take write from one's host memory to the other's. */
async function examineNetwork(): Promise<DoctorFinding> {
  const name = 'Network of proxies';
  const enables = 'rows between nodes (the portable and hybrid kernels’ proxies)';
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
    const why = asked ? 'HEDDLE_PROVIDER' : 'the best here';
    const detail = `${taken} over ${device} (${why}) reached host memory`;
    return { name, state: 'found', detail, enables, remedy: null };
  } catch (error) {
    const remedy = 'HEDDLE_PROVIDER and HEDDLE_NICS choose another; `heddle fabric list` shows what there is';
    return { name, state: 'broken', detail: messageOf(error), enables, remedy };
  } finally {
    for (const engine of engines) await engine.close();
  }
}

/** Where the messages of a layer would lie, tried on the first GPU. */
async function examineWires(): Promise<DoctorFinding> {
  const name = 'Messages of proxies';
  const enables = 'rows between nodes that a NIC takes from the GPU’s own memory';
  const where = { gpu: 'in the GPU’s memory', host: 'in host memory, which kernels reach over PCIe' };
  try {
    const [wires] = await World.local({ ranks: 1, device: 'cuda' }, (world) => world.wires());
    const { placement, why } = wires!;
    return { name, state: 'found', detail: `they lie ${where[placement]}: ${why}`, enables, remedy: null };
  } catch (error) {
    return {
      name,
      state: 'broken',
      detail: messageOf(error),
      enables,
      remedy: 'HEDDLE_WIRES=host lets them lie there',
    };
  }
}

/** Endpoints of the largest usual run: `heddle fabric bench`. */
const manyEndpoints = 127;

/** What /dev/shm is enough for: containers have 64 MiB of it unless they are told otherwise. */
export function sharedMemory(space: ReturnType<typeof shmSpace>): DoctorFinding {
  const name = 'Shared memory';
  const enables = 'libfabric between processes of one machine (shm), `heddle fabric bench`';
  const shortage = shmShortage(manyEndpoints, space);
  if (space !== null && shortage === null) {
    return {
      name,
      state: 'found',
      detail: `/dev/shm has ${formatBytes(space.free)} free`,
      enables,
      remedy: null,
    };
  }
  return { name, state: 'missing', detail: shortage ?? '', enables, remedy: shmRemedy(manyEndpoints) };
}

/** Exported for tests, like what else is. `root`: see `listNics`. */
export function examineNics(
  nics: readonly Nic[],
  gpus: readonly Pick<GpuReport, 'ordinal' | 'pciBusId'>[],
  root?: string,
): DoctorFinding {
  const name = 'NICs';
  const enables = 'fast transport between machines (RDMA: InfiniBand, RoCE, EFA)';
  const show = ({ name: nic, up, detail }: Nic) =>
    `${nic} ${[up ? 'up' : 'down', detail].filter(Boolean).join(', ')}`;
  const rdma = nics.filter(({ kind }) => kind === 'rdma');
  if (rdma.length > 0) {
    const working = rdma.some(({ up }) => up);
    return {
      name,
      // A port without a cable is no defect.
      state: working ? 'found' : 'missing',
      detail: [...rdma.map(show), ...gpus.flatMap((gpu) => nearestTo(gpu, rdma, root))].join('; '),
      enables,
      remedy: working ? null : 'Bring a port up (`ibstat`, `rdma link`)',
    };
  }
  const plain = nics.map(show).join('; ');
  const detail = `no RDMA device${plain === '' ? '' : `; ordinary interfaces: ${plain}`}`;
  const remedy =
    'Ranks on several machines use TCP, which is much slower; RDMA needs such a NIC and its driver';
  return { name, state: 'missing', detail, enables, remedy };
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
  if (found('libfabric')) summary.push('Several machines: over libfabric');
  if (found('Simulator')) summary.push('Simulator: any number of ranks, on this CPU');
  return summary;
}

const marks = {
  found: ['✓', 'green'],
  missing: ['–', 'yellow'],
  broken: ['✗', 'red'],
} as const;

/** The findings for people. Colours only where standard output is a terminal. */
export function render({ summary, findings, gpus }: Diagnosis): string {
  const colour = (style: Parameters<typeof styleText>[0], text: string) =>
    process.stdout.isTTY ? styleText(style, text) : text;
  const lines: string[] = [];
  for (const { name, state, detail, enables, remedy } of findings) {
    const [mark, style] = marks[state];
    lines.push(`${colour(style, mark)} ${colour('bold', name)}  ${detail}`);
    lines.push(`    enables: ${enables}`);
    if (remedy !== null) lines.push(`    to have it: ${remedy}`);
  }
  if (gpus.length > 0) lines.push('', ...gpuTable(gpus));
  lines.push('', 'On this machine Heddle can use:', ...summary.map((line) => `  ${line}`), '');
  return lines.join('\n');
}

function gpuTable(gpus: readonly GpuReport[]): readonly string[] {
  const lines = gpus.map(({ ordinal, name, capability, multiprocessors, memoryBytes, pciBusId, links }) => {
    const nvlink =
      links === null
        ? 'NVLink unknown (no NVML)'
        : links.active === 0
          ? 'no NVLink'
          : `${links.active} NVLinks${links.version === null ? '' : ` (${links.version})`}${
              links.toSwitch > 0 ? ' to a switch' : ''
            }`;
    const chip = `compute ${capability.join('.')}, ${multiprocessors} SMs, ${formatBytes(memoryBytes)}`;
    return `GPU ${ordinal}  ${name}  ${chip}, ${pciBusId}, ${nvlink}`;
  });
  if (gpus.length < 2) return lines;
  lines.push('', 'Peer access (row reads and writes column; A: atomics too):');
  lines.push(`      ${gpus.map(({ ordinal }) => String(ordinal).padStart(3)).join('')}`);
  for (const gpu of gpus) {
    const cells = gpus.map(({ ordinal, pciBusId }) => {
      const peer = gpu.peers.find((other) => other.ordinal === ordinal);
      if (peer === undefined) return '  ·';
      const direct = gpu.links?.toGpus[pciBusId];
      const mark = peer.access ? (peer.atomics ? 'A' : 'x') : '–';
      return direct === undefined ? `  ${mark}` : ` ${direct}${mark}`;
    });
    lines.push(`  ${String(gpu.ordinal).padStart(4)}${cells.join('')}`);
  }
  return lines;
}
