/** What no family can carry whose ranks are one node. */
import { ArgumentError, type HeddleError, UnavailableError } from '../../errors/index.js';
import type { Layer } from '../../layer/index.js';
import type { Topology } from '../../world/index.js';
import { rowsOf } from './received.js';
import { unitBytes, widestUnit } from './units.js';

/** Why ranks of one node cannot carry the layer; null where they can. `elements`: of a token, in sections of the family's own. */
export function refusesOnNode(layer: Layer, topology: Topology, elements = 0): HeddleError | null {
  if (topology.nodes > 1) return severalNodes(topology);
  const { ranks, maxTokens, output } = layer;
  if (output.wire === 'e4m3' && output.hidden % 16 !== 0) {
    const possible = "a multiple of 16 for wire 'e4m3'; wire 'rows' takes any length";
    return new ArgumentError('output.length', output.hidden, possible);
  }
  const reached = Math.floor(2 ** 32 / Math.max(mostElements(layer), elements) / ranks);
  if (maxTokens > reached)
    return new ArgumentError('maxTokens', maxTokens, `at most ${reached} with such rows on ${ranks} ranks`);
  return null;
}

function severalNodes({ nodes, members, node, apart }: Topology): HeddleError {
  return new UnavailableError(
    `dispatch and combine need all ranks in one node, but this world has ${nodes}; this rank's is ranks ` +
      `${members[node]!.join(', ')}${apart === null ? '' : ` (${apart})`}`,
    'Start ranks on GPUs that share NVLink: `heddle doctor` prints which do',
  );
}

/** The most elements a token has in any section that users see: kernels count a section's elements in 32 bits. */
function mostElements({ payloads, output, topK }: Layer): number {
  const { units } = rowsOf({ output }, output.dtype);
  const sent = payloads.map(({ rowBytes }) => rowBytes / unitBytes[widestUnit(rowBytes)]);
  return Math.max(...sent, units * (output.weighting === 'combine' ? topK : 1), topK);
}
