import { unitBytes, widestUnit } from '../../moe/families/index.js';
import { type Layer, outputRowBytes } from '../../moe/layer/index.js';
import type { Source } from './binding.js';

/** What a host puts into a parameter, in a sentence. */
export function meaningOf(source: Source, { topK, maxTokens, payloads, output, ranks }: Layer): string {
  switch (source.from) {
    case 'window':
      return `where the ${source.window} of each rank is mapped on this GPU: ${ranks} addresses, by rank; the others are never read`;
    case 'buffer':
      return `address of this rank's ${source.buffer}`;
    case 'rows': {
      const { rowBytes } = payloads.find(({ name }) => name === source.payload)!;
      const unit = unitBytes[widestUnit(rowBytes)];
      return `address of ${source.payload}: [tokens] rows of ${rowBytes} bytes without gaps; a multiple of ${unit}`;
    }
    case 'tokens':
      return `how many tokens this rank brings to the round, 0 to ${maxTokens}`;
    case 'topkIds':
      return `address of i32 [tokens][${topK}]: expert ids, -1 where there is none. Stays as it is until the round has ended`;
    case 'topkWeights':
      return `address of f32 [tokens][${topK}]: the router's weights`;
    case 'out': {
      const aligned = outputRowBytes({ output }) % 16 === 0 ? '; a multiple of 16' : '';
      return `address of ${output.dtype} [tokens][${output.hidden}], where the sums go${aligned}`;
    }
    case 'limit':
      return 'microseconds that a wait for a peer may take before it gives up: 10000000';
    case 'rank':
      return `this rank, 0 to ${ranks - 1}`;
    case 'constant':
      return `always ${source.value}`;
  }
}
