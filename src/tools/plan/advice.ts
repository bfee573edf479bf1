/** The change that would help most: the same question with one thing changed. */
import type { ParameterName } from './model.js';
import { type Answer, answer, type Candidate, hitsOf, type Question, ranked } from './plan.js';
import { type Hits, hits, nodesOf, placeMore } from './routing.js';

/** The fits of a candidate with some parameters multiplied. */
const scaled = (
  candidate: Candidate,
  factors: Readonly<Partial<Record<ParameterName, number>>>,
): Candidate => ({
  ...candidate,
  basis(phase) {
    const { fit, assumes } = candidate.basis(phase);
    const { parameters } = fit;
    const changed = Object.entries(factors) as [ParameterName, number][];
    const by = Object.fromEntries(changed.map(([name, factor]) => [name, parameters[name] * factor]));
    return { fit: { ...fit, parameters: { ...parameters, ...by } }, assumes };
  },
});

/** A change that applies, or not: what is changed, of the candidate, of the question, of where routes go. */
type Proposal = readonly [applies: boolean, what: string, Candidate, Question?, (() => Hits)?];

/** Changes that shorten the round, the best first: µs of it as it is, and with the change. */
export function advice(question: Question, candidate: Candidate, tokens: number) {
  const { layer, place, law, placement, dtype, combineDtype, replicas } = question;
  const found = hitsOf(question);
  const more = placement === undefined ? placeMore(layer, place, law) : null;
  const even = law.kind === 'perfect' || law.kind === 'uniform';
  const { time: before } = answer(question, found, candidate, tokens);
  const crosses = nodesOf(place) > 1;
  const { rows, message } = candidate.way;
  const way = (change: Partial<Candidate['way']>): Candidate => ({
    ...candidate,
    way: { ...candidate.way, ...change },
  });
  const proposals: readonly Proposal[] = [
    [true, 'half the floor (launches, rendezvous)', scaled(candidate, { floor: 0.5, lead: 0.5 })],
    [true, 'twice the NVLink bandwidth', scaled(candidate, { nvlink: 0.5 })],
    [dtype !== 'fp8', 'fp8 there', candidate, { ...question, dtype: 'fp8' }],
    [combineDtype !== 'fp8', 'e4m3 back', candidate, { ...question, combineDtype: 'fp8' }],
    [rows === 'expert', 'a row for each rank, not each expert', way({ rows: 'rank' })],
    [!even, 'uniform routes', candidate, question, () => hits(layer, place, { kind: 'uniform' })],
    [
      more !== null,
      `${more?.places.length} places for experts, by their loads`,
      candidate,
      question,
      () => hits(layer, place, law, more!),
    ],
    [crosses, 'twice the NICs', scaled(candidate, { nic: 0.5 })],
    [crosses, 'half the network latency', scaled(candidate, { latency: 0.5, doubling: 0.5 })],
    [crosses, 'half the cost of a message', scaled(candidate, { message: 0.5 })],
    [
      crosses && rows !== 'rails' && place.perNode % replicas === 0,
      'rails: a row for each node',
      way({ rows: 'rails', message: 'peer' }),
    ],
    [
      crosses && rows !== 'rails' && message !== 'peer',
      'a message for each peer, not each row',
      way({ message: 'peer' }),
    ],
  ];
  return proposals
    .filter(([applies]) => applies)
    .map(([_, what, who, of = question, routes = () => found]) => {
      return { what, before, after: answer(of, routes(), who, tokens).time };
    })
    .filter(({ after }) => after < 0.995 * before)
    .sort((a, b) => a.after - b.after);
}

/** The subjects of advice: the fastest of Heddle's families, and the fastest of what others published. */
export function advised(answers: readonly Answer[], tokens: number): Answer[] {
  const order = ranked(answers.filter((one) => one.tokens === tokens));
  return [true, false].flatMap((heddle) => order.find((one) => one.heddle === heddle) ?? []);
}
