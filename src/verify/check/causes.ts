/**
 * From findings to causes. A rule that GPUs keep though PTX does not ask for it, or a change of the kernel that a hint proposes, is tried:
 * the schedules run again with it, and what does not come back is one cause.
 */
import { getOrMake } from '../../base/maps.js';
import {
  type Assumption,
  assumptions,
  type Finding,
  findingKey,
  formatFinding,
  type KernelModule,
  type Mend,
} from '../../gpu/sim/index.js';
import { demangled } from '../../lang/ptx/index.js';
import { mended, sayMend, type Trial, trialsOf } from './mends.js';
import { runOnce, scheduleOf } from './run.js';
import type { CheckConfiguration } from './subject.js';

export interface Cause {
  /** The first stands for all. */
  readonly findings: readonly Finding[];
  /** The rules that hold on GPUs, by which nothing is wrong: by the letter of PTX's memory model alone. Empty for a race. */
  readonly rules: readonly Assumption[];
  /** The change with which all disappear, in words: '__syncthreads() before all-reduce.cu:88:3'. Null where none was found. */
  readonly mend: string | null;
  /** Schedules in which that was tried. */
  readonly tried: number;
}

/** Why GPUs keep a rule that PTX does not ask for, in a line each. docs/checking.md says where that comes from. */
const reasons: Readonly<Record<Assumption, string>> = {
  launches: 'a launch begins and ends with a fence of all GPUs, of which PTX says nothing',
  barriers:
    'what a thread has fenced comes, behind a barrier, before the stores of all its threads; to PTX before its own',
  clusters:
    'a wait for an mbarrier sees what any block of its cluster did; to PTX it sees its own block’s where it says no scope',
  places:
    'who has seen an atomic’s value stores behind it; to PTX an ordinary store has no place in that order',
  volatile:
    'a thread goes on only once it has a volatile load’s value, and loads so behind what its block has seen; to PTX that load acquires nothing',
  vectors: 'an aligned vector is read and written at once; to PTX its parts are accesses of their own',
};

/** A cause as text: its first finding, how many more it explains and where, and what was tried. */
export function formatCause({ findings, rules, mend, tried }: Cause): string {
  const [first, ...more] = findings;
  const count = findings.length === 1 ? 'it disappears' : `all ${findings.length} findings disappear`;
  const proof = `in ${tried} schedules`;
  return [
    `${rules.length > 0 ? 'By the letter: ' : ''}${formatFinding(first!)}`,
    ...(more.length === 0
      ? []
      : [isOfLaunch(first!) ? `  ${more.length} more may come of it:` : `  explains ${more.length} more:`]),
    ...[...new Set(more.map(shortOf))].map((line) => `    ${line}`),
    ...rules.map((rule) => `  GPUs order it (${rule}): ${reasons[rule]}.`),
    ...(rules.length === 0 ? [] : [`  tried: with --assume ${rules.join(',')} ${count}, ${proof}`]),
    ...(mend === null ? [] : [`  tried: with ${mend} ${count}, ${proof}`]),
  ].join('\n');
}

function shortOf(finding: Finding): string {
  if (finding.kind !== 'race') return formatFinding(finding).split('\n')[0]!;
  return `${finding.buffer}: ${finding.first.where} and ${finding.second.where}`;
}

/** So many schedules try a rule or a mend. */
const mostSeeds = 24;
/** Once the trials of a configuration have made so many steps, no further mend is tried. */
const mostSteps = 20_000_000;
/** So many changes are tried together. */
const mostTogether = 3;

export async function causesOf(
  found: readonly Finding[],
  configurations: readonly CheckConfiguration[],
  seeds: readonly string[],
  assume: readonly Assumption[],
): Promise<readonly Cause[]> {
  const causes: Cause[] = [];
  const launches = found.filter(isOfLaunch);
  for (const name of new Set(found.map(({ configuration }) => configuration))) {
    const configuration = configurations.find((one) => one.name === name)!;
    const findings = found.filter((finding) => finding.configuration === name);
    const tries = [...new Set([...findings.map(({ seed }) => seed), ...seeds])].slice(0, mostSeeds);
    const trials = new Trials({ configuration, seeds: tries, assumed: assume, launches });
    causes.push(...(await trials.causes(findings)));
  }
  const joined = new Map<string, Cause>();
  for (const [i, cause] of causes.entries()) {
    const key = cause.mend === null && cause.rules.length === 0 ? `${i}` : `${cause.mend} ${cause.rules}`;
    const known = joined.get(key);
    const together = known && {
      ...cause,
      findings: [...known.findings, ...cause.findings],
      tried: known.tried + cause.tried,
    };
    joined.set(key, together ?? cause);
  }
  const weight = ({ rules, findings: [first] }: Cause): number =>
    rules.length > 0 ? 2 : isOfLaunch(first!) ? 0 : 1;
  return behindLaunches([...joined.values()].sort((a, b) => weight(a) - weight(b)));
}

