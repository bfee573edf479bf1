/** What a host passes to the kernels that read its routes, in whatever family. */
import { type LayoutSpec, list, peers, pointer, type TypedLayout } from '../../lang/index.js';
import type { Layer } from '../../layer/index.js';

/** A dispatch, without its limit. */
export const dispatchParams = <S extends LayoutSpec>(window: TypedLayout<S>, { payloads }: Layer) =>
  ({
    win: peers(window),
    /** [tokens][K] */
    topkIds: pointer('i32'),
    topkWeights: pointer('f32'),
    /** One [tokens][row] array a payload. */
    rows: list(pointer('v16'), payloads.length),
    tokens: 'u32',
  }) as const;

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
