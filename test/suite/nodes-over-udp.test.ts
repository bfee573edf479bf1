import { testNodesOver } from './nodes-over.js';

testNodesOver('udp;ofi_rxd', 2, 4);
