/** NVML, the library behind nvidia-smi: which NVLinks a GPU has and where they lead, its clock and its energy. */
import { type Address, type NativeFunction, openLibrary } from '../../base/native/index.js';
import { createOut } from './driver.js';

export const nvmlCandidates = ['libnvidia-ml.so.1'] as const;

export interface Links {
  /** Links that are up, and the NVLink version that they speak ('4.0' on Hopper). */
  readonly active: number;
  readonly version: string | null;
  /** Links that lead to a switch, and those to each GPU by its PCI bus id. */
  readonly toSwitch: number;
  readonly toGpus: Readonly<Record<string, number>>;
}

const mostLinks = 18;
/** The versions of NVLink by the number that NVML gives them. */
const versions = [null, '1.0', '2.0', '2.2', '3.0', '3.1', '4.0', '5.0'] as const;
const clockOfMultiprocessors = 1;
const remoteIsGpu = 0;
const remoteIsSwitch = 2;
// nvmlPciInfo_t: a legacy id of 16 bytes, five words, then the bus id as text.
const pciInfoBytes = 68;
const busIdAt = 36;

/** Device, link, result. */
const perLink = ['i32', 'address', 'u32', 'address'] as const;
type PerLink = NativeFunction<typeof perLink>;

/** Opens NVML, which must have been probed before; null where it does not come up. */
export function openNvml() {
  const library = openLibrary(nvmlCandidates, 'It comes with the NVIDIA driver');
  const nvml = library.functions({
    nvmlInit_v2: ['i32'],
    nvmlShutdown: ['i32'],
    nvmlSystemGetDriverVersion: ['i32', 'address', 'u32'],
    nvmlDeviceGetHandleByPciBusId_v2: ['i32', 'string', 'address'],
  });
  const {
    nvmlDeviceGetTotalEnergyConsumption: energy,
    nvmlDeviceGetClockInfo: clock,
    nvmlDeviceGetNvLinkState: state,
    nvmlDeviceGetNvLinkVersion: version,
    nvmlDeviceGetNvLinkRemoteDeviceType: remoteType,
    nvmlDeviceGetNvLinkRemotePciInfo_v2: remoteInfo,
  } = library.optional({
    nvmlDeviceGetTotalEnergyConsumption: ['i32', 'address', 'address'],
    nvmlDeviceGetClockInfo: ['i32', 'address', 'u32', 'address'],
    nvmlDeviceGetNvLinkState: perLink,
    nvmlDeviceGetNvLinkVersion: perLink,
    nvmlDeviceGetNvLinkRemoteDeviceType: perLink,
    nvmlDeviceGetNvLinkRemotePciInfo_v2: perLink,
  });
  if (nvml.nvmlInit_v2() !== 0) return null;

  const out = createOut(256);
  const text = (at: number) => {
    const end = out.bytes.indexOf(0, at);
    return Buffer.from(out.bytes.subarray(at, end)).toString('utf8');
  };
  const ask = (call: PerLink | null, device: Address, link: number) =>
    call !== null && call(device, link, out.address) === 0 ? out.i32[0]! : null;
  return {
    /** The driver's own version: 580.65.06. */
    driverVersion: nvml.nvmlSystemGetDriverVersion(out.address, 80) === 0 ? text(0) : 'unknown',
    links(pciBusId: string): Links {
      const toGpus: Record<string, number> = {};
      let active = 0;
      let toSwitch = 0;
      let linkVersion: string | null = null;
      if (nvml.nvmlDeviceGetHandleByPciBusId_v2(pciBusId, out.address) !== 0)
        return { active, version: linkVersion, toSwitch, toGpus };
      const device = out.number();
      for (let link = 0; link < mostLinks; link++) {
        if (ask(state, device, link) !== 1) continue;
        active++;
        linkVersion ??= versions[ask(version, device, link) ?? 0] ?? null;
        const type = ask(remoteType, device, link);
        if (type === remoteIsSwitch) toSwitch++;
        if (type !== remoteIsGpu || remoteInfo === null) continue;
        out.bytes.fill(0, 0, pciInfoBytes);
        if (remoteInfo(device, link, out.address) !== 0) continue;
        const peer = normalBusId(text(busIdAt));
        toGpus[peer] = (toGpus[peer] ?? 0) + 1;
      }
      return { active, version: linkVersion, toSwitch, toGpus };
    },
    /** What a GPU has consumed since its driver was loaded, and the clock of its multiprocessors now; null where it tells neither. */
    meter(pciBusId: string) {
      if (nvml.nvmlDeviceGetHandleByPciBusId_v2(pciBusId, out.address) !== 0) return null;
      const device = out.number();
      const joules = () => (energy?.(device, out.address) === 0 ? out.number() / 1000 : null);
      const megahertz = () =>
        clock?.(device, clockOfMultiprocessors, out.address) === 0 ? out.i32[0]! : null;
      return joules() === null || megahertz() === null
        ? null
        : { joules: () => joules()!, megahertz: () => megahertz()! };
    },
    close: () => {
      nvml.nvmlShutdown();
    },
  };
}

/** NVML writes the PCI domain with eight digits, the driver with four. */
export function normalBusId(id: string): string {
  return id.toLowerCase().replace(/^0000(?=[0-9a-f]{4}:)/, '');
}
