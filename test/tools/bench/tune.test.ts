import { describe, expect, it } from 'vitest';
import { type OneSidedTuning, oneSided } from '../../../src/moe/families/index.js';
import { headOf, lineOf, tuneBench } from '../../../src/tools/bench/index.js';
import { coordinatesOf, descend, neighbours, sensible } from '../../../src/tools/bench/tune.js';
import { deepSeek, targetOn } from '../../moe/families/target.js';

const layer = { ...deepSeek, ranks: 4, maxTokens: 64, payloads: [{ name: 'x', rowBytes: 14_336 }] };
const target = targetOn([0, 0, 0, 0]);
const start = oneSided.defaults(layer, target);
type Measure = (tuning: OneSidedTuning) => Promise<number>;
const search = (measure: Measure, over = async () => false, [of, from] = [layer, start]) =>
  descend(oneSided, { layer: of, target }, from, measure, over);

/** Least at 132 blocks of 4 parts in dispatch and a pulling combine. */
const cost = ({ dispatch, combine }: OneSidedTuning): number =>
  100 +
  Math.abs(dispatch.blocks - 132) +
  10 * Math.abs(dispatch.parts - 4) +
  (combine.way === 'pull' ? 0 : 50);

describe('the search for a tuning', () => {
  it('finds the least of a cost with one valley', async () => {
    const { tuning, microseconds, before, cut } = await search(async (tuning) => cost(tuning));
    expect(tuning).toMatchObject({ dispatch: { blocks: 132, parts: 4 }, combine: { way: 'pull' } });
    expect(microseconds).toBe(100);
    expect(before).toBe(cost(start));
    expect(cut).toBe(false);
  });

  it('asks for no tuning twice, and only for sensible ones', async () => {
    const asked: string[] = [];
    const few = { ...layer, maxTokens: 3 };
    const measure: Measure = async (tuning) => {
      expect(sensible(tuning, target)).toBe(true);
      asked.push(JSON.stringify(tuning));
      return cost(tuning);
    };
    await search(measure, undefined, [few, oneSided.adapt(start, few, target)]);
    expect(new Set(asked).size).toBe(asked.length);
  });

  it('stays where differences are noise', async () => {
    let n = 0;
    const { tuning } = await search(async () => 100 - (n++ % 4) * 0.1);
    expect(tuning).toEqual(start);
  });

  it('ends with the best so far when the time is over', async () => {
    let asked = 0;
    const measure: Measure = async (tuning) => {
      asked++;
      return cost(tuning);
    };
    const result = await search(measure, async () => asked >= 5);
    expect(result).toMatchObject({ cut: true, tried: 5 });
    expect(result.microseconds).toBeLessThanOrEqual(result.before);
  });

  it('tries only what the family takes', () => {
    // 14 warps, which 4 teams cannot share.
    const from = { ...start, dispatch: { ...start.dispatch, threads: 448 } };
    const tried = coordinatesOf(oneSided).flatMap((coordinate) =>
      neighbours(oneSided, { layer, target }, from, coordinate),
    );
    expect(tried.map(({ dispatch }) => dispatch.teams)).toContain(2);
    for (const tuning of tried) expect(oneSided.refuses(layer, target, tuning)).toBeNull();
  });

  it('never makes more blocks than there are pieces', () => {
    const on = { layer: { ...layer, maxTokens: 2 }, target };
    for (const coordinate of coordinatesOf(oneSided))
      for (const tuning of neighbours(oneSided, on, start, coordinate))
        for (const { blocks, parts } of Object.values(tuning))
          expect(blocks).toBeLessThanOrEqual(2 * Number(parts));
  });
});

it('is shown as a line with times before and after, and the parameters', () => {
  const columns = tuneBench.columns({} as never);
  const shape = { maxTokens: 64, microseconds: 11.25, tuning: { dispatch: { blocks: 132, parts: 4 } } };
  const line = lineOf(columns, { shape: shape as never, before: 12.5, tried: 7, cut: true });
  expect(line).toBe(
    `${'64'.padStart(6)}${'12.50'.padStart(11)}${'11.25'.padStart(10)}    7, out of time  dispatch blocks 132, parts 4`,
  );
  expect(headOf(columns)).toBe('tokens  before µs  tuned µs             tried  parameters');
});
