/** The findings of a check, for other programs: annotations of GitHub, SARIF, and findings that a project knows. */
import { readFileSync } from 'node:fs';
import { isAbsolute, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ArgumentError } from '../base/errors.js';
import { naming } from '../base/files/index.js';
import { type Cause, type Finding, formatCause, formatFinding } from '../verify/check/index.js';
import { version } from './start.js';

interface Place {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** The place that a text like 'copy.cuh:20:3, inlined at all-reduce.cu:11:5' begins with. */
function placeIn(where: string, sources: readonly string[]): Place | null {
  const [, name, line, column] = /^(.+?):(\d+)(?::(\d+))?(?:,|$)/.exec(where) ?? [];
  if (name === undefined) return null;
  const path = sources.find((source) => source === name || source.endsWith(`/${name}`)) ?? name;
  const near = relative('', path);
  const file = isAbsolute(path) && !near.startsWith('..') ? near : path;
  return { file: file.replaceAll('\\', '/'), line: Number(line), column: Number(column ?? 1) };
}

function placesOf(finding: Finding): readonly { readonly where: string; readonly text: string }[] {
  switch (finding.kind) {
    case 'race':
      return [finding.first, finding.second];
    case 'divergence':
      return [{ where: finding.where, text: finding.operation }];
    case 'stuck-wait':
      return finding.waiting;
    case 'wrong-result':
    case 'failure':
      return (finding.stale ?? []).flatMap(({ load, missing }) => [load, missing]);
    default:
      return [finding.access];
  }
}

interface Told {
  readonly level: 'error' | 'warning';
  /** 'race', or 'by-the-letter' */
  readonly rule: string;
  readonly title: string;
  readonly text: string;
  /** Where it is to be mended, if that was found out; then where the accesses stand. */
  readonly places: readonly Place[];
  readonly key: string;
}

function told({ causes, sources, letter }: Findings): Told[] {
  return causes.map((cause): Told => {
    const [first] = cause.findings;
    const wheres = [
      cause.mend?.replace(/^.*? (before|after|at) /, '') ?? '',
      ...placesOf(first!).map(({ where }) => where),
    ];
    const byTheLetter = cause.rules.length > 0;
    return {
      level: byTheLetter && !letter ? 'warning' : 'error',
      rule: byTheLetter ? 'by-the-letter' : first!.kind,
      title: formatFinding(first!).split(/[\n,:]/, 1)[0]!,
      text: formatCause(cause),
      places: wheres.map((where) => placeIn(where, sources)).filter((place) => place !== null),
      key: keyOf(first!),
    };
  });
}

export interface Findings {
  readonly causes: readonly Cause[];
  /** Paths of the sources, whose last parts findings name. */
  readonly sources: readonly string[];
  /** Whether what is wrong by the letter alone counts. */
  readonly letter: boolean;
}

const escaped = (text: string): string =>
  text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
const property = (text: string): string => escaped(text).replaceAll(':', '%3A').replaceAll(',', '%2C');

/** A line for each cause, which a workflow of GitHub's shows beside the line of the source. */
export function github(findings: Findings): string[] {
  return told(findings).map(({ level, title, text, places: [place] }) => {
    const at =
      place === undefined ? '' : `file=${property(place.file)},line=${place.line},col=${place.column},`;
    return `::${level} ${at}title=${property(title)}::${escaped(text)}`;
  });
}

/** Causes as SARIF 2.1.0 has results of an analysis. */
export function sarif(findings: Findings) {
  const all = told(findings);
  const location = ({ file, line, column }: Place) => ({
    physicalLocation: {
      artifactLocation: { uri: isAbsolute(file) ? pathToFileURL(file).href : encodeURI(file) },
      region: { startLine: line, startColumn: column },
    },
  });
  const results = all.map(({ level, rule, text, places: [place, ...others], key }) => ({
    ...{ ruleId: rule, level, message: { text }, partialFingerprints: { 'heddle/v1': key } },
    locations: place === undefined ? [] : [location(place)],
    relatedLocations: others.map((other) => ({ ...location(other), message: { text: 'an access of it' } })),
  }));
  const rules = [...new Set(all.map(({ rule }) => rule))].map((id) => ({ id }));
  return {
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [{ tool: { driver: { name: 'heddle', version: version(), rules } }, results }],
  };
}

/** The name of a mistake that stays the same where lines move and registers are numbered anew. */
function keyOf(finding: Finding): string {
  const accesses = placesOf(finding).map(({ where, text }) => {
    const operation = text.replace(/ \([^ ]+:\d+\)$/, '').replaceAll(/%\w+/g, '%');
    return `${where.replaceAll(/(:\d+)+/g, '')} ${operation}`;
  });
  const about = 'buffer' in finding ? finding.buffer : 'message' in finding ? finding.message : '';
  return [finding.kind, about.replaceAll(/\d+/g, '#'), ...[...new Set(accesses)].sort()].join(' | ');
}

/** The findings of a report of `--json`: a function leaves of causes those that have others, too, or one more often. */
export function knownFrom(file: string): (causes: readonly Cause[]) => readonly Cause[] {
  const known = keysIn(file);
  return (causes) => {
    const left = [...known];
    const isKnown = (finding: Finding): boolean => {
      const at = left.indexOf(keyOf(finding));
      if (at >= 0) left.splice(at, 1);
      return at >= 0;
    };
    return causes.filter(({ findings }) => !findings.map(isKnown).every(Boolean));
  };
}

function keysIn(file: string): readonly string[] {
  const text = naming(file, 'read', () => readFileSync(file, 'utf8'));
  try {
    return (JSON.parse(text) as { readonly findings: readonly Finding[] }).findings.map(keyOf);
  } catch {
    throw new ArgumentError('--baseline', file, 'a report of heddle check --json');
  }
}
