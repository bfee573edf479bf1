/** A schedule as a picture: a row a thread, a mark a step, arrows from flags to those who read them. */

import type { Step } from '../../src/gpu/sim/index.js';
import { html, svg } from './dom.js';
import { type Chart, type Column, chartOf } from './rows.js';

const rowHeight = 26;
const columnWidth = 22;
const headHeight = 8;

export class Timeline {
  readonly element = html('div', { class: 'pg-timeline' });
  #chart: Chart = { rows: [], columns: [] };
  #racing: readonly number[] = [];
  #steps: readonly Step[] = [];
  #at = 0;
  #band: SVGRectElement | null = null;
  readonly #onStep: (step: Step, text: string) => void;

  constructor(onStep: (step: Step, text: string) => void) {
    this.#onStep = onStep;
  }

  get length(): number {
    return this.#chart.columns.length;
  }

  get position(): number {
    return this.#at;
  }

  /** `racing`: the two steps that nothing orders. */
  show(steps: readonly Step[], racing: readonly number[]): void {
    this.#steps = steps;
    this.#racing = racing;
    this.#chart = chartOf(steps, racing);
    this.#draw();
    this.go(racing.length > 0 ? this.#columnOf(racing.at(-1)!) : this.length - 1);
  }

  go(to: number): void {
    if (this.length === 0) return;
    this.#at = Math.max(0, Math.min(this.length - 1, to));
    const column = this.#chart.columns[this.#at]!;
    this.#band?.setAttribute('x', String(this.#at * columnWidth));
    const scroller = this.element.querySelector('.pg-scroll');
    if (scroller !== null) scroller.scrollLeft = (this.#at + 0.5) * columnWidth - scroller.clientWidth / 2;
    this.#onStep(column.step, this.#describe(column));
  }

  #columnOf(step: number): number {
    return this.#chart.columns.findIndex(({ first, last }) => step >= first && step <= last);
  }

  #describe({ step, first, last }: Column): string {
    const count = last - first + 1;
    const { rank, block, thread, kind, strength, buffer, location, text, sees } = step;
    const who = thread === null ? 'all threads' : count > 1 ? `${count} threads` : `thread ${thread}`;
    const where = `${who} of block ${block} on rank ${rank}`;
    if (kind === 'barrier' || kind === 'fence') return `${where}: ${text}`;
    const several = count > 1 || thread === null;
    const does = kind === 'wait' ? `wait${several ? '' : 's'} for` : `${kind}${several ? '' : 's'}`;
    const what = count > 1 ? buffer : `${buffer}, ${location}`;
    const how = strength === '' ? '' : `, ${strength}`;
    return `${where} ${does} ${what}${how}${this.#seen(sees)}`;
  }

  #seen(sees: Step['sees']): string {
    if (sees === null) return '';
    if (sees === 'older') return '; gets an older value, as it may';
    return `; sees what ${nameOf(this.#steps[sees]!)} stored at step ${this.#columnOf(sees) + 1}`;
  }

  #draw(): void {
    const { rows, columns } = this.#chart;
    const width = columns.length * columnWidth;
    const height = rows.length * rowHeight + headHeight;
    const y = (row: number) => headHeight + (row + 0.5) * rowHeight;
    const x = (column: number) => (column + 0.5) * columnWidth;
    this.#band = svg('rect', { class: 'pg-band', x: 0, y: 0, width: columnWidth, height, rx: 4 });
    const picture = svg(
      'svg',
      { width, height, role: 'img', 'aria-label': 'The schedule, step by step' },
      this.#band,
    );
    for (const row of rows.keys()) {
      const newRank = row > 0 && rows[row]!.rank !== rows[row - 1]!.rank;
      if (newRank) {
        const line = headHeight + row * rowHeight;
        picture.append(svg('line', { class: 'pg-between', x1: 0, x2: width, y1: line, y2: line }));
      }
      picture.append(svg('line', { class: 'pg-lane', x1: 0, x2: width, y1: y(row), y2: y(row) }));
    }
    for (const [i, { step }] of columns.entries()) {
      const from = typeof step.sees === 'number' ? this.#columnOf(step.sees) : -1;
      if (from < 0 || from === i) continue;
      const start = y(columns[from]!.rows[0]!);
      const end = y(columns[i]!.rows[0]!);
      const bend = Math.max(12, (x(i) - x(from)) / 2);
      const path = `M${x(from)},${start} C${x(from) + bend},${start} ${x(i) - bend},${end} ${x(i) - 6},${end}`;
      picture.append(svg('path', { class: 'pg-sees', d: path }));
    }
    const [first, second] = this.#racing.map((step) => this.#columnOf(step));
    const racing = [first, second].filter((column) => column !== undefined);
    if (first !== undefined && second !== undefined) {
      const ends = {
        x1: x(first),
        y1: y(columns[first]!.rows[0]!),
        x2: x(second),
        y2: y(columns[second]!.rows[0]!),
      };
      picture.append(svg('line', { class: 'pg-race', ...ends }));
    }
    for (const [i, column] of columns.entries())
      picture.append(this.#mark(column, i, racing.includes(i), x(i), y));
    const labels = rows.map((row, i) => {
      const before = rows[i - 1];
      const isFirst =
        before === undefined ||
        before.rank !== row.rank ||
        before.block !== row.block ||
        before.stream !== row.stream;
      const several = rows.some((other) => other.rank === row.rank && other.stream !== row.stream);
      const head = `rank ${row.rank}${several ? ` · stream ${row.stream}` : ''} · block ${row.block}`;
      return html(
        'div',
        { class: 'pg-label', style: `height:${rowHeight}px` },
        html('b', {}, isFirst ? head : ''),
        html('span', {}, row.label),
      );
    });
    this.element.replaceChildren(
      html('div', { class: 'pg-labels', style: `padding-top:${headHeight}px` }, ...labels),
      html('div', { class: 'pg-scroll' }, picture),
    );
  }

  #mark(column: Column, i: number, races: boolean, x: number, y: (row: number) => number): SVGElement {
    const { step, rows } = column;
    const [top, bottom] = [y(rows[0]!), y(rows.at(-1)!)];
    const names = `pg-mark pg-${step.kind}${step.strength === '' ? '' : ' pg-strong'}${races ? ' pg-racing' : ''}`;
    const group = svg('g', { class: names, click: () => this.go(i) });
    group.append(svg('title', {}, `${i + 1}: ${this.#describe(column)}`));
    group.append(
      svg('rect', {
        class: 'pg-hit',
        x: x - columnWidth / 2,
        y: top - rowHeight / 2,
        width: columnWidth,
        height: bottom - top + rowHeight,
      }),
    );
    if (races) group.append(svg('circle', { class: 'pg-ring', cx: x, cy: top, r: 10 }));
    if (step.kind === 'barrier') {
      group.append(svg('rect', { x: x - 2, y: top - 9, width: 4, height: bottom - top + 18, rx: 2 }));
    } else if (step.kind === 'fence') {
      group.append(svg('rect', { x: x - 2, y: top - 8, width: 4, height: 16, rx: 1 }));
    } else if (step.strength !== '') {
      group.append(svg('path', { d: `M${x},${top - 7}l7,7l-7,7l-7,-7z` }));
    } else {
      group.append(svg('circle', { cx: x, cy: top, r: 4.5 }));
    }
    return group;
  }
}

const nameOf = ({ rank, block, thread }: Step): string => `rank ${rank}, block ${block}, thread ${thread}`;
