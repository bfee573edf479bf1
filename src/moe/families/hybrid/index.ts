export { hybrid } from './family.js';
export type { HybridTuning } from './knobs.js';
export { hybridProxyModule, type ProxyData } from './proxy.js';
