import { isIP } from 'node:net';
import { ArgumentError, requireText } from '../../base/errors.js';

export interface Address {
  readonly host: string;
  readonly port: number;
}

const addressForm = "'host:port', such as 127.0.0.1:29000 or [::1]:29000";

/** Reads 'host:port', with an IPv6 host in brackets. `argument` is what an error blames. */
export function parseAddress(argument: string, value: string): Address {
  const [, six, name, digits] =
    /^(?:\[([^\]]+)\]|([^:\s]+)):(\d{1,5})$/.exec(requireText(argument, value, addressForm)) ?? [];
  const host = six ?? name;
  const port = Number(digits);
  if (host === undefined || port < 1 || port > 65535 || (six !== undefined && isIP(six) !== 6)) {
    throw new ArgumentError(argument, value, addressForm);
  }
  return { host, port };
}

export function formatAddress({ host, port }: Address): string {
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
}

/**
 * Whether only this machine can reach the address. Other names are not resolved: what a name means may
 * change, and differ between machines.
 */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
