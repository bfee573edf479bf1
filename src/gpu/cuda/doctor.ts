/** What this machine has of CUDA: each library is tried in a child process before this one trusts it. */
import { type Probe, probe, runApart } from '../../base/native/index.js';
import { compilerRemedy, findCompiler } from './compiler.js';
import { CudaDevice } from './device.js';
import { driverCandidates, driverRemedy, formatVersion } from './driver.js';
import { canAddress, type Gpu, hasPeerAtomics, listGpus } from './gpu.js';
import { ncclCandidates } from './nccl.js';
import { type Links, nvmlCandidates, openNvml } from './nvml.js';
import { nvrtcCandidates } from './nvrtc.js';
import { nvshmemCandidates, nvshmemRemedy } from './nvshmem/library.js';
import type { NvshmemTrial } from './nvshmem/trial.js';
import { type FabricProbe, fabricRemedy } from './sharing.js';
import { allowsTakingDescriptors } from './window.js';

/** One thing looked for. */
export interface DoctorFinding {
  readonly name: string;
  /** `broken`: it is there and does not work. */
  readonly state: 'found' | 'missing' | 'broken';
  /** What was found, or why not. */
  readonly detail: string;
  /** What Heddle does with it. */
  readonly enables: string;
  /** The command or step that would provide it; null where nothing is missing. */
  readonly remedy: string | null;
}

export interface GpuReport extends Gpu {
  readonly links: Links | null;
  /** By ordinal of the other GPU: whether this one can address its memory, and whether atomics work there. */
  readonly peers: readonly {
    readonly ordinal: number;
    readonly access: boolean;
    readonly atomics: boolean;
  }[];
}

export interface CudaReport {
  readonly findings: readonly DoctorFinding[];
  readonly gpus: readonly GpuReport[];
}

const trialLimit = 60_000;

export async function examineCuda(): Promise<CudaReport> {
  const driverFinding = examineDriver();
  const { gpus, trouble } = driverFinding.state === 'found' ? reportGpus() : { gpus: [], trouble: null };
  const findings = [driverFinding, gpuFinding(gpus, trouble), peerFinding(gpus)];
  const compiler = await examineCompiler();
  findings.push(compiler);
  if (gpus.length > 0 && compiler.state === 'found') findings.push(await trial());
  findings.push(
    windowFinding(gpus),
    fabricFinding(gpus.length === 0 ? null : await tryFabric()),
    library('NCCL', probe(ncclCandidates, { symbol: 'ncclGetVersion', how: 'stores' }), ncclVersion, {
      enables: 'the baselines of `heddle bench`',
      remedy: 'pip install nvidia-nccl-cu13, and put its lib folder on LD_LIBRARY_PATH',
    }),
    examineNvshmem(),
  );
  return { findings, gpus };
}

const nvshmemLimit = 30_000;
const nvshmemEnables = 'rows by NVSHMEM’s puts (transport: nvshmem), with a process for each rank';

/** Whether it is there, and comes up: both in processes of their own, for its errors may end the one they happen in. */
function examineNvshmem(): DoctorFinding {
  const found = probe(nvshmemCandidates);
  if (!found.ok)
    return library('NVSHMEM', found, () => '', { enables: nvshmemEnables, remedy: nvshmemRemedy });
  const tried = runApart(new URL('./nvshmem/trial.js', import.meta.url), nvshmemLimit);
  return nvshmemFinding(tried.ok ? (JSON.parse(tried.line) as NvshmemTrial) : tried.reason, found.path);
}

/** What the trial said of itself, or why it said nothing. */
export function nvshmemFinding(trial: NvshmemTrial | string, path: string): DoctorFinding {
  const [name, enables] = ['NVSHMEM', nvshmemEnables];
  if (typeof trial === 'string') {
    const remedy = 'Set NVSHMEM_DEBUG=INFO to see why';
    return { name, state: 'broken', detail: `${trial} (${path})`, enables, remedy };
  }
  const { version, cameUp, plugins, refusal } = trial;
  if (refusal !== null) return { name, state: 'broken', detail: refusal, enables, remedy: 'See the message' };
  const transports = [cameUp ? 'NVLink (came up on GPU 0)' : 'no GPU to try it on', ...plugins].join(', ');
  const detail = `${version} (${path}); transports: ${transports}`;
  return { name, state: 'found', detail, enables, remedy: null };
}

function examineDriver(): DoctorFinding {
  const version = { symbol: 'cuDriverGetVersion', how: 'stores', initialise: 'cuInit' } as const;
  const found = probe(driverCandidates, version);
  const enables = 'kernels on NVIDIA GPUs';
  if (!found.ok) {
    return { name: 'NVIDIA driver', ...absence(found.reason), enables, remedy: driverRemedy };
  }
  const nvml = openWorkingNvml();
  const release = nvml === null ? '' : `driver ${nvml.driverVersion}, `;
  nvml?.close();
  const detail = `${release}CUDA ${formatVersion(found.version ?? 0)} (${found.path})`;
  return { name: 'NVIDIA driver', state: 'found', detail, enables, remedy: null };
}

