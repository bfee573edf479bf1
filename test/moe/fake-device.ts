import type { Device, Stream } from '../../src/gpu/index.js';

/** Just enough of a device to test tensors: memory that is filled and read in order. Freed addresses are listed. */
export function fakeDevice(): { device: Device; stream: Stream; freed: number[]; purposes: string[] } {
  const memory = new Uint8Array(4096).fill(0xee);
  const freed: number[] = [];
  const purposes: string[] = [];
  let next = 256;
  const device = {
    allocate(bytes: number, purpose: string) {
      const address = next;
      next += Math.ceil(bytes / 256) * 256;
      purposes.push(purpose);
      return { address, bytes, free: () => freed.push(address) };
    },
  };
  const stream = {
    copyIn: (to: number, bytes: Uint8Array) => memory.set(bytes, to),
    copyOut: async (from: number, bytes: number) => memory.slice(from, from + bytes),
    synchronize: async () => {},
  };
  return { device: device as unknown as Device, stream: stream as unknown as Stream, freed, purposes };
}
