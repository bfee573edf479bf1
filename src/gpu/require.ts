/** A device or stream of a caller is checked where it enters, not where it is first used. */
import {
  ArgumentError,
  HeddleError,
  requireArray,
  requireFunction,
  requireInteger,
  requireObject,
  requireOneOf,
  requireThat,
} from '../base/errors.js';
import type { Device, Fill, Stream, Window, WireShape } from './device.js';

/** Where simulated GPUs run in a browser, no module of Node.js can tell. */
const isProxy: (value: object) => boolean =
  globalThis.process?.getBuiltinModule?.('node:util').types.isProxy ?? (() => false);

/** A Proxy has nothing of what devices and streams keep for themselves: its methods would fail in the midst of their work. */
function refuseProxy(argument: string, value: object, instead: string): void {
  if (isProxy(value)) throw new ArgumentError(argument, 'a Proxy', `what it stands for: ${instead}`);
}

/** Requires something that can be a device: `world.device`. */
export function requireDevice(argument: string, value: Device): void {
  requireObject(argument, value, 'a device: world.device');
  refuseProxy(argument, value, 'world.device itself');
  requireFunction(`${argument}.allocate`, value.allocate, 'the method of a device');
}

/** Requires something that can be a stream. Whether it is one of this device, the device itself says. */
export function requireStream(argument: string, value: Stream): void {
  requireObject(argument, value, 'a stream: device.createStream()');
  refuseProxy(argument, value, 'the stream that device.createStream() gave');
  for (const method of ['copyIn', 'copyOut', 'synchronize'] as const) {
    requireFunction(`${argument}.${method}`, value[method], 'the method of a stream');
  }
}

const integers = { i32: [-(2 ** 31), 2 ** 31 - 1], u32: [0, 2 ** 32 - 1], bool: [0, 1] } as const;

/** The value of a kernel's parameter of that type: the same on every device. */
export function requireScalar(argument: string, type: 'u64', value: number | bigint): number | bigint;
export function requireScalar(
  argument: string,
  type: 'f32' | keyof typeof integers,
  value: number | bigint,
): number;
export function requireScalar(
  argument: string,
  type: 'u64' | 'f32' | keyof typeof integers,
  value: number | bigint,
): number | bigint {
  if (type === 'f32') {
    requireThat(typeof value === 'number', argument, value, 'a number');
    return value;
  }
  if (type !== 'u64') {
    const [min, max] = integers[type];
    return requireInteger(argument, value, min, max);
  }
  if (typeof value !== 'bigint') return requireInteger(argument, value, 0, Number.MAX_SAFE_INTEGER);
  requireThat(value >= 0n && value < 2n ** 64n, argument, value, 'an integer from 0 to 2^64 - 1');
  return value;
}

/** Requires a window whose addresses a parameter can have: of so many ranks as its kernel has room for. */
export function requireWindow(argument: string, window: Window, most: number): void {
  requireObject(argument, window, 'a window');
  requireArray(`${argument}.bases`, window.bases, 'an array of addresses');
  requireThat(window.bases.length <= most, argument, window.bases, `a window of at most ${most} ranks`);
  for (let rank = 0; rank < window.bases.length; rank++)
    requireInteger(`${argument}.bases[${rank}]`, window.bases[rank], 0, Number.MAX_SAFE_INTEGER);
}

export const requireRank = (rank: number): number => requireInteger('rank', rank, 0, 2 ** 16);

export function requireFills(fills: readonly Fill[], windowBytes: number): void {
  requireArray('fills', fills);
  for (let i = 0; i < fills.length; i++) {
    requireObject(`fills[${i}]`, fills[i]);
    const { offset, bytes, value } = fills[i]!;
    requireInteger(`fills[${i}].offset`, offset, 0, windowBytes);
    requireInteger(`fills[${i}].bytes`, bytes, 0, windowBytes - offset);
    requireInteger(`fills[${i}].value`, value, 0, 255);
  }
}

export function requireWire(shape: WireShape, mostBytes: number): void {
  requireObject('shape', shape);
  const { bytes, front, side } = shape;
  requireInteger('shape.bytes', bytes, 1, mostBytes);
  requireInteger('shape.front', front, 0, bytes - 1);
  requireThat(front % 16 === 0, 'shape.front', front, 'a multiple of 16');
  requireOneOf('shape.side', side, ['host', 'gpu']);
}

/** Requires that a window fits the addresses of another, whose place it takes. */
export function requireSameSize(whose: string, bytes: number, room: number): void {
  if (bytes === room) return;
  throw new HeddleError(
    'HEDDLE_OTHER_WINDOW',
    `${whose} has ${bytes} bytes, but the window whose place it takes has ${room}; a process that comes back needs the layers of the others, and a GPU of the same kind`,
  );
}
