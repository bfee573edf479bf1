import { testFaults } from './suite.js';

testFaults('udp;ofi_rxd');
