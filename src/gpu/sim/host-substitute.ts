/** How mutants come into what threads of hosts do. */
import type { HostView, Network } from '../index.js';
import type { SimHostView } from './mapped.js';
import type { Nic } from './network.js';

/** A network whose writes may need a flush once they were heard of. */
export interface FlushedNetwork extends Network {
  flush(): void;
}

/** The stand-ins of a host's way to mapped memory, and of its way into the network. */
export interface HostSubstitute {
  memory(own: SimHostView): HostView;
  network(own: Nic): FlushedNetwork;
}

export const asTheyAre: HostSubstitute = { memory: (own) => own, network: (own) => own };
