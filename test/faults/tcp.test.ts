import { testFaults } from './suite.js';

testFaults('tcp;ofi_rxm');
