/** The parts of CUDA on this machine: each library is tried in a child process before this one trusts it. */
import { messageOf } from '../../base/errors.js';
import { probe, runApart } from '../../base/native/index.js';
import { within } from '../../base/within.js';
import {
  allowsTakingDescriptors,
  CudaDevice,
  canAddress,
  compilerRemedy,
  driverCandidates,
  driverRemedy,
  type FabricProbe,
  fabricRemedy,
  findCompiler,
  formatVersion,
  hasPeerAtomics,
  listGpus,
  type NvshmemTrial,
  nvmlCandidates,
  nvrtcCandidates,
  nvshmemCandidates,
  nvshmemRemedy,
  nvshmemTrial,
  openNvml,
} from '../../gpu/cuda/index.js';
import { kernel, pointer } from '../../lang/index.js';
import { ncclCandidates, ncclVersion } from '../bench/index.js';
import { about, type DoctorFinding } from './finding.js';

export type GpuReport = ReturnType<typeof reportGpus>['gpus'][number];

export type CudaReport = Awaited<ReturnType<typeof examineCuda>>;

const trialLimit = 60_000;
const seeMessage = 'See the message';

export async function examineCuda() {
  const driver = examineDriver();
  const { gpus, trouble } = driver.state === 'found' ? reportGpus() : { gpus: [], trouble: null };
  const findings = [driver, gpuFinding(gpus, trouble), peerFinding(gpus)];
  const compiler = await examineCompiler();
  findings.push(compiler);
  if (gpus.length > 0 && compiler.state === 'found')
    findings.push(await about('A first kernel', 'everything that runs on a GPU').tried(trial, seeMessage));
  const nccl = probe(ncclCandidates, { symbol: 'ncclGetVersion', how: 'stores' });
  findings.push(
    windowFinding(gpus),
    fabricFinding(gpus.length === 0 ? null : await tryFabric()),
    about('NCCL', 'the baselines of `heddle bench`').library(
      nccl,
      ncclVersion,
      'pip install nvidia-nccl-cu13, and put its lib folder on LD_LIBRARY_PATH',
    ),
    examineNvshmem(),
  );
  return { findings, gpus };
}

const nvshmemLimit = 30_000;
const ofNvshmem = about(
  'NVSHMEM',
  'rows by NVSHMEM’s puts (transport: nvshmem), with a process for each rank',
);

/** Whether it is there, and comes up: both in processes of their own, for its errors may end the one they happen in. */
function examineNvshmem(): DoctorFinding {
  const found = probe(nvshmemCandidates);
  if (!found.ok) return ofNvshmem.absent(found, nvshmemRemedy);
  const tried = runApart(nvshmemTrial, nvshmemLimit);
  return nvshmemFinding(tried.ok ? (JSON.parse(tried.line) as NvshmemTrial) : tried.reason, found.path);
}

export function nvshmemFinding(trial: NvshmemTrial | string, path: string): DoctorFinding {
  if (typeof trial === 'string')
    return ofNvshmem.broken(`${trial} (${path})`, 'Set NVSHMEM_DEBUG=INFO to see why');
  const { version, cameUp, plugins, refusal } = trial;
  if (refusal !== null) return ofNvshmem.broken(refusal, seeMessage);
  const transports = [cameUp ? 'NVLink (came up on GPU 0)' : 'no GPU to try it on', ...plugins].join(', ');
  return ofNvshmem.found(`${version} (${path}); transports: ${transports}`);
}

function examineDriver(): DoctorFinding {
  const version = { symbol: 'cuDriverGetVersion', how: 'stores', initialise: 'cuInit' } as const;
  const found = probe(driverCandidates, version);
  const driver = about('NVIDIA driver', 'kernels on NVIDIA GPUs');
  if (!found.ok) return driver.absent(found, driverRemedy);
  const nvml = openWorkingNvml();
  const release = nvml === null ? '' : `driver ${nvml.driverVersion}, `;
  nvml?.close();
  return driver.found(`${release}CUDA ${formatVersion(found.version ?? 0)} (${found.path})`);
}

const openWorkingNvml = () => (probe(nvmlCandidates).ok ? openNvml() : null);

