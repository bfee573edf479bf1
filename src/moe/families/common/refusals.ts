/** Checks that all families share. */
import { ArgumentError, type HeddleError, UnavailableError } from '../../../base/errors.js';
import type { Topology } from '../../../gpu/index.js';
import { formatOf, type Layer, sharing } from '../../layer/index.js';
import type { PlanTarget } from '../family.js';
import { unitBytes, unitOf } from './parts.js';
import { rowsOf } from './received.js';

/** Why a family whose ranks map each other's windows cannot carry the layer; null where it can. */
export function refusesOnNode(layer: Layer, topology: Topology, elements = 0): HeddleError | null {
  return topology.nodes > 1 ? severalNodes(topology) : refusesRows(layer, elements);
}

/** Why kernels cannot reach all rows of the layer; null where they can. `elements`: as above. */
export function refusesRows(layer: Layer, elements = 0): HeddleError | null {
  const { ranks, maxTokens, output } = layer;
  const { multiple } = formatOf(output);
  if (output.hidden % multiple !== 0) {
    const possible = `a multiple of ${multiple} for combineFormat '${output.combineFormat}'; combineFormat 'rows' takes any length`;
    return new ArgumentError('output.length', output.hidden, possible);
  }
  const { replicas } = sharing(layer);
  const most = (2 ** 32 - 1) / Math.max(mostElements(layer), elements) / ranks;
  const reached = Math.floor(most / replicas) * replicas;
  if (maxTokens > reached)
    return new ArgumentError('maxTokens', maxTokens, `at most ${reached} with such rows on ${ranks} ranks`);
  return null;
}

/** Why rounds of the layer cannot leave ranks out; null where they can, or need not. */
export function refusesMasks(layer: Layer): HeddleError | null {
  if (!layer.masks || sharing(layer).replicas === 1) return null;
  const possible =
    "'throw' where ranks share tokens (replicas); `heddle run --restart` starts the world anew after a loss";
  return new ArgumentError('onLoss', 'mask', possible);
}

/** Why nothing but mapped windows carries rows of kernels that load and store peers' memory; null where they do. */
export function refusesTransport({ transport }: PlanTarget): HeddleError | null {
  if (transport === 'windows') return null;
  return new ArgumentError('transport', transport, "'windows', unless family is 'portable'");
}

/** Why launches cannot be held to so few multiprocessors; null where they can. `more`: blocks of combine beside those that do its work. */
export function refusesFew({ sms }: PlanTarget, tuning?: Blocks, more = 1): HeddleError | null {
  if (sms === null) return null;
  if (sms < 2)
    return new ArgumentError('sms', sms, 'at least 2: one block of combine lets slots be written again');
  if (tuning === undefined) return null;
  const { dispatch, combine } = tuning;
  if (dispatch.blocks > sms)
    return new ArgumentError('tuning.dispatch.blocks', dispatch.blocks, `at most sms, ${sms}`);
  if (combine.blocks + more > sms) {
    const possible = more === 0 ? `at most sms, ${sms}` : `less than sms, ${sms}`;
    return new ArgumentError('tuning.combine.blocks', combine.blocks, possible);
  }
  return null;
}

type Blocks = Readonly<Record<'dispatch' | 'combine', { readonly blocks: number }>>;

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
  const sent = payloads.map(({ rowBytes }, p) => rowBytes / unitBytes[unitOf({ payloads }, p)]);
  return Math.max(...sent, units, topK);
}
