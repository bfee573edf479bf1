/** A newcomer killed or stopped at each point that it passes on its way into a world. */
import { afterAll, describe, it } from 'vitest';
import { needing } from '../../needs.js';
import { endNewcomers, expectUndisturbed, findNewcomerPoints } from './newcomer-falls.js';

afterAll(endNewcomers);

const needs = needing('linux');
const points = needs.skip ? ['each point'] : await findNewcomerPoints();
const until = (last: string) => points.slice(0, points.indexOf(last));

describe.concurrent.each([
  ['killed', 'SIGKILL', until('all is made, completed')],
  // Behind this point it is in the world: a rank that stops there is lost as any other, which takes its time.
  ['stopped', 'SIGSTOP', until('the nodes: processes, completed')],
] as const)('a newcomer that is %s does not keep the others from going on', (_, signal, at) => {
  it.each(at)('at: %s', needs, async (point) => {
    await expectUndisturbed(point, signal);
  });
});