/** Threads or blocks that write the same bytes by one statement. */
const isOfLaunch = (finding: Finding): boolean =>
  finding.kind === 'race' && finding.hint.includes('is the launch right');

/** What looks like a wrong launch explains much else: all of its kernel that nothing mends stands behind it. */
function behindLaunches(causes: readonly Cause[]): readonly Cause[] {
  const all: Cause[] = [];
  for (const cause of causes) {
    const isOpen = cause.mend === null && cause.rules.length === 0;
    const behind = ({ findings: [first] }: Cause): boolean =>
      isOfLaunch(first!) && cause.findings.some((one) => isBehind(one, first!));
    const at = isOpen ? all.findIndex(behind) : -1;
    if (at < 0) all.push(cause);
    else all[at] = { ...all[at]!, findings: [...all[at]!.findings, ...cause.findings] };
  }
  return all;
}

/** Whether a launch that looks wrong may explain a finding: of the same kernel, whatever its template has, or of none. */
function isBehind(finding: Finding, launch: Finding): boolean {
  const kernels = kernelsOf(finding);
  return kernels.length === 0 || kernels.includes(kernelsOf(launch)[0]!);
}

function kernelsOf(finding: Finding): readonly string[] {
  const race = finding.kind === 'race' ? [finding.first, finding.second] : [];
  const others = 'access' in finding ? [finding.access] : 'waiting' in finding ? finding.waiting : race;
  return others.map(({ kernel }) => demangled(kernel).name.replace(/<.*/, ''));
}

interface TrialsOf {
  readonly configuration: CheckConfiguration;
  readonly seeds: readonly string[];
  readonly assumed: readonly Assumption[];
  /** Findings of launches that look wrong. */
  readonly launches: readonly Finding[];
}

class Trials {
  readonly #of: TrialsOf;
  #steps = 0;

  constructor(of: TrialsOf) {
    this.#of = of;
  }

