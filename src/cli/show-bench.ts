/** The common work of every benchmark's command: it shows points as they come, and writes what was asked for. */
import { writeOutput } from '../base/files/index.js';
import { chromeTrace } from '../base/timeline.js';
import {
  type Bench,
  columnsOf,
  headOf,
  lineOf,
  type Measuring,
  type Report,
  runBenchmark,
  timelineOf,
} from '../tools/bench/index.js';
import { requireOutputFile } from './options.js';
import { progressOn } from './progress.js';

interface Flags {
  readonly json?: boolean | undefined;
  readonly trace?: string | undefined;
  readonly outputFile?: string | undefined;
  readonly report?: string | undefined;
}

interface More<Point, Members> {
  /** Is called for each point; its text stands below the point's lines. */
  each?(report: Report<Point, Members>, point: Point): string;
  /** The text of `--report`. */
  page?(report: Report<Point, Members>): string;
}

/**
 * Runs a plan. The heading comes with the first line, so a measurement that fails at once prints neither. Files are written
 * after every point.
 */
export async function showBench<Plan extends Measuring, Point, Members extends object, Line>(
  bench: Bench<Plan, Point, Members, Line>,
  plan: Plan,
  { json, trace, outputFile, report: page }: Flags,
  more: More<Point, Members> = {},
): Promise<void> {
  for (const [option, file] of Object.entries({
    '--output-file': outputFile,
    '--report': page,
    '--trace': trace,
  }))
    requireOutputFile(option, file);
  const table = json ? process.stderr : process.stdout;
  const print = (lines: string): boolean => table.write(lines === '' ? '' : `${lines}\n`);
  const asJson = (report: object): string => `${JSON.stringify(report, null, 2)}\n`;
  const save = (report: Report<Point, Members>): void => {
    if (outputFile !== undefined) writeOutput(outputFile, asJson(report));
    if (page !== undefined && more.page !== undefined) writeOutput(page, more.page(report));
  };
  const progress = progressOn(process.stderr);
  const report = await runBenchmark(bench, plan, (event, soFar) => {
    if (event.type === 'doing') progress(`heddle: ${event.what} …`);
    if (event.type !== 'point') return;
    progress(null);
    const columns = columnsOf(bench, soFar);
    if (soFar.points.length === 1) {
      print(bench.heading(soFar));
      if (soFar.unit === 'steps') print('simulated: figures are steps, which say nothing about a GPU’s time');
      print(`\n${headOf(columns)}`);
    }
    for (const line of bench.lines(event.point)) print(lineOf(columns, line));
    print(more.each?.(soFar, event.point) ?? '');
    save(soFar);
  }).finally(() => progress(null));
  print(bench.foot === undefined ? '' : `\n${bench.foot(report)}`);
  for (const note of report.notes) print(note);
  save(report);
  if (trace !== undefined) writeOutput(trace, JSON.stringify(chromeTrace(timelineOf(report.spans))));
  if (json) process.stdout.write(asJson(bench.results?.(report) ?? report));
}
