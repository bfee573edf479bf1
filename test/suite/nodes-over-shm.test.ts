import { testNodesOver } from './nodes-over.js';

testNodesOver('shm', 2, 2);
