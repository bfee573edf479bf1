import { readFileSync } from 'node:fs';
import { ArgumentError, messageOf, requireText } from '../../../base/errors.js';
import { type Address, parseAddress } from '../address.js';

/** An etcd, as HEDDLE_RENDEZVOUS names it. */
export interface EtcdAddress {
  readonly endpoints: readonly Address[];
  /** Everything of Heddle lies below it. */
  readonly prefix: string;
  readonly user: { readonly name: string; readonly password: string } | undefined;
  /** Files in PEM, under the names that etcdctl gives them; undefined where etcd speaks without TLS. */
  readonly tls: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer } | undefined;
}

const form =
  "'etcd://host:port[,host:port]/prefix', with 'user:password@' before the first host where etcd asks who it is " +
  "('@', '/' and '%' in them as '%40', '%2F' and '%25'); " +
  "'etcds://' with TLS, where '?cacert=FILE&cert=FILE&key=FILE' may follow";
const pattern = /^(etcds?):\/\/(?:([^:@/]+):([^@/]*)@)?([^/?@]+)\/([^?@]+?)\/?(?:\?(.*))?$/;
const files = { cacert: 'ca', cert: 'cert', key: 'key' } as const;

/** Reads 'etcd://…'. `argument` is what an error blames. Nothing before the last '@' is shown: a password may be anywhere there. */
export function parseEtcdAddress(argument: string, value: string): EtcdAddress {
  const shown = requireText(argument, value, form).replace(/^.*@/s, '…@');
  const refuse = (mustBe = form): never => {
    throw new ArgumentError(argument, shown, mustBe);
  };
  const [, scheme, name, password, hosts, prefix, query] = pattern.exec(value) ?? [];
  if (scheme === undefined || hosts === undefined || prefix === undefined || (query && scheme === 'etcd'))
    return refuse();
  const tls: Record<string, Buffer> = {};
  for (const [option, path] of new URLSearchParams(query)) {
    if (!Object.hasOwn(files, option)) return refuse();
    try {
      tls[files[option as keyof typeof files]] = readFileSync(path);
    } catch (error) {
      return refuse(`a ${option} that can be read (${messageOf(error)})`);
    }
  }
  try {
    return {
      endpoints: hosts.split(',').map((host) => parseAddress(argument, host)),
      prefix,
      user:
        name === undefined
          ? undefined
          : { name: decodeURIComponent(name), password: decodeURIComponent(password!) },
      tls: scheme === 'etcds' ? tls : undefined,
    };
  } catch {
    return refuse();
  }
}
