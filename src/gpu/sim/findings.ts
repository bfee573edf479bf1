/** Collects what a run finds out, each thing once, and turns findings into text. */
import { demangled } from '../../lang/ptx/index.js';
import type { AccessReport, BufferInfo, Finding, StaleRead } from './detector/detector.js';
import { inWordsOf } from './detector/words.js';

type Content<F> = F extends unknown ? Omit<F, 'seed' | 'configuration' | 'stale'> : never;
/** A finding before it knows which run it belongs to. */
export type FindingContent = Content<Finding>;

export class FindingLog {
  readonly findings: Finding[] = [];
  readonly #seen = new Set<string>();
  readonly #seed: string;
  readonly #configuration: string;
  readonly #staleReads: () => readonly StaleRead[];

  constructor(seed: string, configuration: string, staleReads: () => readonly StaleRead[]) {
    this.#seed = seed;
    this.#configuration = configuration;
    this.#staleReads = staleReads;
  }

  add(content: FindingContent): void {
    const key = findingKey(content);
    if (this.#seen.has(key)) return;
    this.#seen.add(key);
    const seed = this.#seed;
    const configuration = this.#configuration;
    this.findings.push({ seed, configuration, ...content, stale: this.#staleReads() } as Finding);
  }

  misuse(message: string, buffer: BufferInfo, offset: number, access: AccessReport): void {
    const said = inWordsOf(access.where, message);
    this.add({
      ...{ kind: 'misuse', message: said, buffer: buffer.purpose, location: buffer.describe(offset) },
      access,
    });
  }

  uninitialised(buffer: BufferInfo, offset: number, access: AccessReport): void {
    const location = buffer.describe(offset);
    this.add({ kind: 'uninitialised-read', buffer: buffer.purpose, location, access });
  }
}

/** Two findings with one key are the same mistake, met again. Wrong values differ from schedule to schedule. */
export function findingKey(finding: FindingContent & { readonly configuration?: string }): string {
  switch (finding.kind) {
    case 'race':
      return `race ${finding.buffer} ${[finding.first.where, finding.second.where].sort().join(' ')}`;
    case 'uninitialised-read':
    case 'out-of-bounds':
    case 'misaligned':
      return `${finding.kind} ${finding.buffer} ${finding.access.where}`;
    case 'misuse':
      return `misuse ${finding.access.where} ${finding.message}`;
    case 'divergence':
      return `divergence ${finding.where}`;
    case 'stuck-wait':
      return `stuck ${[...new Set(finding.waiting.map((wait) => wait.where))].sort().join(' ')}`;
    case 'wrong-result':
    case 'failure':
      return `${finding.kind} ${finding.configuration ?? ''} ${finding.message.replace(/-?\d[\d.e+-]*/g, '#')}`;
  }
}

const headlines: Readonly<Record<Finding['kind'], string>> = {
  race: 'Data race',
  'uninitialised-read': 'Read of memory that nobody wrote',
  'out-of-bounds': 'Access out of bounds',
  misaligned: 'Misaligned access',
  misuse: 'Misuse',
  divergence: 'Divergence',
  'stuck-wait': 'Waits that nobody will end',
  'wrong-result': 'Wrong result',
  failure: 'Failure',
};

/** A finding as text of several lines: what happened, who did it and where, how to see it again. */
export function formatFinding(finding: Finding): string {
  const { configuration, seed } = finding;
  return [
    ...body(finding),
    ...staleReads(finding.stale ?? []),
    `  seen in ${configuration === '' ? `seed ${seed}` : `${configuration}/${seed}`}`,
  ].join('\n');
}

/** At most this many waiters are shown one by one. */
const shownWaiters = 8;

function body(finding: Finding): string[] {
  const headline = headlines[finding.kind];
  switch (finding.kind) {
    case 'race':
      return [
        `${headline} on ${finding.buffer}, ${finding.location}`,
        ...access(finding.first),
        `  is not ordered with`,
        ...access(finding.second),
        ...(finding.hint === '' ? [] : [`  hint: ${finding.hint}`]),
      ];
    case 'uninitialised-read':
    case 'out-of-bounds':
    case 'misaligned':
      return [`${headline}: ${finding.buffer}, ${finding.location}`, ...access(finding.access)];
    case 'misuse':
      return [
        `${headline}: ${finding.message}`,
        `    ${finding.buffer}, ${finding.location}`,
        ...access(finding.access),
      ];
    case 'divergence':
      return [
        `${headline}: not all threads take part in ${finding.operation}`,
        `    ${finding.where} (${demangled(finding.kernel).name}, rank ${finding.rank}, block ${finding.block})`,
        `    there: ${threads(finding.present)}; missing: ${threads(finding.absent)}`,
      ];
    case 'stuck-wait': {
      const shown = finding.waiting.slice(0, shownWaiters);
      const hidden = finding.waiting.length - shown.length;
      return [
        `${headline}: ${finding.waiting.length} ${finding.waiting.length === 1 ? 'thread waits' : 'threads wait'} and nothing else can change that`,
        ...shown.flatMap((wait) => [
          ...access(wait),
          `      ${wait.location} is ${wait.value}, wanted ${wait.wanted}`,
        ]),
        ...(hidden > 0 ? [`    and ${hidden} more`] : []),
      ];
    }
    case 'wrong-result':
    case 'failure':
      return [`${headline}: ${finding.message}`];
  }
}

const shownLoads = 4;

function staleReads(loads: readonly StaleRead[]): string[] {
  if (loads.length === 0) return [];
  const hidden = loads.length - shownLoads;
  return [
    loads.some(({ load, missingValue }) => load.kind !== 'read' || missingValue === null)
      ? '  before it, accesses came in another order, or loads read older values, as they may where nothing orders them:'
      : '  before it, loads read older values, as they may where nothing orders the newer store before them:',
    ...loads
      .slice(-shownLoads)
      .flatMap(({ buffer, location, load, value, from, missing, missingValue, hint }) => [
        ...access(load),
        missingValue === null
          ? `      of ${buffer}, ${location}, came behind the store that stands behind it,`
          : load.kind === 'write'
            ? `      put ${value} into ${buffer}, ${location}, before ${missingValue} by`
            : `      saw ${value} in ${buffer}, ${location} (${from === null ? 'what was there at first' : `stored at ${from.where}`}), not ${missingValue}, by`,
        ...access(missing),
        ...torn(load),
        `      hint: ${hint}`,
      ]),
    ...(hidden > 0 ? [`    and ${hidden} more`] : []),
  ];
}

/** PTX's vector accesses are those of their parts. */
function torn({ text, order }: AccessReport): string[] {
  const [, parts] = /^(?:ld|st)\.[\w.:]*\.v(\d)\./.exec(text) ?? [];
  if (parts === undefined || order === 'weak') return [];
  return [`      the ${parts === '2' ? 'two halves' : 'parts'} of this v${parts} came apart`];
}

function access(a: AccessReport): string[] {
  const strength = a.kind === 'wait' || a.order !== 'weak' ? `${a.order} at ${a.scope} scope` : 'weak';
  const what = a.kind === 'address' ? 'addressed' : `${a.kind}, ${strength},`;
  return [
    `    ${a.where}  ${a.text}`,
    `      ${what} by ${demangled(a.kernel).name} on rank ${a.rank}, block ${a.block}, thread ${a.thread}`,
    ...(a.origin === undefined ? [] : [`      enqueued by ${a.origin}`]),
  ];
}

/** Thread numbers as ranges: 0–3, 7. */
function threads(numbers: readonly number[]): string {
  if (numbers.length === 0) return 'none';
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts: string[] = [];
  let first = sorted[0]!;
  let last = first;
  for (const n of [...sorted.slice(1), Number.POSITIVE_INFINITY]) {
    if (n === last + 1) {
      last = n;
      continue;
    }
    parts.push(first === last ? `${first}` : `${first}–${last}`);
    first = n;
    last = n;
  }
  return `${sorted.length === 1 ? 'thread' : 'threads'} ${parts.join(', ')}`;
}
