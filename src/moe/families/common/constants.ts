/** What kernels of every family ask a layer, by the names by which they ask. */
import { type Layer, sharing } from '../../layer/index.js';

export function layerConstants(layer: Layer) {
  const { replicas, turns } = sharing(layer);
  return {
    RANKS: layer.ranks,
    REPLICAS: replicas,
    TURNS: turns,
    MAX_TOKENS: layer.maxTokens,
    /** Routes of a token. */
    K: layer.topK,
    PAYLOADS: layer.payloads.length,
    WEIGHTS: layer.weights,
    COUNTS: layer.counts,
    MASKS: layer.masks === true,
    PLACED: layer.placed !== undefined,
  };
}
