/** `heddle plan`: what dispatch and combine cost on a machine, for everything that could carry them there. */
import { ArgumentError, integerIn } from '../../base/errors.js';
import { type Family, families, type Travel } from '../../moe/families/index.js';
import { type FormatName, type Placement, type Profile, rowBytes } from '../../moe/layer/index.js';
import { systemOf } from './cells.js';
import { bulkNetwork, type Calibration, heddleMeasured, type KnownMachine } from './machines.js';
import { workOf } from './model.js';
import { type Basis, heddleBasis, predict } from './predict.js';
import { type Hits, hits, nodesOf, type RankPlacement, type RoutingLaw } from './routing.js';
import { simulate } from './simulate.js';
import { between } from './sources.js';
import { type RoundHalf, traffic } from './traffic.js';

export interface Question {
  readonly model: string;
  readonly layer: Profile;
  readonly known: KnownMachine;
  readonly place: RankPlacement;
  /** Of a rank. */
  readonly tokens: readonly number[];
  readonly law: RoutingLaw;
  /** Where experts live. Default: in order, one place each. */
  readonly placement?: Placement;
  readonly dtype: FormatName;
  readonly combineDtype: FormatName;
  readonly replicas: number;
}

/** Something that carries rows, and what is known of it on the machine. */
export interface Candidate {
  readonly name: string;
  readonly way: Travel;
  readonly source: string;
  readonly heddle: boolean;
  /** Bytes of a rank, where the library's layout is known. */
  memory(question: Question, tokens: number): number | null;
  basis(phase: RoundHalf): Basis;
}

export const phases: readonly RoundHalf[] = ['dispatch', 'combine'];

export type Answer = ReturnType<typeof answer>;

/** Where the ranks go. @throws ArgumentError naming what does not fit. */
export function placeOn(
  { machine }: KnownMachine,
  ranks: number,
  nodes = Math.ceil(ranks / machine.perNode),
): RankPlacement {
  if (ranks % nodes !== 0) throw new ArgumentError('ep', ranks, `a multiple of nodes, ${nodes}`);
  const perNode = ranks / nodes;
  if (perNode > machine.perNode) {
    const mostly = `at least ${Math.ceil(ranks / machine.perNode)}: a node of ${machine.name} has ${machine.perNode} GPUs`;
    throw new ArgumentError('nodes', nodes, mostly);
  }
  if (nodes > 1 && machine.nominal.nic === 0)
    throw new ArgumentError(
      'nodes',
      nodes,
      `1: ${machine.name} has no network; see --help for machines with one`,
    );
  return { ranks, perNode };
}

/**
 * All that could carry the rows of `place` on the machine: Heddle's families, then what others published. By rails only groups
 * of ranks inside nodes, whose ranks hand each other sums over NVLink.
 */
export function candidates(known: KnownMachine, place: RankPlacement, replicas = 1): Candidate[] {
  const { machine, calibrations } = known;
  const crosses = nodesOf(place) > 1;
  const whole = calibrations.filter(({ fits: { dispatch, combine } }) => dispatch && combine);
  const own = whole.find(({ lib }) => lib === 'heddle');
  const fits = { local: own ?? heddleMeasured(), network: bulkNetwork(known) };
  const all = [
    ...families
      .filter(({ reach }) => (reach === 'world') === crosses)
      .map((family) => ofFamily(family, machine, crosses, fits)),
    ...whole.filter(({ lib }) => lib !== 'heddle').map((one) => published(one, known.own === true)),
  ];
  return all.filter(({ way }) => way.rows !== 'rails' || place.perNode % replicas === 0);
}

function ofFamily(
  family: Family,
  machine: KnownMachine['machine'],
  crosses: boolean,
  fits: Parameters<typeof heddleBasis>[4],
): Candidate {
  return {
    name: family.name,
    way: family.travel,
    source: 'Heddle',
    heddle: true,
    memory: (question, tokens) => heddleMemory(question, family.travel, tokens),
    basis: (phase) => heddleBasis(family, machine, phase, crosses, fits),
  };
}

function published(calibration: Calibration, own: boolean): Candidate {
  const { lib, mode, fits, src, hw } = calibration;
  const { way, memory } = systemOf(calibration);
  return {
    name: `${lib}/${mode}`,
    way,
    source: `${src.join('; ')} (${hw})`,
    heddle: false,
    memory: ({ layer }, tokens) => memory?.(layer, tokens) ?? null,
    basis: (phase) => ({ fit: fits[phase]!, assumes: [], elsewhere: own ? 0 : between(calibration) }),
  };
}

/** Those of that name. @throws ArgumentError listing the names there are. */
export function named(all: readonly Candidate[], name: string | undefined): readonly Candidate[] {
  if (name === undefined) return all;
  const found = all.filter((one) => one.name === name);
  if (found.length > 0) return found;
  const names = [...new Set(all.map((one) => one.name))];
  throw new ArgumentError(
    'family',
    name,
    `one that is known for this machine and so many nodes: ${names.join(', ')}`,
  );
}

export const isAbout =
  (who: Candidate) =>
  ({ candidate, source }: Answer): boolean =>
    candidate === who.name && source === who.source;

export const candidateOf = (answer: Answer, asked: readonly Candidate[]): Candidate =>
  asked.find((one) => isAbout(one)(answer))!;

/** The assumptions of all that is said of it, and beyond what it extrapolates. */
export const assumed = (who: Candidate, answers: readonly Answer[]): string[] => [
  ...new Set(answers.filter(isAbout(who)).flatMap(({ beyond }) => beyond)),
];

export const hitsOf = ({ layer, place, law, placement }: Question): Hits =>
  hits(layer, place, law, placement);

