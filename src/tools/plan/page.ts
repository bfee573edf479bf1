/** One self-contained HTML page from a plan: charts, tables, what was assumed. Nothing is loaded from anywhere. */

import { ArgumentError } from '../../base/errors.js';
import { type Chart, figure, list, page, type Series, softLines, text } from '../../base/page.js';
import { htmlTable } from '../../base/table.js';
import { limits } from '../../moe/layer/index.js';
import { advice, advised } from './advice.js';
import {
  type Answer,
  assumed,
  type Candidate,
  candidateOf,
  candidates,
  isAbout,
  plan,
  type Question,
} from './plan.js';
import { hits, placementFor } from './routing.js';
import { answerColumns, heading, micro, middle } from './text.js';

const colours = [
  ...['heddle', 'nccl', 'published', 'dense', 'half', 'gather'],
  ...['teal', 'rose', 'olive', 'brick', 'loads', 'ceiling'],
];

export function planPage(
  question: Question,
  asked: readonly Candidate[],
  answers: readonly Answer[],
): string {
  const tokens = middle(question.tokens);
  const title = `Heddle plan: ${question.model}, EP${question.place.ranks} on ${question.known.machine.name}`;
  const byRanks = overRanks(question, asked, tokens);
  // Charts go from left to right.
  const sizes = [...new Set(question.tokens)].sort((a, b) => a - b);
  const charts = {
    tokens: chart(sizes, 'tokens a rank', 'µs a round', asked, (who, n) => rangeOf(find(answers, who, n))),
    cost: chart(sizes, 'tokens a rank', 'µs a token', asked, (who, n) => {
      return rangeOf(find(answers, who, n))?.map((us) => us / n);
    }),
    ranks: chart(byRanks.ranks, 'ranks (EP)', 'µs a round', asked, (who, n) => rangeOf(byRanks.find(who, n))),
  };
  const body = `${softLines(heading(question).split('\n'))}
<p>Predictions, not measurements. Nine of ten measurements are expected within the ranges of the table and the bands of the charts.</p>
<h2>Time</h2>
${figure('tokens', 'Microseconds of dispatch and combine against tokens a rank, both logarithmic.')}
<h2>Time against EP</h2>
${figure('ranks', `The same at ${tokens} tokens a rank, on as many nodes as the ranks need.`)}
<h2>Cost of a token</h2>
${figure('cost', 'Microseconds of a round ÷ tokens a rank: how much a larger batch saves.')}
<h2>What would help at ${tokens} tokens a rank</h2>
${advised(answers, tokens)
  .map((best) => sensitivity(question, asked, best, tokens))
  .join('\n')}
<h2>All figures</h2>
${htmlTable(
  answerColumns(({ candidate }) => candidate),
  answers,
)}
<h2>What is assumed</h2>
${list(asked.map((one) => [`${one.name} (${one.source})`, ...assumed(one, answers)].join('; ')))}`;
  return page(title, body, charts);
}

const find = (answers: readonly Answer[], who: Candidate, tokens: number): Answer | undefined =>
  answers.find((answer) => isAbout(who)(answer) && answer.tokens === tokens);

const rangeOf = (answer: Answer | undefined) => answer && [answer.time, answer.low, answer.high];

function chart(
  x: readonly number[],
  label: string,
  unit: string,
  asked: readonly Candidate[],
  value: (who: Candidate, x: number) => number[] | undefined,
): Chart {
  const series = asked.map((who, i): Series => {
    const found = x.map((n) => value(who, n));
    return {
      label: who.heddle ? `Heddle ${who.name}` : `${who.name}, ${who.source.split(' ')[0]}`,
      colour: colours[i % colours.length]!,
      ...(who.heddle ? {} : { dash: [6, 4] }),
      width: who.heddle ? 3 : 1.5,
      values: found.map((one) => one?.[0] ?? null),
      band: found.map((one) => (one === undefined ? null : [one[1]!, one[2]!])),
    };
  });
  return { x, label, log: true, unit, series };
}

/** Answers the question for other numbers of ranks, on nodes of the same size. */
function overRanks(question: Question, asked: readonly Candidate[], tokens: number) {
  const { known, place, layer, law, placement } = question;
  const { machine } = known;
  const most = machine.nominal.nic > 0 ? limits.worldRanks : machine.perNode;
  const found = new Map<number, Answer[]>();
  for (let ranks = 2; ranks <= most; ranks *= 2) {
    const perNode = Math.min(ranks, place.perNode === place.ranks ? machine.perNode : place.perNode);
    const shared = ranks <= layer.experts || ranks % layer.experts === 0;
    const places = placement?.places.length;
    if (ranks % perNode !== 0 || !shared) continue;
    if (places !== undefined && (ranks > limits.ranks || places % ranks !== 0)) continue;
    const there = { ranks, perNode };
    if (law.kind === 'uniform' && !canRoute(layer, there, law)) continue;
    const placed = places === undefined ? {} : { placement: placementFor(layer, there, law, places) };
    const carriers = candidates(known, there).filter((one) =>
      asked.some((who) => who.name === one.name && who.source === one.source),
    );
    found.set(ranks, plan({ ...question, ...placed, place: there, tokens: [tokens], replicas: 1 }, carriers));
  }
  return {
    ranks: [...found.keys()],
    find: (who: Candidate, n: number) => find(found.get(n) ?? [], who, tokens),
  };
}

/** Whether the router finds its experts there: as few nodes as a token may go to may have too few, or nodes unequally many. */
function canRoute(...of: Parameters<typeof hits>): boolean {
  try {
    hits(...of);
    return true;
  } catch (error) {
    if (error instanceof ArgumentError) return false;
    throw error;
  }
}

function sensitivity(question: Question, asked: readonly Candidate[], best: Answer, tokens: number): string {
  const who = candidateOf(best, asked);
  const rows = advice(question, who, tokens).map(
    ({ what, before, after }) =>
      `<tr><td class="name">${text(what)}</td><td>${micro(after)} µs</td><td>−${(100 * (1 - after / before)).toFixed(1)} %</td><td class="name"><meter min="0" max="1" value="${(1 - after / before).toFixed(3)}"></meter></td></tr>`,
  );
  const head = `<tr><th>${text(who.name)}: ${micro(best.time)} µs a round</th><th>would take</th><th>less</th><th></th></tr>`;
  return `<table><thead>${head}</thead><tbody>${rows.join('')}</tbody></table>`;
}
