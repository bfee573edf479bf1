/** The launches of a router, made once for all ranks of a process that are alike. */
import { remembered } from '../../families/common/remembered.js';
import { chooseKernel } from './choose.js';
import { logitsKernel } from './logits.js';
import { type RouterShape, routerThreads, tilesOf } from './shape.js';

/** Spread for as many tokens; fewer keep fewer blocks busy. */
export const routerKernels = remembered(
  (of: { readonly shape: RouterShape; readonly maxTokens: number; readonly kind: 'sim' | 'cuda' }) => {
    const { shape, maxTokens, kind } = of;
    const threads = routerThreads(kind);
    const most = kind === 'sim' ? 4 : 2048;
    const blocks = (pieces: number) => Math.min(pieces, most);
    const choosing = Math.ceil(maxTokens / (threads.choose / 32));
    return {
      logits: {
        kernel: logitsKernel(shape, threads.logits),
        blocks: blocks(tilesOf(shape, maxTokens)),
        threads: threads.logits,
      },
      choose: {
        kernel: chooseKernel(shape, threads.choose),
        blocks: blocks(choosing),
        threads: threads.choose,
      },
    };
  },
);
