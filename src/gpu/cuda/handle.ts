/**
 * The handle that a rank gives to the others so that they can map its window. It crosses processes, so it is read with
 * suspicion: a handle may be old, cut short or of another machine.
 */
import { ArgumentError, valueOr } from '../../base/errors.js';

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
const version = 3;
const kinds = ['virtual', 'ipc'] as const;
const opaqueBytes = 64;
const maxPurpose = 200;

/** Marked JSON: a handle is made once for each window, and any tool can show it. */
export function encodeHandle(handle: WindowHandle): Uint8Array {
  const purpose = handle.purpose.slice(0, maxPurpose);
  const [token, opaque] = [handle.token, handle.opaque].map((bytes) => Buffer.from(bytes).toString('hex'));
  return Buffer.from(`heddle-window-${version} ${JSON.stringify({ ...handle, purpose, token, opaque })}`);
}

export function decodeHandle(bytes: Uint8Array): WindowHandle {
  const reject = () => new ArgumentError('handle', bytes, "the bytes of another rank's window handle");
  const text = bytes instanceof Uint8Array ? Buffer.from(bytes).toString() : '';
  const [, theirs, json] = /^heddle-window-(\d+) (.*)$/s.exec(text) ?? [];
  if (json === undefined) throw reject();
  if (Number(theirs) !== version) {
    const mustBe = `version ${version}: run the same Heddle in all ranks`;
    throw new ArgumentError('handle', `version ${theirs}`, mustBe);
  }
  const fields: Partial<Record<keyof WindowHandle, unknown>> | null = valueOr(null, () => JSON.parse(json));
  const whole = (name: keyof WindowHandle, least: number): number => {
    const value = fields?.[name];
    if (!Number.isSafeInteger(value) || (value as number) < least) throw reject();
    return value as number;
  };
  const words = (name: keyof WindowHandle, form = /^/): string => {
    const value = fields?.[name];
    if (typeof value !== 'string' || !form.test(value)) throw reject();
    return value;
  };
  const raw = (name: 'token' | 'opaque', length: number): Uint8Array =>
    new Uint8Array(Buffer.from(words(name, new RegExp(`^[\\da-f]{${2 * length}}$`)), 'hex'));
  const kind = kinds.find((one) => one === fields?.kind);
  if (kind === undefined) throw reject();
  const handle: WindowHandle = {
    ...{ kind, uuid: words('uuid', /^[\da-f]{32}$/), bootId: words('bootId'), purpose: words('purpose') },
    ...{ pid: whole('pid', 0), started: whole('started', 0), pidNamespace: whole('pidNamespace', 0) },
    ...{ fd: whole('fd', -1), ordinal: whole('ordinal', 0), fabric: whole('fabric', 0) },
    ...{ address: whole('address', 1), bytes: whole('bytes', 1), mappedBytes: whole('mappedBytes', 1) },
    ...{ token: raw('token', tokenBytes), opaque: raw('opaque', opaqueBytes) },
  };
  if (handle.bytes + tokenBytes > handle.mappedBytes) throw reject();
  return handle;
}
