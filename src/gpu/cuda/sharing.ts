/**
 * The ways by which one process comes to the window of another, and which of them to take. Within a process a GPU is
 * granted access to the owner's mapping; on one machine a file descriptor is duplicated; beyond it memory travels by
 * fabric handle, where the hosts' GPUs share an NVLink domain. CUDA IPC is for machines without shareable virtual memory.
 */
import { UnavailableError } from '../../base/errors.js';
import { getOrMake } from '../../base/maps.js';
import { type Context, check, failure } from './driver.js';
import type { Gpu } from './gpu.js';
import type { WindowHandle } from './handle.js';
import { onGpu, writeProperties } from './virtual.js';

// CUmemAllocationHandleType: a set of these is what memory can be shared by.
export const posixDescriptor = 1;
export const fabricHandle = 8;
export const fabricHandleBytes = 64;

const CUDA_ERROR_NOT_PERMITTED = 800;
const CUDA_ERROR_NOT_SUPPORTED = 801;

/** Whether a GPU's memory can be handed to processes of other hosts. */
export interface FabricProbe {
  /** The driver's answer: 0 where it can. */
  readonly result: number;
  /** For people: what was found, or what was refused and why. */
  readonly detail: string;
}

export const fabricRemedy =
  'GPUs of one NVLink domain over several hosts (GB200 NVL72 and the like), the IMEX service on each host ' +
  '(`systemctl start nvidia-imex`), and the same /dev/nvidia-caps-imex-channels/channel0 for all ranks';

const probes = new Map<number, FabricProbe>();

/** Tries it once: makes a piece of memory, exports and imports it. The device attribute is no proof. */
export const probeFabric = (context: Context, gpu: Gpu): FabricProbe =>
  getOrMake(probes, gpu.ordinal, () => tryFabric(context, gpu));

function tryFabric(context: Context, gpu: Gpu): FabricProbe {
  if (!gpu.virtualMemory || !gpu.fabricHandles) {
    return { result: CUDA_ERROR_NOT_SUPPORTED, detail: 'the GPU or its driver has no fabric handles' };
  }
  const d = context.driver;
  const { out } = d;
  const result = out.address + 32;
  // As windows ask for it.
  const handleTypes = fabricHandle | (gpu.posixHandles ? posixDescriptor : 0);
  context.use();
  const write = () => writeProperties(context, onGpu(gpu), { rdma: gpu.rdmaMemory, handleTypes });
  write();
  const asked = d.cuMemGetAllocationGranularity(result, out.address, 1);
  if (asked !== 0) return refusal('cuMemGetAllocationGranularity', asked);
  const bytes = out.number(4);
  write();
  const created = d.cuMemCreate(result, bytes, out.address, 0);
  if (created !== 0) return refusal('cuMemCreate', created);
  const memory = out.u64[4]!;
  try {
    const exported = d.cuMemExportToShareableHandle(out.address + 64, memory, fabricHandle, 0);
    if (exported !== 0) return refusal('cuMemExportToShareableHandle', exported);
    const imported = d.cuMemImportFromShareableHandle(result, out.address + 64, fabricHandle);
    if (imported !== 0) return refusal('cuMemImportFromShareableHandle', imported);
    check(d.cuMemRelease(out.u64[4]!), 'cuMemRelease');
    return { result: 0, detail: 'fabric handles, made and imported' };
  } finally {
    d.cuMemRelease(memory);
  }
}

function refusal(call: string, result: number): FabricProbe {
  return { result, detail: `${call} refuses fabric handles with ${explain(result)}` };
}

/** The meaning of a driver's refusal of a fabric handle. */
export function explain(result: number): string {
  const meaning =
    result === CUDA_ERROR_NOT_PERMITTED
      ? ': no IMEX channel that this process may use'
      : result === CUDA_ERROR_NOT_SUPPORTED
        ? ': no NVLink domain over several hosts'
        : '';
  return `${failure('', result, '').resultName} (${result})${meaning}`;
}

/** Data that tells a process from every other. */
export type ProcessId = Pick<WindowHandle, 'pid' | 'started' | 'bootId' | 'pidNamespace'>;

/**
 * How process `here` comes to the window that a handle names.
 * @throws UnavailableError where there is no way.
 */
export function wayTo(
  handle: WindowHandle,
  here: ProcessId,
  whose: string,
): 'here' | 'descriptor' | 'ipc' | 'fabric' {
  const sameMachine = handle.bootId === here.bootId;
  // Process ids can be compared only within one machine and one PID namespace.
  const visible = sameMachine && handle.pidNamespace === here.pidNamespace;
  if (visible && handle.pid === here.pid && handle.started === here.started) return 'here';
  if (sameMachine && handle.kind === 'ipc') return 'ipc';
  if (visible && handle.fd >= 0) return 'descriptor';
  if (handle.kind === 'virtual' && handle.fabric === 0) return 'fabric';
  if (sameMachine) {
    throw new UnavailableError(
      `${whose} is in another container, whose processes this one does not see`,
      'Run the ranks of a machine in one container, or all with its process ids (docker run --pid host)',
    );
  }
  const why = handle.kind === 'ipc' ? 'CUDA IPC ends there' : explain(handle.fabric);
  throw new UnavailableError(
    `${whose} is on another machine and has no fabric handle (${why})`,
    `Windows across machines need ${fabricRemedy}; without them use a family that reaches beyond a node`,
  );
}
