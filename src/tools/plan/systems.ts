/** Libraries that others published figures of: how they send, and what their phases were measured to need. */
import type { Travel } from '../../moe/families/index.js';
import { type Profile, rowBytes } from '../../moe/layer/index.js';
import fitted from './fits.json' with { type: 'json' };
import type { Fit } from './model.js';
import type { RoutingLaw } from './routing.js';

/** A library, one way in which it sends, and the router of its benchmark. */
interface System {
  readonly mode: string;
  /** Only of this library. */
  readonly lib?: string;
  readonly way: Travel;
  readonly law: RoutingLaw;
  /** Bytes that it takes on a rank, where its layout is known. */
  readonly memory?: (layer: Profile, tokens: number) => number;
}

/**
 * DeepEP's low latency: for each phase a place to send from and one to receive in, a bf16 row with a header for every expert
 * and token of a rank, and both twice, for rounds that follow each other.
 */
const lowLatencyBytes = ({ experts, hidden }: Profile, tokens: number): number =>
  2 * 2 * experts * tokens * (rowBytes('bf16', hidden) + 16);

const uniform: RoutingLaw = { kind: 'uniform' };
const oneSided: Travel = { rows: 'rank', message: 'row', metadata: 'rows' };
const rowAnExpert: Travel = { rows: 'expert', message: 'row', metadata: 'rows' };
const byRails: Travel = { rows: 'rails', message: 'peer', metadata: 'rows' };

/** The first that fits a cell says what it is. */
const systems: readonly System[] = [
  { lib: 'heddle', mode: 'one_sided', way: { ...oneSided, metadata: 'every rank' }, law: uniform },
  // Its source counts min(ep, topk) ranks a token, which only a perfect router reaches.
  { lib: 'trtllm', mode: 'one_sided', way: oneSided, law: { kind: 'perfect' } },
  { lib: 'deepep_v1', mode: 'll', way: rowAnExpert, law: uniform, memory: lowLatencyBytes },
  { mode: 'll', way: rowAnExpert, law: uniform },
  // DeepEP's test, which others run too, lets a token choose experts of four nodes at most.
  { mode: 'normal', way: byRails, law: { kind: 'uniform', nodesAtMost: 4 } },
  { mode: 'elastic', way: byRails, law: uniform },
  { mode: 'hybrid', way: { ...rowAnExpert, message: 'peer' }, law: uniform },
  { mode: 'ibgda', way: rowAnExpert, law: uniform },
  { mode: 'ibrc', way: rowAnExpert, law: uniform },
  { mode: 'nvlink', way: rowAnExpert, law: uniform },
];

export function systemOf({ lib, mode }: { readonly lib: string; readonly mode: string }): System {
  return systems.find((one) => one.mode === mode && (one.lib ?? lib) === lib)!;
}

/** The measurements of one source of a system on one machine, fitted by scripts/plan. */
export interface Measured {
  readonly lib: string;
  readonly mode: string;
  readonly machine: string;
  readonly src: string;
  readonly dispatch: Fit;
  readonly combine: Fit;
}

export const measured = fitted as unknown as readonly Measured[];