/** The values that every candidate needs for every number of tokens. */
export function plan(question: Question, asked: readonly Candidate[]): Answer[] {
  const { place } = question;
  if (place.ranks % question.replicas !== 0)
    throw new ArgumentError('replicas', question.replicas, `a divisor of ep, ${place.ranks}`);
  const found = hitsOf(question);
  return question.tokens.flatMap((tokens) => asked.map((one) => answer(question, found, one, tokens)));
}

/** Times in µs, memory in bytes of windows and buffers; null where the library's layout is not known. */
export function answer(question: Question, found: Hits, candidate: Candidate, tokens: number) {
  const { layer, place, replicas } = question;
  const parts = phases.map((phase) => {
    const row = rowBytes(phase === 'dispatch' ? question.dtype : question.combineDtype, layer.hidden);
    const load = { hits: found, place, tokens, topK: layer.topK, rowBytes: row, replicas };
    const moved = traffic(phase, candidate.way, load);
    const predicted = predict(candidate.basis(phase), workOf([moved], place), tokens);
    return { phase, traffic: moved, ...predicted };
  });
  const memory = candidate.memory(question, tokens);
  const sum = (of: (part: (typeof parts)[number]) => number): number =>
    parts.reduce((all, part) => all + of(part), 0);
  return {
    candidate: candidate.name,
    source: candidate.source,
    heddle: candidate.heddle,
    tokens,
    time: sum(({ time }) => time),
    // Both phases may be off the same way, so their ranges add up.
    low: sum(({ low }) => low),
    high: sum(({ high }) => high),
    phases: parts,
    // The assumptions of the prediction, and beyond what it extrapolates.
    beyond: [...new Set(parts.flatMap(({ beyond }) => beyond))],
    memory,
    fits: memory === null || memory <= question.known.machine.memory * 1e9,
  };
}

/** Bytes a rank: slots for what arrives and what returns, and send buffers where a NIC reads them. */
function heddleMemory(
  { layer, place, dtype, combineDtype, replicas }: Question,
  way: Travel,
  tokens: number,
): number {
  const there = rowBytes(dtype, layer.hidden);
  const back = rowBytes(combineDtype, layer.hidden);
  // A slot for every token of every group: the row and its ids and weights, what the experts made of it, what came back.
  const slots = (place.ranks / replicas) * tokens;
  const window = slots * (there + 8 * layer.topK + 2 * back);
  const beyond = nodesOf(place) - 1;
  if (beyond === 0) return window;
  if (way.rows !== 'rails') return window + (place.ranks - place.perNode) * tokens * (there + back);
  return window + 2 * ((beyond * tokens) / replicas) * (there + back);
}

export type SimulatedPhase = ReturnType<typeof simulateAll>[number];

/** Every phase of every candidate, message by message, beside the closed form. */
export function simulateAll(
  question: Question,
  asked: readonly Candidate[],
  { seed, late }: { readonly seed: number; readonly late: number },
) {
  return plan(question, asked).flatMap((answer) => {
    const { candidate: name, tokens, phases: parts } = answer;
    const candidate = candidateOf(answer, asked);
    return parts.map(({ phase, time: closed }) => {
      const { layer, place, law, dtype, combineDtype, replicas } = question;
      const row = rowBytes(phase === 'dispatch' ? dtype : combineDtype, layer.hidden);
      const { parameters } = candidate.basis(phase).fit;
      const round = { layer, place, way: candidate.way, phase, tokens, rowBytes: row, law, parameters };
      return { tokens, name, phase, closed, found: simulate({ ...round, replicas, seed, late }) };
    });
  });
}

/** Those that fit into a GPU's memory, by the end of their range: the first is fastest where all go as badly as they may. */
export const ranked = (answers: readonly Answer[]): Answer[] =>
  answers.filter(({ fits }) => fits).sort((a, b) => a.high - b.high);

/** From how many tokens on which candidate is fastest, among those that were asked about. */
export function winners(answers: readonly Answer[]) {
  const sizes = [...new Set(answers.map(({ tokens }) => tokens))].sort((a, b) => a - b);
  const best = sizes.flatMap((from) => {
    const [first, ...others] = ranked(answers.filter(({ tokens }) => tokens === from));
    if (first === undefined) return [];
    const { candidate, source, beyond } = first;
    // It lies beyond what was measured: then also the first of those that do not.
    const predicted = beyond.length > 0;
    const other = predicted ? others.find((one) => one.beyond.length === 0) : undefined;
    const instead = other ? { candidate: other.candidate, source: other.source, time: other.time } : null;
    // Another one's range begins below this one's end: the order may be another.
    const close = others.some(({ low }) => low < first.high);
    return [{ from, candidate, source, close, predicted, instead }];
  });
  const what = ({ candidate, source, close, predicted, instead }: (typeof best)[number]): string =>
    JSON.stringify([candidate, source, close, predicted, instead?.source]);
  return best.filter((one, i) => i === 0 || what(one) !== what(best[i - 1]!));
}

/** `1..4096`: powers of two; `1,8,128`: these. */
export function tokensFrom(text: string): number[] {
  const wrong = () =>
    new ArgumentError('tokens', text, 'a number from 1 to 65536, a list (1,8,128) or a range (1..4096)');
  const whole = (part: string): number => {
    const value = integerIn(part, 1, 65_536);
    if (value === null) throw wrong();
    return value;
  };
  if (!text.includes('..')) return text.split(',').map(whole);
  const [from, to, ...more] = text.split('..').map(whole) as [number, number, ...number[]];
  if (more.length > 0 || from > to) throw wrong();
  const found: number[] = [];
  for (let n = from; n < to; n *= 2) found.push(n);
  return [...found, to];
}
