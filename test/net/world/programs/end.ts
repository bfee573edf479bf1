// Rank 0 comes to its end without a good-bye of its own, before joining or after; rank 1 needs it.
import type { RankLostError } from '../../../../src/base/errors.js';
import { ProcessCircle } from '../../../../src/net/world/process-circle.js';

const first = process.env.HEDDLE_RANK === '0';
if (!(first && process.argv[2] === 'before joining')) {
  try {
    const circle = await ProcessCircle.join();
    if (!first) {
      circle.onRankLost(() => console.log('alarmed'));
      await circle.barrier('dispatch');
    }
  } catch (error) {
    const { ranks, operation, cause } = error as RankLostError;
    console.log(JSON.stringify({ ranks, operation, why: (cause as Error).message }));
  }
}
