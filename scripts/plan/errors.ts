/**
 * Makes the numbers of `heddle plan` from cells.json, and prints how far off predictions are: each source's cells beside what some of
 * its others predict. `npx tsx scripts/plan/errors.ts` writes src/tools/plan/fits.json.
 */
import { writeFileSync } from 'node:fs';
import { cells, fits, grouped, leftOut, offOf, questions } from './fit.js';

/** Errors of some predictions: the mean of predicted ÷ measured − 1, and how many measurements lie in their range. */
export function errors() {
  const sources = grouped(cells, ({ source }) => source);
  const all = sources.flatMap((mine) => {
    const off = offOf(mine);
    return questions.flatMap(({ name, parts }) =>
      leftOut(mine, parts(mine)).map((one) => ({
        ...one,
        name,
        source: mine[0]!.source,
        half: Math.hypot(off, one.far),
      })),
    );
  });
  const line = (name: string, some: typeof all) => ({
    name,
    cells: some.length,
    mean: some.reduce((sum, { off }) => sum + Math.abs(Math.exp(off) - 1), 0) / some.length,
    inRange: some.filter(({ off, half }) => Math.abs(off) <= half).length / some.length,
  });
  return [
    ...questions.map(({ name }) =>
      line(
        name,
        all.filter((one) => one.name === name),
      ),
    ),
    line('all', all),
    ...sources.flatMap((mine) => {
      const some = all.filter(({ source }) => source === mine[0]!.source);
      return some.length >= 20 ? [line(mine[0]!.source, some)] : [];
    }),
  ];
}

if (import.meta.filename === process.argv[1]) {
  const path = new URL('../../src/tools/plan/fits.json', import.meta.url);
  writeFileSync(
    path,
    `[\n${fits()
      .map((one) => `  ${JSON.stringify(one)}`)
      .join(',\n')}\n]\n`,
  );
  console.log(
    '| predicted from its other cells | cells | mean error | in range |\n| --- | --- | --- | --- |',
  );
  for (const { name, cells: n, mean, inRange } of errors())
    console.log(`| ${name} | ${n} | ${(100 * mean).toFixed(1)} % | ${(100 * inRange).toFixed(0)} % |`);
}
