/** The change that would help most: the same question with one thing changed. */
import type { ParameterName } from './model.js';
import { type Answer, answer, type Candidate, hitsOf, type Question, ranked } from './plan.js';
import { type Hits, hits, nodesOf, placeMore } from './routing.js';

export interface Change {
  readonly what: string;
  /** µs of a round as it is, and with the change. */
  readonly before: number;
  readonly after: number;
}

/** The fits of a candidate with some parameters multiplied. */
function scaled(candidate: Candidate, factors: Readonly<Partial<Record<ParameterName, number>>>): Candidate {
  return {
    ...candidate,
    basis(phase) {
      const { fit, assumes } = candidate.basis(phase);
      const parameters = { ...fit.parameters };
      const changed = Object.entries(factors) as [ParameterName, number][];
      return {
        fit: {
          ...fit,
          parameters: {
            ...parameters,
            ...Object.fromEntries(changed.map(([name, by]) => [name, parameters[name] * by])),
          },
        },
        assumes,
      };
    },
  };
}

/** Changes that shorten the round, the best first. */
export function advice(question: Question, candidate: Candidate, tokens: number): Change[] {
  const { layer, place, law, placement } = question;
  const found = hitsOf(question);
  const more = placement === undefined ? placeMore(layer, place, law) : null;
  const now = answer(question, found, candidate, tokens);
  const ask = (what: string, of: Question, who: Candidate, h: Hits = found): Change => ({
    what,
    before: now.time,
    after: answer(of, h, who, tokens).time,
  });
  const crosses = nodesOf(place) > 1;
  const { rows, message } = candidate.way;
  const way = (change: Partial<Candidate['way']>): Candidate => ({
    ...candidate,
    way: { ...candidate.way, ...change },
  });
  const changes = [
    ask('half the floor (launches, rendezvous)', question, scaled(candidate, { floor: 0.5, lead: 0.5 })),
    ask('twice the NVLink bandwidth', question, scaled(candidate, { nvlink: 0.5 })),
    ...(question.dtype === 'fp8' ? [] : [ask('fp8 there', { ...question, dtype: 'fp8' }, candidate)]),
    // Sums at the source take rows as they are.
    ...(question.combineDtype === 'fp8' || candidate.way.sum === 'source'
      ? []
      : [ask('e4m3 back', { ...question, combineDtype: 'fp8' }, candidate)]),
    ...(rows === 'expert'
      ? [ask('a row for each rank, not each expert', question, way({ rows: 'rank' }))]
      : []),
    ...(law.kind === 'perfect' || law.kind === 'uniform'
      ? []
      : [ask('uniform routes', question, candidate, hits(layer, place, { kind: 'uniform' }))]),
    ...(more === null
      ? []
      : [
          ask(
            `${more.places.length} places for experts, by their loads`,
            question,
            candidate,
            hits(layer, place, law, more),
          ),
        ]),
  ];
  if (crosses) {
    changes.push(
      ask('twice the NICs', question, scaled(candidate, { nic: 0.5 })),
      ask('half the network latency', question, scaled(candidate, { latency: 0.5, doubling: 0.5 })),
      ask('half the cost of a message', question, scaled(candidate, { message: 0.5 })),
      ...(rows === 'rails'
        ? []
        : [ask('rails: a row for each node', question, way({ rows: 'rails', message: 'peer' }))]),
      ...(rows === 'rails' || message === 'peer'
        ? []
        : [ask('a message for each peer, not each row', question, way({ message: 'peer' }))]),
    );
  }
  return changes.filter(({ after, before }) => after < 0.995 * before).sort((a, b) => a.after - b.after);
}

/** The subjects of advice: the fastest of Heddle's families, and the fastest of what others published. */
export function advised(answers: readonly Answer[], tokens: number): Answer[] {
  const order = ranked(answers.filter((one) => one.tokens === tokens));
  return [true, false].flatMap((heddle) => order.find((one) => one.heddle === heddle) ?? []);
}