  async causes(findings: readonly Finding[]): Promise<readonly Cause[]> {
    const causes: Cause[] = [];
    let left = findings;
    const explain = (
      cause: Omit<Cause, 'findings' | 'tried'>,
      comesBack: ReadonlyMap<string, Finding>,
    ): void => {
      const gone = left.filter((finding) => !comesBack.has(findingKey(finding)));
      if (gone.length === 0) return;
      causes.push({ ...cause, findings: gone, tried: this.#of.seeds.length });
      left = left.filter((finding) => !gone.includes(finding));
    };
    const open = assumptions.filter((rule) => !this.#of.assumed.includes(rule));
    const withAll = open.length === 0 ? null : await this.#run([...this.#of.assumed, ...open], []);
    if (withAll !== null && left.some((finding) => !withAll.has(findingKey(finding)))) {
      for (const rule of open)
        explain({ rules: [rule], mend: null }, await this.#run([...this.#of.assumed, rule], []));
      explain({ rules: open, mend: null }, withAll);
    }
    // A change that mends all goes first, and a wait last: all others stand still for it. Two changes mend nothing that one does.
    for (const pass of [0, 1, 2, 3, 4, 5]) {
      const [most, mendsAll, isWait] = [pass < 4 ? 1 : mostTogether, pass < 2, pass % 2 === 1];
      const tried = new Set<string>();
      for (const finding of left)
        for (const mend of this.#mendsOf(finding, mendsAll)) {
          const key = JSON.stringify(mend);
          if ((mend.kind === 'quiet') !== isWait) continue;
          if (!left.includes(finding) || tried.has(key)) continue;
          tried.add(key);
          await this.#try(mend, most, mendsAll, finding, findings, left, (words, back) =>
            explain({ rules: [], mend: words }, back),
          );
        }
    }
    const others = new Map<Finding, Finding[]>();
    for (const finding of left) getOrMake(others, explaining(finding, left), () => []).push(finding);
    return [
      ...causes,
      ...[...others.values()].map((alike): Cause => ({ findings: alike, rules: [], mend: null, tried: 0 })),
    ];
  }

  /** Where a launch looks wrong, waits for others mend this and that: only one that mends all is worth a word. */
  #mendsOf(finding: Finding, mendsAll: boolean): readonly Mend[] {
    const isWrong = !mendsAll && this.#of.launches.some((launch) => isBehind(finding, launch));
    return mendsOf(finding).filter(({ kind }) => kind !== 'quiet' || !isWrong);
  }

  /**
   * The first form of a mend that makes something disappear and brings nothing new. Where the finding stays, and its hint then asks for
   * something else, both are tried together: a release often lacks its acquire, too.
   */
  async #try(
    mend: Mend,
    most: number,
    mendsAll: boolean,
    finding: Finding,
    all: readonly Finding[],
    left: readonly Finding[],
    explain: (words: string, comesBack: ReadonlyMap<string, Finding>) => void,
  ): Promise<void> {
    const known = new Set(all.map(findingKey));
    for (const trial of trialsOf(mend)) {
      const together = [trial];
      for (;;) {
        if (this.#steps > mostSteps) return;
        const wheres: (string | null)[] = [];
        const isAbsent = (): boolean => wheres.length < together.length || wheres.includes(null);
        const wanted = together.length === 1 ? left : [finding];
        const isWorse = (found: ReadonlyMap<string, Finding>): boolean =>
          [...found.keys()].some((key) => !known.has(key) && !key.startsWith('race'));
        const fails = (found: ReadonlyMap<string, Finding>): boolean =>
          isWorse(found) ||
          (mendsAll
            ? left.some((one) => found.has(findingKey(one)))
            : wanted.every((one) => found.has(findingKey(one))));
        const back = await this.#run(assumptions, together, wheres, (found) => isAbsent() || fails(found));
        if (isAbsent()) return;
        const stays = back.get(findingKey(finding));
        if (!fails(back)) {
          explain(together.map((one, i) => sayMend(one.mend, wheres[i]!)).join(' and '), back);
          return;
        }
        const other = (stays ? this.#mendsOf(stays, mendsAll) : []).find((one) =>
          together.every((has) => JSON.stringify(has.mend) !== JSON.stringify(one)),
        );
        if (isWorse(back) || trial.up > 0 || other === undefined || together.length === most) break;
        together.push({ mend: other, up: 0 });
      }
    }
  }

  /** What is found in these schedules, by its key, or in the first that say `enough`. `wheres` gets the place of each change in the kernels that have it. */
  async #run(
    assume: readonly Assumption[],
    trials: readonly Trial[],
    wheres: (string | null)[] = [],
    enough: (found: ReadonlyMap<string, Finding>) => boolean = () => false,
  ) {
    const made = new Map<KernelModule, KernelModule>();
    const change = (module: KernelModule): KernelModule => {
      let kernel = module;
      for (const [i, trial] of trials.entries()) {
        const { module: changed, where } = mended(kernel, trial);
        wheres[i] ??= where;
        kernel = changed;
      }
      return kernel;
    };
    const substitute = (module: KernelModule) => getOrMake(made, module, () => change(module));
    const found = new Map<string, Finding>();
    for (const seed of this.#of.seeds) {
      const { findings, machine } = await runOnce(this.#of.configuration, {
        ...{ seed, schedule: scheduleOf(seed), assume, substitute, hostLines: true, stepLimit: 2_000_000 },
      });
      this.#steps += machine.statistics.steps;
      for (const finding of findings)
        if (!found.has(findingKey(finding))) found.set(findingKey(finding), finding);
      if (enough(found)) break;
    }
    return found;
  }
}

/**
 * The finding that explains another which no mend did: a race that of a load which found nothing there, any a wrong result, and a misuse or a
 * divergence waits of the same schedule.
 */
function explaining(finding: Finding, all: readonly Finding[]): Finding {
  const isWrong = (one: Finding): boolean => one.kind === 'wrong-result';
  if (isWrong(finding)) return all.find((one) => !isWrong(one)) ?? finding;
  if (finding.kind === 'stuck-wait')
    return all.find(({ kind, seed }) => /misuse|divergence/.test(kind) && seed === finding.seed) ?? finding;
  const { buffer, access } = finding.kind === 'uninitialised-read' ? finding : {};
  const race = all.find(
    (one) =>
      one.kind === 'race' &&
      one.buffer === buffer &&
      [one.first.where, one.second.where].includes(access!.where),
  );
  return race ?? finding;
}

function mendsOf(finding: Finding): readonly Mend[] {
  const stale = (finding.stale ?? []).map(({ mend }) => mend);
  const all =
    finding.kind === 'race' ? [finding.mend, aroundLoop(finding), inPart(finding), ...stale] : stale;
  return all.filter((mend) => mend !== null);
}

/** A barrier of those threads of a block that come there. */
const inPart = ({ mend }: Extract<Finding, { kind: 'race' }>): Mend | null =>
  mend?.kind === 'barrier' ? { ...mend, kind: 'quiet' } : null;

/** In a loop the access that the race met first may belong to the later round: the barrier that is missing stands before it. */
function aroundLoop({ mend, first: { where, kind } }: Extract<Finding, { kind: 'race' }>): Mend | null {
  if ((mend?.kind !== 'barrier' && mend?.kind !== 'quiet') || kind === 'wait' || kind === 'address')
    return null;
  return { ...mend, where, access: kind };
}
