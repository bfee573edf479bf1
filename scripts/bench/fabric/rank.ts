/** A process of a measurement: started by measurements.ts with its role's name and arguments. Rank 0 reports what its role returned. */
import { deserialize, serialize } from 'node:v8';
import { ProcessCircle } from '../../../src/net/world/index.js';
import * as roles from './roles.js';

const [name, args] = process.argv.slice(2) as [keyof typeof roles, string];
// A rank that polls says nothing for minutes, which is no sign of its loss.
const circle = await ProcessCircle.join({ timeoutMs: 2 ** 31 - 1, lossTimeoutMs: 2 ** 31 - 1 });
const { rank } = circle;
const exchange = async <T>(value: T): Promise<T[]> =>
  (await circle.allGather(serialize(value), 'an exchange')).map((bytes) => deserialize(bytes) as T);
const { [name]: play } = roles;
const result = await play({ rank, exchange, ...JSON.parse(args) });
if (rank === 0) process.stdout.write(`${JSON.stringify({ result })}\n`);
await circle.barrier('the measurement is over');
await circle.dispose();
