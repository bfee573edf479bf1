/** Opens libfabric for as many peers as the argument says, and prints what it finds in its environment. */
import { functionOfC, readString } from '../../../src/base/native/index.js';
import { expectPeers, libfabricVersion } from '../../../src/net/fabric/index.js';
import { shortage } from '../../../src/net/fabric/libfabric/queues.js';

const getenv = functionOfC('getenv', ['address', 'string']);
if (process.argv[2]) expectPeers(Number(process.argv[2]));
libfabricVersion();
const found = ['FI_UNIVERSE_SIZE', 'FI_OFI_RXM_MSG_TX_SIZE', 'FI_OFI_RXM_MSG_RX_SIZE'].map((name) =>
  readString(getenv(name)),
);
console.log(`${found.join(' ')}${shortage('rxe0')}`);
