/**
 * The depths of rxm's queues. rxm asks a verbs device for one completion queue with room for all that may be under way: for each peer
 * of FI_UNIVERSE_SIZE as many entries as the two queues of its connection have. A device whose completion queues are shorter
 * (`max_cqe`) refuses, so they are cut until the peers fit. libfabric reads its variables once, when it is first called.
 */
import { requireInteger } from '../../../base/errors.js';
import { setEnvironment } from '../../../base/native/index.js';
import { systemName } from './nics.js';
import { visitDevices } from './verbs.js';

const peersVariable = 'FI_UNIVERSE_SIZE';
const depthVariables = ['FI_OFI_RXM_MSG_TX_SIZE', 'FI_OFI_RXM_MSG_RX_SIZE'] as const;
/** The peers for which libfabric makes room by itself. */
const usualPeers = 1024;
/** rxm's own depth but for receiving over tcp, where it would take 4096 times 16 KiB for each endpoint. */
const usualDepth = 128;

let expected = 256;

/** Tells how many peers an engine of this process will have, 256 by default. Of no effect once libfabric was called. */
export function expectPeers(peers: number): void {
  expected = requireInteger('peers', peers, 1, usualPeers);
}

/** Sets the variables that nobody has set. To be called before libfabric is. */
export function fitQueues(): void {
  const peers = Number(process.env[peersVariable] ?? expected);
  const room = Math.min(...longestQueues().values());
  let depth = usualDepth;
  while (depth > 1 && 2 * depth * peers > room) depth /= 2;
  for (const name of depthVariables) setEnvironment(name, String(depth), false);
  const fitting = Math.floor(room / (2 * depth));
  if (fitting < usualPeers) setEnvironment(peersVariable, String(fitting), false);
}

/** Why a device refuses an endpoint, if its completion queues are too short: the limit, and what to set. */
export function shortage(device: string): string {
  const room = longestQueues().get(systemName(device)) ?? Number.POSITIVE_INFINITY;
  const peers = Number(process.env[peersVariable] ?? usualPeers);
  const each = depthVariables.reduce((sum, name) => sum + Number(process.env[name]), 0);
  if (!(peers * each > room)) return '';
  return (
    `: rxm asks ${device} for a completion queue of ${peers * each} entries, ${each} for each of ${peers} peers, ` +
    `and it has at most ${room} (max_cqe); set ${peersVariable} to ${Math.floor(room / each)} or less`
  );
}

// Where struct ibv_device_attr keeps max_cqe, and the bytes of the whole in any version.
const maxCqe = 132;
const attributeBytes = 1024;

/** The most entries of a completion queue, by the name of each verbs device. */
function longestQueues(): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  const attributes = new Int32Array(attributeBytes / 4);
  visitDevices((verbs, device, name) => {
    const context = verbs.ibv_open_device(device);
    if (context === 0) return;
    const asked = verbs.ibv_query_device(context, attributes);
    if (asked === 0) found.set(name, attributes[maxCqe / 4]!);
    verbs.ibv_close_device(context);
  });
  return found;
}
