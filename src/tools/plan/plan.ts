/** `heddle plan`: what dispatch and combine cost on a machine, for everything that could carry them there. */
import { ArgumentError } from '../../base/errors.js';
import { type Family, families, type Travel } from '../../moe/families/index.js';
import { type FormatName, type Profile, rowBytes } from '../../moe/layer/index.js';
import { type DataSheet, fabrics } from './machines.js';
import { type Fit, predict, workOf } from './model.js';
import { type Hits, hits, nodesOf, type RankPlacement, type RoutingLaw } from './routing.js';
import { type Measured, measured, systemOf } from './systems.js';
import { type RoundHalf, traffic } from './traffic.js';

export interface Question {
  readonly model: string;
  readonly layer: Profile;
  readonly machine: DataSheet;
  readonly place: RankPlacement;
  /** Numbers of tokens of a rank. */
  readonly tokens: readonly number[];
  readonly law: RoutingLaw;
  readonly dtype: FormatName;
  readonly combineDtype: FormatName;
  readonly replicas: number;
}

/** Something that carries rows, and what is known of it on the machine. */
export interface Candidate {
  readonly name: string;
  readonly way: Travel;
  readonly source: string;
  /** Bytes of a rank, where the library's layout is known. */
  memory(question: Question, tokens: number): number | null;
  fit(phase: RoundHalf): Fit;
  /** Why its fits are not of the very thing, where they are not. */
  assumes(question: Question): readonly string[];
}

const phases: readonly RoundHalf[] = ['dispatch', 'combine'];

export type Answer = ReturnType<typeof answer>;

/** Where the ranks go. @throws ArgumentError naming what does not fit. */
export function placeOn(
  { name, perNode: most, fabric }: DataSheet,
  ranks: number,
  nodes = Math.ceil(ranks / most),
): RankPlacement {
  if (ranks % nodes !== 0) throw new ArgumentError('ep', ranks, `a multiple of nodes, ${nodes}`);
  const perNode = ranks / nodes;
  if (perNode > most) {
    const mostly = `at least ${Math.ceil(ranks / most)}: a node of ${name} has ${most} GPUs`;
    throw new ArgumentError('nodes', nodes, mostly);
  }
  if (nodes > 1 && fabric === 'none')
    throw new ArgumentError('nodes', nodes, `1: ${name} has no network; see --help for machines with one`);
  return { ranks, perNode };
}

/**
 * All that could carry the rows of `place` on the machine: Heddle's families, and libraries that were measured there inside a node,
 * or beyond it, as `place` is. By rails only groups of ranks inside nodes, whose ranks hand each other sums over NVLink.
 */
export function candidates(machine: DataSheet, place: RankPlacement, replicas = 1): Candidate[] {
  const crosses = nodesOf(place) > 1;
  const known = measured.filter(({ lib, machine: on, dispatch: { ep } }) => {
    const alike = crosses ? ep[1] > machine.perNode : ep[0] <= machine.perNode;
    return lib !== 'heddle' && on === machine.name && alike;
  });
  const own = families.filter(({ reach }) => (reach === 'world') === crosses);
  const all = [...own.map((family) => ofFamily(family, machine, crosses)), ...known.map(published)];
  return all.filter(({ way }) => way.rows !== 'rails' || place.perNode % replicas === 0);
}

function published(one: Measured): Candidate {
  const { way, law, memory } = systemOf(one);
  return {
    ...{ name: `${one.lib}/${one.mode}`, way, source: one.src },
    memory: ({ layer }, tokens) => memory?.(layer, tokens) ?? null,
    fit: (phase) => one[phase],
    assumes: (question) =>
      law.kind === 'perfect' && question.law.kind !== 'perfect'
        ? ['measured with a perfect router only']
        : [],
  };
}

/**
 * One of Heddle's families. Inside a node it needs what one-sided was measured to need, at the machine's NVLink. Beyond it, NVLink
 * costs that, and all else what another library that sends bulk messages through a host proxy needs, at the machine's NIC.
 */
