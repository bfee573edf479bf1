/** The arguments that kernels of all families share, and what all ask of a layer. */
import {
  type LayoutSpec,
  list,
  peers,
  pointer,
  record,
  registers,
  type TypedLayout,
} from '../../../lang/index.js';
import { type Layer, sharing } from '../../layer/index.js';
import { placingParam } from './places.js';
import { layerParam } from './waits.js';

/** Parameters that are numbers: u32 all of them. */
export const numbers = <const Name extends string>(...names: readonly Name[]) =>
  Object.fromEntries(names.map((name) => [name, 'u32'])) as { readonly [N in Name]: 'u32' };

/** Constants of a layer, by the names by which kernels ask for them. */
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

/** What a rank brings to a dispatch. */
export const inputsOf = (layer: Layer) =>
  record({
    /** [tokens][K] */
    topkIds: pointer('i32'),
    topkWeights: list(pointer('f32'), layer.weights ? 1 : 0),
    /** One [tokens][row] array a payload. */
    rows: list(pointer('v16'), layer.payloads.length),
    tokens: 'u32',
    placing: placingParam(layer),
  });

/** A dispatch, without its limit. */
export const dispatchParams = <S extends LayoutSpec>(window: TypedLayout<S>, layer: Layer) =>
  ({ win: peers(window), ...inputsOf(layer).of, layer: layerParam(layer) }) as const;

/** A combine that adds rows up. */
export const combineParams = <S extends LayoutSpec>(window: TypedLayout<S>, { output }: Layer) =>
  ({
    win: peers(window),
    /** [tokens][K] */
    topkIds: pointer('i32'),
    /** [tokens][row], where the sums go. */
    out: pointer(output.dtype),
    tokens: 'u32',
    /** Microseconds to wait for a peer. */
    limit: 'u32',
  }) as const;

/**
 * The rows that combine takes where it weighs, in a plan's order. `given`: whether the kernel takes any; `beside`: with
 * their weights.
 */
export const routeParams = ({ output }: Layer, given: boolean, beside = true) => {
  const planned = given ? 1 : 0;
  return {
    /** [row][hidden] */
    made: list(pointer(output.dtype), planned),
    /** There are so many in a plan; a larger number counts as none. */
    madeRows: list('u32', planned),
    /** [slot][k]: the route's row; −1 where it has none. */
    scatter: list(pointer('i32'), planned),
    /** [slot][k], in this rank's own memory: peers may write to slots while combine pushes. */
    routeWeights: list(pointer('f32'), beside ? planned : 0),
  } as const;
};

/** Parameters of a function that takes a part of the sums that a group has made in a turn. */
export const turnParams = <S extends LayoutSpec>(window: TypedLayout<S>, { output }: Layer) =>
  ({
    win: peers(window),
    /** The sums of all tokens: [tokens][row]. */
    out: pointer(output.dtype),
    turn: 'u32',
    tokens: 'u32',
    part: 'u32',
    epoch: 'u32',
    patience: registers('u32', 1),
  }) as const;
