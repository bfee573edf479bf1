import { spawnSync } from 'node:child_process';

/** Several hosts on one machine: network namespaces with an address each, on a switch in one more namespace. */
export interface Hosts {
  /** What to run a process of host `i` under. */
  under(host: number): readonly string[];
  /** Where the others reach a host: its device is `net0`. */
  address(host: number): string;
  /** Silently drops everything from and to a host, as a pulled cable does: at once, or by a command that a process runs. */
  cutOff(host: number): void;
  cutCommand(host: number): readonly string[];
  /** Plugs it in again. */
  mend(host: number): void;
  remove(): void;
}

/** Why namespaces cannot be made here; null where they can. */
export function whyNoHosts(): string | null {
  if (process.getuid?.() !== 0) return 'making network namespaces needs root';
  const name = `heddle-try-${process.pid}`;
  const made = spawnSync('ip', ['netns', 'add', name]);
  if (made.error) return 'the ip command is missing (Debian: apt-get install iproute2)';
  if (made.status !== 0) return `ip netns add: ${made.stderr.toString().trim()}`;
  const pair = spawnSync('ip', ['-n', name, 'link', 'add', 'port0', 'type', 'veth', 'peer', 'name', 'port1']);
  const bridge = spawnSync('ip', ['-n', name, 'link', 'add', 'switch', 'type', 'bridge']);
  spawnSync('ip', ['netns', 'del', name]);
  return pair.status === 0 && bridge.status === 0 ? null : 'this kernel has no veth pairs or bridges for us';
}

let networks = 0;

export function createHosts(count: number): Hosts {
  const prefix = `heddle-${process.pid}-${networks++}`;
  const hub = `${prefix}-hub`;
  const made: string[] = [];
  const ip = (...args: string[]) => {
    const { status, stderr } = spawnSync('ip', args, { encoding: 'utf8' });
    if (status !== 0) throw new Error(`ip ${args.join(' ')}: ${stderr.trim()}`);
  };
  const namespace = (name: string) => {
    ip('netns', 'add', name);
    made.push(name);
    ip('-n', name, 'link', 'set', 'lo', 'up');
  };
  const port = (host: number, state: 'up' | 'down') => ['-n', hub, 'link', 'set', `port${host}`, state];
  const hosts: Hosts = {
    under: (host) => ['ip', 'netns', 'exec', `${prefix}-${host}`],
    address: (host) => `10.77.0.${host + 1}`,
    cutOff: (host) => ip(...port(host, 'down')),
    cutCommand: (host) => ['ip', ...port(host, 'down')],
    mend: (host) => ip(...port(host, 'up')),
    remove() {
      for (const name of made.splice(0)) spawnSync('ip', ['netns', 'del', name]);
    },
  };
  try {
    namespace(hub);
    ip('-n', hub, 'link', 'add', 'switch', 'type', 'bridge');
    ip('-n', hub, 'link', 'set', 'switch', 'up');
    for (let host = 0; host < count; host++) {
      const name = `${prefix}-${host}`;
      namespace(name);
      ip('-n', hub, 'link', 'add', `port${host}`, 'type', 'veth', 'peer', 'name', 'net0', 'netns', name);
      ip('-n', hub, 'link', 'set', `port${host}`, 'master', 'switch');
      ip('-n', hub, 'link', 'set', `port${host}`, 'up');
      ip('-n', name, 'address', 'add', `${hosts.address(host)}/24`, 'dev', 'net0');
      ip('-n', name, 'link', 'set', 'net0', 'up');
    }
    return hosts;
  } catch (error) {
    hosts.remove();
    throw error;
  }
}
