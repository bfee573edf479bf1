/**
 * The handle that a rank gives to the others so that they can map its window. It crosses processes, so it is read with
 * suspicion: a handle may be old, cut short or of another machine.
 */
import { ArgumentError } from '../../base/errors.js';

export interface WindowHandle {
  /** `virtual`: memory shared by file descriptor on its machine, by fabric handle beyond. `ipc`: older, by CUDA IPC. */
  readonly kind: 'virtual' | 'ipc';
  readonly pid: number;
  /** See `startTime`: tells a process from a later one with the same id. */
  readonly started: number;
  readonly bootId: string;
  /** The namespace in which `pid` means anything. */
  readonly pidNamespace: number;
  /** The descriptor's number in process `pid`; −1 where there is none. */
  readonly fd: number;
  /** The window's address in the owner's process, for ranks of that same process. */
  readonly address: number;
  /** The size that the user asked for, and the size that is mapped. */
  readonly bytes: number;
  readonly mappedBytes: number;
  readonly ordinal: number;
  readonly uuid: string;
  /** 16 random bytes that also stand at the end of the window's memory: whoever maps it can tell it is the one. */
  readonly token: Uint8Array;
  /** CUDA's 64 bytes: the IPC handle, or the fabric handle where there is one, else zeros. */
  readonly opaque: Uint8Array;
  /** 0 where virtual memory has a fabric handle, else the driver's result that says why not. */
  readonly fabric: number;
  /** For messages: 'receive window'. */
  readonly purpose: string;
}

export const tokenBytes = 16;
const magic = 0x4c44_4548; // 'HEDL'
const version = 2;
const kinds = ['virtual', 'ipc'] as const;
const fixedBytes = 232;
const maxPurpose = 200;

export function encodeHandle(handle: WindowHandle): Uint8Array {
  const purpose = Buffer.from(handle.purpose, 'utf8').subarray(0, maxPurpose);
  const bytes = new Uint8Array(fixedBytes + purpose.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, magic, true);
  view.setUint16(4, version, true);
  view.setUint16(6, kinds.indexOf(handle.kind), true);
  view.setUint32(8, handle.pid, true);
  view.setInt32(12, handle.fd, true);
  view.setFloat64(16, handle.started, true);
  view.setFloat64(24, handle.address, true);
  view.setFloat64(32, handle.bytes, true);
  view.setFloat64(40, handle.mappedBytes, true);
  view.setUint32(48, handle.ordinal, true);
  view.setUint32(52, purpose.length, true);
  bytes.set(Buffer.from(handle.uuid, 'hex'), 56);
  bytes.set(handle.token, 72);
  bytes.set(handle.opaque, 88);
  bytes.set(Buffer.from(handle.bootId, 'latin1').subarray(0, 64), 152);
  view.setUint32(216, handle.fabric, true);
  view.setFloat64(224, handle.pidNamespace, true);
  bytes.set(purpose, fixedBytes);
  return bytes;
}

export function decodeHandle(bytes: Uint8Array): WindowHandle {
  const reject = () => new ArgumentError('handle', bytes, "the bytes of another rank's window handle");
  if (!(bytes instanceof Uint8Array) || bytes.length < fixedBytes) throw reject();
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.getUint32(0, true) !== magic) throw reject();
  if (view.getUint16(4, true) !== version) {
    throw new ArgumentError(
      'handle',
      `version ${view.getUint16(4, true)}`,
      `version ${version}: run the same Heddle in all ranks`,
    );
  }
  const kind = kinds[view.getUint16(6, true)];
  const length = view.getUint32(52, true);
  if (kind === undefined || bytes.length !== fixedBytes + length) throw reject();
  const handle: WindowHandle = {
    kind,
    pid: view.getUint32(8, true),
    fd: view.getInt32(12, true),
    started: view.getFloat64(16, true),
    address: view.getFloat64(24, true),
    bytes: view.getFloat64(32, true),
    mappedBytes: view.getFloat64(40, true),
    ordinal: view.getUint32(48, true),
    uuid: Buffer.from(bytes.subarray(56, 72)).toString('hex'),
    token: bytes.slice(72, 88),
    opaque: bytes.slice(88, 152),
    fabric: view.getUint32(216, true),
    pidNamespace: view.getFloat64(224, true),
    bootId: Buffer.from(bytes.subarray(152, 216)).toString('latin1').replace(/\0+$/, ''),
    purpose: Buffer.from(bytes.subarray(fixedBytes)).toString('utf8'),
  };
  const sane =
    [handle.started, handle.pidNamespace].every((number) => Number.isSafeInteger(number) && number >= 0) &&
    [handle.address, handle.bytes, handle.mappedBytes].every(
      (number) => Number.isSafeInteger(number) && number > 0,
    ) &&
    handle.bytes + tokenBytes <= handle.mappedBytes;
  if (!sane) throw reject();
  return handle;
}