function openWorkingNvml() {
  return probe(nvmlCandidates).ok ? openNvml() : null;
}

/** The GPUs, or what the driver said when it was asked about them. */
function reportGpus(): { readonly gpus: readonly GpuReport[]; readonly trouble: string | null } {
  const nvml = openWorkingNvml();
  try {
    const gpus = listGpus();
    const reports = gpus.map((gpu) => ({
      ...gpu,
      links: nvml?.links(gpu.pciBusId) ?? null,
      peers: gpus
        .filter(({ ordinal }) => ordinal !== gpu.ordinal)
        .map(({ ordinal }) => {
          const access = canAddress(gpu.ordinal, ordinal);
          return { ordinal, access, atomics: access && hasPeerAtomics(gpu.ordinal, ordinal) };
        }),
    }));
    return { gpus: reports, trouble: null };
  } catch (error) {
    return { gpus: [], trouble: messageOf(error) };
  } finally {
    nvml?.close();
  }
}

function gpuFinding(gpus: readonly GpuReport[], trouble: string | null): DoctorFinding {
  if (trouble !== null) {
    const remedy = 'See `dmesg` and `nvidia-smi`; restart or update the driver';
    return { name: 'GPUs', state: 'broken', detail: trouble, enables: 'one rank on each', remedy };
  }
  const names = new Map<string, number>();
  for (const { name } of gpus) names.set(name, (names.get(name) ?? 0) + 1);
  const detail = [...names].map(([name, count]) => `${count} × ${name}`).join(', ');
  return gpus.length > 0
    ? { name: 'GPUs', state: 'found', detail, enables: 'one rank on each', remedy: null }
    : {
        name: 'GPUs',
        state: 'missing',
        detail: 'no NVIDIA GPU is visible',
        enables: 'one rank on each',
        remedy: 'Run on a machine with NVIDIA GPUs; the simulator needs none',
      };
}

export function peerFinding(gpus: readonly Pick<GpuReport, 'ordinal' | 'links' | 'peers'>[]): DoctorFinding {
  const name = 'Peer access';
  const enables = 'ranks that write into each other’s windows over NVLink';
  if (gpus.length < 2) {
    const detail = gpus.length === 0 ? 'no GPUs' : 'one GPU has no peers';
    return { name, state: 'missing', detail, enables, remedy: 'Use a machine with two or more GPUs' };
  }
  const refused = gpus.flatMap(({ ordinal, peers }) =>
    peers.filter(({ access }) => !access).map((peer) => `${ordinal}→${peer.ordinal}`),
  );
  if (refused.length > 0) {
    return {
      name,
      state: 'broken',
      detail: `refused between ${refused.join(', ')}`,
      enables,
      remedy:
        'Choose GPUs that reach each other with CUDA_VISIBLE_DEVICES, or disable the IOMMU/ACS that blocks PCIe peers',
    };
  }
  const linked = gpus.every(({ links }) => (links?.active ?? 0) > 0);
  const atomics = gpus.every(({ peers }) => peers.every((peer) => peer.atomics));
  const way = linked
    ? 'over NVLink'
    : atomics
      ? 'with atomics (NVLink, by the look of it)'
      : 'over PCIe (slow)';
  return {
    name,
    state: 'found',
    detail: `all ${gpus.length} GPUs reach each other ${way}`,
    enables,
    remedy: null,
  };
}

async function examineCompiler(): Promise<DoctorFinding> {
  const name = 'CUDA compiler';
  const enables = 'compiling kernels for this machine’s GPUs';
  const nvrtc = probe(nvrtcCandidates());
  // A library that is there and takes its process down must not be opened here.
  if (!nvrtc.ok && absence(nvrtc.reason).state === 'broken') {
    const remedy = 'Remove it from LD_LIBRARY_PATH, or set HEDDLE_COMPILER=nvcc';
    return { name, state: 'broken', detail: `NVRTC: ${nvrtc.reason}`, enables, remedy };
  }
  try {
    const { kind, version, path } = await findCompiler();
    const detail = `${kind === 'nvrtc' ? 'NVRTC' : 'nvcc'} ${version} (${path})`;
    return { name, state: 'found', detail, enables, remedy: null };
  } catch (error) {
    return { name, state: 'missing', detail: messageOf(error), enables, remedy: compilerRemedy };
  }
}

const trialText = 'extern "C" __global__ void heddle_trial(unsigned int* out) { *out = 42u; }\n';