/** The GPUs, or what the driver said when it was asked about them. */
function reportGpus() {
  const nvml = openWorkingNvml();
  try {
    const gpus = listGpus();
    const reports = gpus.map((gpu) => ({
      ...gpu,
      links: nvml?.links(gpu.pciBusId) ?? null,
      // Whether this one can address another's memory, and whether atomics work there.
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

function gpuFinding(all: readonly GpuReport[], trouble: string | null): DoctorFinding {
  const gpus = about('GPUs', 'one rank on each');
  if (trouble !== null)
    return gpus.broken(trouble, 'See `dmesg` and `nvidia-smi`; restart or update the driver');
  if (all.length === 0)
    return gpus.missing(
      'no NVIDIA GPU is visible',
      'Run on a machine with NVIDIA GPUs; the simulator needs none',
    );
  const names = new Map<string, number>();
  for (const { name } of all) names.set(name, (names.get(name) ?? 0) + 1);
  return gpus.found([...names].map(([name, count]) => `${count} × ${name}`).join(', '));
}

export function peerFinding(gpus: readonly Pick<GpuReport, 'ordinal' | 'links' | 'peers'>[]): DoctorFinding {
  const access = about('Peer access', 'ranks that write into each other’s windows over NVLink');
  if (gpus.length < 2)
    return access.missing(
      gpus.length === 0 ? 'no GPUs' : 'one GPU has no peers',
      'Use a machine with two or more GPUs',
    );
  const refused = gpus.flatMap(({ ordinal, peers }) =>
    peers.filter(({ access }) => !access).map((peer) => `${ordinal}→${peer.ordinal}`),
  );
  if (refused.length > 0)
    return access.broken(
      `refused between ${refused.join(', ')}`,
      'Choose GPUs that reach each other with CUDA_VISIBLE_DEVICES, or disable the IOMMU/ACS that blocks PCIe peers',
    );
  const linked = gpus.every(({ links }) => (links?.active ?? 0) > 0);
  const atomics = gpus.every(({ peers }) => peers.every((peer) => peer.atomics));
  const way = linked
    ? 'over NVLink'
    : atomics
      ? 'with atomics (NVLink, by the look of it)'
      : 'over PCIe (slow)';
  return access.found(`all ${gpus.length} GPUs reach each other ${way}`);
}

async function examineCompiler(): Promise<DoctorFinding> {
  const compiler = about('CUDA compiler', 'compiling kernels for this machine’s GPUs');
  const { HEDDLE_COMPILER: asked = 'auto' } = process.env;
  const nvrtc = probe(nvrtcCandidates());
  // A library that is there and takes its process down must not be opened here.
  if (asked !== 'nvcc' && !nvrtc.ok && compiler.absent(nvrtc, '').state === 'broken')
    return compiler.broken(
      `NVRTC: ${nvrtc.reason}`,
      'Remove it from LD_LIBRARY_PATH, or set HEDDLE_COMPILER=nvcc',
    );
  try {
    const { kind, version, path } = await findCompiler();
    return compiler.found(`${kind === 'nvrtc' ? 'NVRTC' : 'nvcc'} ${version} (${path})`);
  } catch (error) {
    if (asked !== 'auto') return compiler.broken(error, `Set HEDDLE_COMPILER otherwise. ${compilerRemedy}`);
    return compiler.missing(messageOf(error), compilerRemedy);
  }
}

const trialKernel = kernel(
  { name: 'heddle_trial', params: { out: pointer('u32') }, maxThreads: 32 },
  (g, { out }) => {
    g.store(out, 42);
  },
);

async function trial(): Promise<string> {
  const start = performance.now();
  await within(trialLimit, runTrial(), () => new Error(`nothing came back within ${trialLimit / 1000} s`));
  return `compiled, loaded and ran on GPU 0 in ${Math.round(performance.now() - start)} ms`;
}

const runTrial = (): Promise<void> =>
  onFirstGpu(async (device) => {
    const program = await device.load(trialKernel.ir());
    const stream = device.createStream();
    const memory = device.allocate(4, 'the trial’s result');
    const launcher = program.launcher({ grid: 1, block: 1, rank: 0 });
    launcher.set('out', memory.address);
    launcher.launch(stream);
    const [answer] = await stream.copyOut(memory.address, 4);
    if (answer !== 42) throw new Error(`the kernel wrote ${answer} instead of 42`);
  });

async function onFirstGpu<T>(work: (device: CudaDevice) => T | Promise<T>): Promise<T> {
  const device = CudaDevice.open(0);
  try {
    return await work(device);
  } finally {
    await device.dispose();
  }
}

function windowFinding(gpus: readonly GpuReport[]): DoctorFinding {
  const windows = about('Windows between processes', 'one process a GPU (`heddle run`, torchrun, Slurm)');
  if (gpus.length === 0) return windows.missing('no GPUs', 'Use a machine with NVIDIA GPUs');
  const descriptors = gpus.every(({ virtualMemory, posixHandles }) => virtualMemory && posixHandles);
  if (!descriptors)
    return windows.found('CUDA IPC, because the GPUs’ driver has no shareable virtual memory');
  return allowsTakingDescriptors()
    ? windows.found('virtual memory, shared by file descriptors')
    : windows.found(
        'CUDA IPC, because this container forbids pidfd_getfd',
        'docker run --cap-add SYS_PTRACE gives the better kind',
      );
}

const tryFabric = (): Promise<FabricProbe> =>
  onFirstGpu((device) => device.probeFabric()).catch((error: unknown) => ({
    ...{ result: -1, detail: messageOf(error) },
  }));

/** The result of trying fabric handles on the first GPU; null where there is no GPU. */
export function fabricFinding(probe: FabricProbe | null): DoctorFinding {
  const windows = about(
    'Windows between machines',
    'windows over an NVLink domain of several hosts; inside one machine nothing needs it',
  );
  return probe?.result === 0
    ? windows.found(`${probe.detail} on GPU 0`)
    : windows.missing(probe === null ? 'no GPUs' : probe.detail, fabricRemedy);
}
