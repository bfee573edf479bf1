/** What callers hand over as a device or a stream is looked at where it enters, not where it is first used. */
import { requireFunction, requireObject } from '../errors/index.js';
import type { Device, Stream } from './device.js';

/** Requires something that can be a device: `world.device`. */
export function requireDevice(argument: string, value: Device): void {
  requireObject(argument, value, 'a device: world.device');
  requireFunction(`${argument}.allocate`, value.allocate, 'the method of a device');
}

/** Requires something that can be a stream. Whether it is one of this device, the device itself says. */
export function requireStream(argument: string, value: Stream): void {
  requireObject(argument, value, 'a stream: device.createStream()');
  for (const method of ['copyIn', 'copyOut'] as const) {
    requireFunction(`${argument}.${method}`, value[method], 'the method of a stream');
  }
}
