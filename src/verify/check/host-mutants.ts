/**
 * Mutants of programs on the host, such as proxies: what one line does in mapped memory, or at the network, is done
 * otherwise. Their results are left to tests.
 */
import type { HostView, RemoteWrite } from '../../gpu/index.js';
import {
  type FlushedNetwork,
  type HostOperation,
  type HostSite,
  type HostSubstitute,
  hostLine,
  type Nic,
  type SimHostView,
} from '../../gpu/sim/index.js';
import type { Mutant } from './subject.js';

interface Operations {
  load(own: SimHostView, offset: number): number;
  store(own: SimHostView, offset: number, value: number): void;
  read(own: SimHostView, offset: number, into: Uint8Array): void;
  write(own: SimHostView, offset: number, from: Uint8Array): void;
  post(own: Nic, write: Readonly<RemoteWrite>): boolean;
  hear(own: Nic): number;
  flush(own: Nic): void;
}

/** The operation that is done instead, by description. */
const changes: { readonly [O in HostOperation]: Readonly<Record<string, Operations[O]>> } = {
  load: {
    'acquire → relaxed': (own, offset) => own.load(offset, 'relaxed'),
    'load + 1': (own, offset) => (own.load(offset) + 1) >>> 0,
    'load removed': () => 0,
  },
  store: {
    'release → relaxed': (own, offset, value) => own.store(offset, value, 'relaxed'),
    'store + 1': (own, offset, value) => own.store(offset, (value + 1) >>> 0),
    'store removed': () => {},
  },
  read: { 'read removed': () => {} },
  write: { 'write removed': () => {} },
  post: {
    'post removed': () => true,
    'posted twice': (own, write) => own.write(write) && own.write(write),
    'posted, room or not': (own, write) => own.write(write) || true, // a message that there is no room for is lost
    'another peer': (own, write) => own.write({ ...write, peer: write.peer + 1 }),
    'from + 16': (own, write) => own.write({ ...write, from: write.from + 16 }),
    'to + 16': (own, write) => own.write({ ...write, to: write.to + 16 }),
    'bytes − 16': (own, write) => own.write({ ...write, bytes: Math.max(0, write.bytes - 16) }),
    'tag + 1': (own, write) => own.write({ ...write, tag: write.tag + 1 }),
  },
  hear: {
    'tag orders nothing': (own) => own.arrived(false),
    'tag dropped': (own) => {
      own.arrived();
      return -1;
    },
  },
  flush: { 'flush removed': () => {} },
};

export const hostMutantsOf = (sites: readonly HostSite[]): Mutant[] =>
  sites.flatMap(({ kernel, where, text, operation }) =>
    Object.keys(changes[operation]).map((description) => {
      return { id: `${kernel} ${where} ${description}`, kernel, where, text, description };
    }),
  );

type Methods<Own> = Readonly<Partial<Record<keyof Own, HostOperation>>>;

export function mutateHosts({ where, description }: Mutant): HostSubstitute {
  /** Makes an object that does as `own`, but for the change to the line that called one of these methods. */
  const mutated = <Own extends object>(own: Own, methods: Methods<Own>): unknown =>
    Object.fromEntries(
      Object.entries(methods).map(([method, operation]) => {
        const call = (...args: readonly unknown[]): unknown => {
          const known: Readonly<Record<string, unknown>> = changes[operation as HostOperation];
          const instead = known[description] as Call | undefined;
          return instead !== undefined && hostLine(call).where === where
            ? instead(own, ...args)
            : (Reflect.get(own, method) as Call).apply(own, [...args]);
        };
        return [method, call];
      }),
    );
  return {
    memory: (own) => mutated(own, { load: 'load', store: 'store', read: 'read', write: 'write' }) as HostView,
    network: (own) => mutated(own, { write: 'post', arrived: 'hear', flush: 'flush' }) as FlushedNetwork,
  };
}

type Call = (...args: readonly unknown[]) => unknown;
