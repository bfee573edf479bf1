/** How much of a device's memory is allocated. */
import { vi } from 'vitest';
import type { Device } from '../../src/gpu/index.js';

/** Pieces that are allocated from now on and not freed, windows among them. */
export function liveMemory(device: Device): () => number {
  let live = 0;
  const counted = <M extends { free(): void }>(memory: M): M => {
    const free = memory.free.bind(memory);
    live++;
    return Object.assign(memory, {
      free: () => {
        live--;
        free();
      },
    });
  };
  const [allocate, allocateWindow] = [device.allocate.bind(device), device.allocateWindow.bind(device)];
  vi.spyOn(device, 'allocate').mockImplementation((...of) => counted(allocate(...of)));
  vi.spyOn(device, 'allocateWindow').mockImplementation((...of) => counted(allocateWindow(...of)));
  return () => live;
}

/** Makes a device refuse memory for a purpose; what is returned ends that. */
export function withoutRoom(device: Device, missing: string): () => void {
  const { allocate } = device;
  device.allocate = (bytes, purpose) => {
    if (purpose === missing) throw new Error('no room');
    return allocate.call(device, bytes, purpose);
  };
  return () => {
    device.allocate = allocate;
  };
}