function ofFamily({ name, travel }: Family, machine: DataSheet, crosses: boolean): Candidate {
  const inside = measured.find(({ lib }) => lib === 'heddle')!;
  const network = machine.fabric === 'efa' ? 'h200-efa' : 'h200-cx7';
  const outside = measured.find(({ lib, machine: on }) => lib === 'pplx-garden' && on === network)!;
  const assumes = [
    ...(name === 'one-sided' ? [] : ['a prediction, no measurement of it enters the model']),
    ...(machine.name.startsWith('h200') ? [] : ['Heddle was measured on H200 only']),
    ...(crosses ? [`network as pplx-garden on ${network}`] : []),
  ];
  return {
    ...{ name, way: travel, source: 'Heddle' },
    memory: (question, tokens) => heddleMemory(question, travel, tokens),
    assumes: () => assumes,
    fit(phase) {
      const nvlink = inside[phase].nvlink * (450 / machine.nvlink);
      if (!crosses) return { ...inside[phase], nvlink };
      return { ...outside[phase], nvlink, nic: outside[phase].nic * (fabrics.cx7 / fabrics[machine.fabric]) };
    },
  };
}

/** The candidates of that name. @throws ArgumentError listing the names there are. */
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

/** The values that every candidate needs for every number of tokens. */
export function plan(question: Question, asked: readonly Candidate[]): Answer[] {
  const { layer, place, law, replicas, tokens } = question;
  if (place.ranks % replicas !== 0)
    throw new ArgumentError('replicas', replicas, `a divisor of ep, ${place.ranks}`);
  for (const one of tokens)
    if (one % replicas !== 0) throw new ArgumentError('tokens', one, `a multiple of replicas, ${replicas}`);
  const found = hits(layer, place, law);
  return tokens.flatMap((one) => asked.map((candidate) => answer(question, found, candidate, one)));
}

/** Times in µs, memory in bytes of windows and buffers; null where the library's layout is not known. */
function answer(question: Question, found: Hits, candidate: Candidate, tokens: number) {
  const { layer, place, replicas } = question;
  const assumes = candidate.assumes(question);
  const parts = phases.map((phase) => {
    const row = rowBytes(phase === 'dispatch' ? question.dtype : question.combineDtype, layer.hidden);
    const load = { hits: found, place, tokens, topK: layer.topK, rowBytes: row, replicas };
    const moved = traffic(phase, candidate.way, load);
    const of = candidate.source === 'Heddle' && assumes.length === 0 ? 'its own' : 'others';
    return { phase, traffic: moved, ...predict(candidate.fit(phase), workOf(moved, place), tokens, of) };
  });
  const memory = candidate.memory(question, tokens);
  const sum = (of: (part: (typeof parts)[number]) => number): number =>
    parts.reduce((all, part) => all + of(part), 0);
  return {
    candidate: candidate.name,
    source: candidate.source,
    tokens,
    time: sum(({ time }) => time),
    // Both phases may be off the same way, so their ranges add up.
    low: sum(({ low }) => low),
    high: sum(({ high }) => high),
    phases: parts,
    // The assumptions of the prediction, and beyond what it extrapolates.
    beyond: [...new Set([...assumes, ...parts.flatMap(({ beyond }) => beyond)])],
    memory,
    fits: memory === null || memory <= question.machine.memory * 1e9,
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

/**
 * From how many tokens on which candidates may be fastest, of those that fit into a GPU's memory: one where its range ends before
 * all others begin, else all whose ranges overlap with the range that ends first.
 */
export function fastest(answers: readonly Answer[]) {
  const sizes = [...new Set(answers.map(({ tokens }) => tokens))].sort((a, b) => a - b);
  const found = sizes.map((from) => {
    const all = answers.filter(({ tokens, fits }) => fits && tokens === from);
    const least = Math.min(...all.map(({ high }) => high));
    const among = all.filter(({ low }) => low <= least).sort((a, b) => a.high - b.high);
    return { from, among: among.map(({ candidate, source }) => ({ candidate, source })) };
  });
  const same = (a: (typeof found)[number], b: (typeof found)[number]): boolean =>
    JSON.stringify(a.among) === JSON.stringify(b.among);
  return found.filter((one, i) => one.among.length > 0 && (i === 0 || !same(one, found[i - 1]!)));
}
