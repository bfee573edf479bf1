/** Network interfaces, as Linux lists them. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Nic {
  readonly name: string;
  /** `rdma`: an InfiniBand, RoCE or EFA device, which a fabric writes with; `net`: an ordinary interface. */
  readonly kind: 'rdma' | 'net';
  readonly up: boolean;
  /** 'InfiniBand 400 Gb/sec (4X NDR)', '25000 Mb/s' */
  readonly detail: string;
}

/** @param root `/sys/class`; tests have their own. */
export function listNics(root = '/sys/class'): readonly Nic[] {
  return [...rdmaDevices(join(root, 'infiniband')), ...netDevices(join(root, 'net'))];
}

function rdmaDevices(folder: string): readonly Nic[] {
  return names(folder).flatMap((device) =>
    names(join(folder, device, 'ports')).map((port): Nic => {
      const at = join(folder, device, 'ports', port);
      // '4: ACTIVE'
      const up = /ACTIVE/.test(text(at, 'state'));
      const detail = [text(at, 'link_layer'), text(at, 'rate')].filter(Boolean).join(' ');
      return { name: port === '1' ? device : `${device}:${port}`, kind: 'rdma', up, detail };
    }),
  );
}

/** Interfaces with hardware behind them; bridges, loopback and the like have no `device`. */
function netDevices(folder: string): readonly Nic[] {
  return names(folder)
    .filter((name) => names(join(folder, name, 'device')).length > 0)
    .map((name) => {
      const speed = Number(text(join(folder, name), 'speed'));
      const detail = speed > 0 ? `${speed} Mb/s` : '';
      return { name, kind: 'net', up: text(join(folder, name), 'operstate') === 'up', detail };
    });
}

function names(folder: string): readonly string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

function text(folder: string, name: string): string {
  try {
    return readFileSync(join(folder, name), 'utf8').trim();
  } catch {
    // A port that is down has no speed to read.
    return '';
  }
}
