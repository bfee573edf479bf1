/**
 * The window of the portable family: the same layout on every rank. Peers write into it by `put` and `signal` only
 * (transport.ts), and everything that they are sent lies in it too, except the rows that the caller brings: puts of NVSHMEM may
 * read those until combineRecv has ended, as those of `ids`.
 *
 * The writer of each section, and why the next round may write it again:
 *
 * | section | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | begun | dispatchSend of its own rank | combineSend and combineRecv, which begin behind its end | launches of a stream follow each other |
 * | finished | combineRecv of its own rank | the next dispatchSend and dispatchRecv | likewise |
 * | arrived | dispatchSend of each source its word | the owner's dispatchRecv | it only grows, by the same in every round; the wait is ≥ |
 * | home | combineSend of each expert rank its words | the source's combineRecv | they only grow: epochs; waits are ≥ |
 * | released | combineRecv of each rank its word | the owner's combineRecv | likewise |
 * | roundedRows | dispatchSend of its own rank | dispatchSend's puts, however late | as `ids` |
 * | ids, weightsOut | dispatchSend of its own rank | its puts, however late | a dispatchSend is behind this rank's combineRecv, which awaited `released` of every peer, which that sends behind its dispatchRecv, which awaited the puts |
 * | experts, weights, payloads | dispatchSend of every source | the owner's dispatchRecv, experts, weigh, combineSend | a source's dispatchSend is behind its combineRecv, which awaited `released` of the owner, whose combineRecv sends it behind the end of all of them |
 * | counts | the owner's dispatchRecv | the owner's experts | the owner's combineRecv zeroes them between |
 * | output | the owner's experts, or weigh behind them | combineSend and its puts, however late; combineRecv | the next experts are behind the next dispatchRecv, which awaited the sources' next dispatchSend, which is behind their combineRecv, which awaited the puts; this rank's too |
 * | rounded | combineSend of its own rank | its puts, however late | the next combineSend is behind the next experts: as `output` |
 * | returned | combineSend of the expert ranks | the source's combineRecv | their next combineSend is behind their next dispatchRecv, which awaited the source's next dispatchSend, which is behind its combineRecv |
 * | handed | combineRecv of the group's other ranks | the owner's combineRecv | it only grows, as `home` |
 * | sums | combineRecv of the group's ranks, each its share | the owner's combineRecv, and its puts, however late | a rank's next combineRecv is behind its next dispatchRecv, which awaited the group's next dispatchSend, which is behind their combineRecv, which awaited the puts |
 * | failure | its own rank | its own host | the host clears it by a mask |
 * | masked | its own host | its own rank | the host writes it while no rank has a kernel |
 * | waited, waiters | its own rank | its own host | rounds take turns with many entries, each written by one thread of a receive |
 *
 * Where a wait has given up none of these reasons holds, so behind it the sends write nothing. Each says so for itself, since a
 * peer that has all it needs still ends its round well.
 *
 * So the sends wait for nobody; a round's one meeting of all ranks, `released`, is awaited where sums are made.
 */
import { field, layout } from '../../../lang/index.js';
import { formatOf, isMade, type Layer, outputRowBytes, sharing, stretchesOf } from '../../layer/index.js';
import { type Unit, unitBytes, unitOf, widestUnit } from '../common/parts.js';
import { partialDtype, receivedSections, rowsOf, slotShape } from '../common/received.js';
import { hostSections } from '../common/waits.js';
import type { Weighing } from '../common/weigh.js';
import type { PortableTuning } from './knobs.js';

/** The shape to which the kernels of one ExpertParallel are specialised. */
export interface PortableShape extends Weighing, PortableTuning {}

export function portableWindow(shape: PortableShape) {
  const { ranks, maxTokens, topK, weights } = shape;
  const { turns, replicas } = sharing(shape);
  const [groups] = slotShape(shape);
  const { parts } = returnedParts(shape);
  const handedOn = replicas > 1 ? maxTokens : 0;
  const { unit, units } = returnedRow(shape);
  return layout('portable window', {
    /** The round that this rank has sent last, and the one whose sums it has made last. */
    begun: field('u32', [1]),
    finished: field('u32', [1]),
    /** [source]: what has come from it in all rounds, counted as in messages.ts. */
    arrived: field('u64', [ranks]),
    /** [expert rank][turn][part]: the round whose row it has brought home. */
    home: field('u64', [ranks, turns, parts]),
    /** [token][part]: the round whose sum has been handed on. */
    handed: field('u64', [handedOn, parts]),
    /** [rank]: the round whose slots that rank has read. */
    released: field('u64', [ranks]),
    ...hostSections(shape),
    /** Rows that dispatch has rounded, and their scales, one section a payload. */
    roundedRows: shape.payloads.map(({ rowBytes }, p) => {
      const unit = unitOf(shape, p);
      return field(unit, [isMade(shape, p) ? maxTokens : 0, rowBytes / unitBytes[unit]]);
    }),
    /** [destination][token][k]: what each peer is told of this rank's tokens. */
    ids: field('i32', [ranks, maxTokens, topK]),
    weightsOut: field('f32', [ranks, maxTokens, weights ? topK : 0]),
    ...receivedSections(shape),
    /** [source][token]: the experts' rows as they will travel, where that is not as they lie. */
    rounded: field('v16', [ownStays(shape) ? 0 : groups, maxTokens, units]),
    /** [expert rank][turn]: partial rows of this rank's share that came home. */
    returned: field(unit, [ranks, turns, units]),
    /** [token]: sums, this rank's and those that the other ranks of its group handed on. */
    sums: field(summedRow(shape).unit, [handedOn, summedRow(shape).units]),
  });
}

/** Words that count rounds, or what adds up to them: they begin with every bit set, so that the first round wraps them. */
export const roundWords = ['begun', 'finished', 'arrived', 'home', 'handed', 'released'] as const;

export type PortableWindow = ReturnType<typeof portableWindow>;

/** A row of sums, as the caller gets it. */
export function summedRow(layer: Pick<Layer, 'output'>): { readonly unit: Unit; readonly units: number } {
  const bytes = outputRowBytes(layer);
  const unit = widestUnit(bytes);
  return { unit, units: bytes / unitBytes[unit] };
}

/** A row as it comes home. */
export function returnedRow(layer: Pick<Layer, 'output'>): { readonly unit: Unit; readonly units: number } {
  if (ownStays(layer)) return summedRow(layer);
  return { unit: 'v16', units: stretchesOf(layer.output).ALL };
}

/** How it is cut: no part is empty. Rows that are rounded are cut where a stretch ends. */
export function returnedParts({ combine, output }: Pick<PortableShape, 'combine' | 'output'>) {
  const { units } = returnedRow({ output });
  const whole = ownStays({ output }) ? 1 : stretchesOf(output).STRETCH;
  const partUnits = Math.ceil(Math.ceil(units / whole) / combine.parts) * whole;
  return { parts: Math.ceil(units / partUnits), partUnits };
}

/** Whether sums take this rank's own rows where its experts left them. Where rows are rounded on their way, these are too. */
export const ownStays = ({ output }: Pick<Layer, 'output'>): boolean => formatOf(output).rounding === null;

/**
 * Whether a combine's receive may begin while this rank's send still runs. Such a receive must not read through L1, which may hold older
 * bytes: it needs rows of whole vectors, which loads past L1 take, and no group to whose members it hands sums on. Nor may it add to rows
 * that the launch before it may have made.
 */
export const beginsEarly = (layer: Layer): boolean =>
  rowsOf(layer, partialDtype(layer)).vectors && sharing(layer).replicas === 1 && layer.output.adds !== true;
