import { testNodesOver } from './nodes-over.js';

testNodesOver('tcp;ofi_rxm', 3, 2);
