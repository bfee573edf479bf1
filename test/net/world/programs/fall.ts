// Ranks that call in a loop until one falls, in the way and at the point that the arguments say. Survivors
// print what they heard and leave in good order.
import { RankLostError } from '../../../../src/base/errors.js';
import { ProcessCircle } from '../../../../src/net/world/process-circle.js';

const [victim, point, lossTimeoutMs = '40000'] = process.argv.slice(2);
const mine = process.env.HEDDLE_RANK === victim;
const die = () => process.kill(process.pid, 'SIGKILL');

if (mine && point === 'before joining') die();
// The others are never silent for so long that they would be blamed.
const circle = await ProcessCircle.join({ lossTimeoutMs: mine ? Number(lossTimeoutMs) : 40_000 });
let heard = false;
circle.onRankLost(() => {
  heard = true;
});
await circle.barrier('ready');
if (mine) {
  switch (point) {
    case 'between calls':
      die();
      break;
    case 'in a barrier':
      void circle.barrier('dispatch'); // its arrival is on its way when the signal comes
      die();
      break;
    case 'in the middle of a frame':
      void circle.allGather(new Uint8Array(1 << 20), 'dispatch'); // more than a socket takes at once
      die();
      break;
    case 'stopped':
      process.kill(process.pid, 'SIGSTOP');
      break;
    case 'spinning':
      for (;;);
    case 'exits':
      process.exit(7);
      break;
    case 'throws':
      throw new Error('the victim throws');
  }
}
try {
  for (;;) await circle.barrier('dispatch');
} catch (error) {
  if (!(error instanceof RankLostError)) throw error;
  const { ranks, operation, cause } = error;
  const report = { ranks, operation, why: (cause as Error).message, heard, aborted: circle.signal.aborted };
  await circle.dispose();
  console.log(JSON.stringify(report));
}