/** Compiles a kernel and runs it on the first GPU. */
async function trial(): Promise<DoctorFinding> {
  const name = 'A first kernel';
  const enables = 'everything that runs on a GPU';
  try {
    const start = performance.now();
    await within(trialLimit, runTrial());
    const took = Math.round(performance.now() - start);
    return {
      name,
      state: 'found',
      detail: `compiled, loaded and ran on GPU 0 in ${took} ms`,
      enables,
      remedy: null,
    };
  } catch (error) {
    return { name, state: 'broken', detail: messageOf(error), enables, remedy: 'See the message' };
  }
}

async function runTrial(): Promise<void> {
  const device = CudaDevice.open(0);
  try {
    const kernel = {
      text: trialText,
      entry: 'heddle_trial',
      options: (architecture: string) => [`--gpu-architecture=${architecture}`],
    };
    const parameters = {
      parameters: [{ name: 'out', kind: 'pointer', offset: 0, bytes: 8 }],
      rankOffset: null,
      bytes: 8,
    } as const;
    const program = await device.loadSource({ kernel, parameters, maxThreads: 32 });
    const stream = device.createStream();
    const memory = device.allocate(4, 'the trial’s result');
    const launcher = program.launcher({ grid: 1, block: 1, rank: 0 });
    launcher.set('out', memory.address);
    launcher.launch(stream);
    const [answer] = await stream.copyOut(memory.address, 4);
    if (answer !== 42) throw new Error(`the kernel wrote ${answer} instead of 42`);
  } finally {
    await device.dispose();
  }
}

async function within<T>(limit: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came back within ${limit / 1000} s`)), limit);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function windowFinding(gpus: readonly GpuReport[]): DoctorFinding {
  const name = 'Windows between processes';
  const enables = 'one process a GPU (`heddle run`, torchrun, Slurm)';
  if (gpus.length === 0) {
    return { name, state: 'missing', detail: 'no GPUs', enables, remedy: 'Use a machine with NVIDIA GPUs' };
  }
  const descriptors = gpus.every(({ virtualMemory, posixHandles }) => virtualMemory && posixHandles);
  if (descriptors && allowsTakingDescriptors()) {
    return {
      name,
      state: 'found',
      detail: 'virtual memory, shared by file descriptors',
      enables,
      remedy: null,
    };
  }
  const why = descriptors
    ? 'this container forbids pidfd_getfd'
    : 'the GPUs’ driver has no shareable virtual memory';
  return {
    name,
    state: 'found',
    detail: `CUDA IPC, because ${why}`,
    enables,
    remedy: descriptors ? 'docker run --cap-add SYS_PTRACE gives the better kind' : null,
  };
}

async function tryFabric(): Promise<FabricProbe> {
  try {
    const device = CudaDevice.open(0);
    try {
      return device.probeFabric();
    } finally {
      await device.dispose();
    }
  } catch (error) {
    return { result: -1, detail: messageOf(error) };
  }
}

/** What trying fabric handles on the first GPU has shown; null where there is no GPU. */
export function fabricFinding(probe: FabricProbe | null): DoctorFinding {
  const offered = probe?.result === 0;
  return {
    name: 'Windows between machines',
    state: offered ? 'found' : 'missing',
    detail: probe === null ? 'no GPUs' : offered ? `${probe.detail} on GPU 0` : probe.detail,
    enables: 'windows over an NVLink domain of several hosts; inside one machine nothing needs it',
    remedy: offered ? null : fabricRemedy,
  };
}

/** A finding about a library that a child process tried. */
export function library(
  name: string,
  found: Probe,
  version: (number: number) => string,
  about: { readonly enables: string; readonly remedy: string },
): DoctorFinding {
  const { enables, remedy } = about;
  if (!found.ok) return { name, ...absence(found.reason), enables, remedy };
  const number = found.version === null ? '' : version(found.version);
  return {
    name,
    state: 'found',
    detail: [number, `(${found.path})`].filter(Boolean).join(' '),
    enables,
    remedy: null,
  };
}

/** Tells a library that is not there from one that is there and does not work. */
export function absence(reason: string): Pick<DoctorFinding, 'state' | 'detail'> {
  const missing = reason
    .split('; ')
    .every((part) => /cannot open shared object file: No such file/.test(part));
  if (!missing) return { state: 'broken', detail: reason };
  const names = reason.split('; ').map((part) => part.slice(0, part.indexOf(':')));
  return { state: 'missing', detail: `not found: ${[...new Set(names)].join(', ')}` };
}

/** 22807 → '2.28.7'. */
export function ncclVersion(number: number): string {
  return `${Math.floor(number / 10_000)}.${Math.floor((number % 10_000) / 100)}.${number % 100}`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
