/** Small wrong kernels, each caught with the finding it deserves, and their corrected twins, which pass. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Finding, formatFinding } from '../../../../src/gpu/sim/index.js';
import { blocks } from './blocks.js';
import { copies } from './copies.js';
import { type Exhibit, findingsOf } from './exhibit.js';
import { field } from './field.js';
import { flags } from './flags.js';
import { products } from './products.js';
import { reuse } from './reuse.js';
import { roles } from './roles.js';
import { streams } from './streams.js';

/** A mistake must show within so many schedules; its correction must stay silent in as many. */
const enough = 20;

async function caught(exhibit: Exhibit): Promise<Finding> {
  const others = new Set<string>();
  for (let seed = 0; seed < enough; seed++) {
    for (const finding of await findingsOf(exhibit, 'wrong', seed)) {
      if (isExpected(finding, exhibit.expect)) return finding;
      others.add(formatFinding(finding));
    }
  }
  throw new Error(`not found in ${enough} schedules; found instead:\n${[...others].join('\n')}`);
}

function isExpected(finding: Finding, wanted: Exhibit['expect']): boolean {
  if (finding.kind !== wanted.kind) return false;
  if (wanted.buffer !== undefined && (!('buffer' in finding) || finding.buffer !== wanted.buffer))
    return false;
  if (wanted.location !== undefined && !wanted.location.test(locationOf(finding))) return false;
  const lines = placesOf(finding).map(lineAt);
  // Which of two racing accesses comes first is the schedule's choice.
  const inOrder = wanted.statements.every((start, i) => lines[i]!.startsWith(start));
  const reversed = wanted.statements.every((start, i) => lines.at(-1 - i)!.startsWith(start));
  if (!inOrder && !reversed) return false;
  return wanted.hint === undefined || wanted.hint.test(adviceOf(finding));
}

/** What it says about the mistake. */
function adviceOf(finding: Finding): string {
  switch (finding.kind) {
    case 'race':
      return finding.hint;
    case 'misuse':
      return finding.message;
    case 'stuck-wait':
      return finding.waiting[0]!.value;
    default:
      return '';
  }
}

function locationOf(finding: Finding): string {
  if (finding.kind === 'stuck-wait') return finding.waiting[0]!.location;
  return 'location' in finding ? finding.location : '';
}

/** Where the finding points to. */
function placesOf(finding: Finding): string[] {
  switch (finding.kind) {
    case 'race':
      return [finding.first.where, finding.second.where];
    case 'divergence':
      return [finding.where];
    case 'stuck-wait':
      return [finding.waiting[0]!.where];
    case 'wrong-result':
    case 'failure':
      return [];
    default:
      return [finding.access.where];
  }
}

/** The source line behind 'flags.ts:41:7'. */
function lineAt(where: string): string {
  const [, file, line] = /^(.*):(\d+):\d+$/.exec(where)!;
  const text = readFileSync(new URL(basename(file!), import.meta.url), 'utf8');
  return text.split('\n')[Number(line) - 1]!.trim();
}

const exhibits = [...flags, ...field, ...reuse, ...blocks, ...copies, ...roles, ...products, ...streams];

describe.each(exhibits)('$name', (exhibit) => {
  it('is found, with both lines and what is missing', async () => {
    const finding = await caught(exhibit);
    expect(finding.configuration).toBe(exhibit.name);
    // Its seed replays it.
    const again = await findingsOf(exhibit, 'wrong', Number(finding.seed));
    expect(again.map(formatFinding)).toContain(formatFinding(finding));
  });

  it('is silent once corrected', async () => {
    for (let seed = 0; seed < enough; seed++) {
      const findings = await findingsOf(exhibit, 'right', seed);
      expect(findings.map(formatFinding)).toEqual([]);
    }
  });
});

it.each(reuse)('$name: has the same hint in every schedule', async (exhibit) => {
  const { hint, ...anyHint } = exhibit.expect;
  for (let seed = 0; seed < enough; seed++) {
    for (const finding of await findingsOf(exhibit, 'wrong', seed)) {
      if (finding.kind === 'race' && isExpected(finding, anyHint)) expect(finding.hint).toMatch(hint!);
    }
  }
});

describe('a finding as text', () => {
  /** Which thread and element it is depends on the schedules; the rest does not. */
  const textOf = async (name: string) => {
    const exhibit = exhibits.find((one) => one.name === name)!;
    const lines = formatFinding(await caught(exhibit)).split('\n');
    const text = lines.slice(0, -1).join('\n'); // the last says which schedule it was
    return text.replaceAll(/\bthread \d+/g, 'thread n').replaceAll(/\[\d+\]/g, '[n]');
  };

  it('names both sides and what is missing', async () => {
    expect(await textOf('release at too narrow a scope')).toMatchInlineSnapshot(`
      "Data race on window, data[n]
          test/gpu/sim/gallery/flags.ts:12:3  g.store(win.at(1).data.at(lane), lane)
            write, weak, by pass on rank 0, block 0, thread n
        is not ordered with
          test/gpu/sim/gallery/flags.ts:33:25  g.load(win.at(1).data.at(lane))
            read, weak, by pass on rank 1, block 0, thread n
        hint: The store at test/gpu/sim/gallery/flags.ts:14:19 has gpu scope, but the load at test/gpu/sim/gallery/flags.ts:31:19 that saw it ran on another rank: use sys."
    `);
  });

  it('says when a buffer is reused too early', async () => {
    expect(await textOf('reuse one round too early')).toMatchInlineSnapshot(`
      "Data race on window, data[n]
          test/gpu/sim/gallery/flags.ts:33:25  g.load(win.at(1).data.at(lane))
            read, weak, by pass on rank 1, block 0, thread n
        is not ordered with
          test/gpu/sim/gallery/flags.ts:12:3  g.store(win.at(1).data.at(lane), lane)
            write, weak, by pass on rank 0, block 0, thread n
        hint: The store overwrites what rank 1 read before, and nothing orders the reuse: no release → acquire at sys scope leads from rank 1, after the first access, to rank 0, before the second."
    `);
  });

  it('says what the machine forbids', async () => {
    expect(await textOf('bulk store not awaited at the end')).toMatchInlineSnapshot(`
      "Misuse: its thread ends while this copy may still read shared memory, which is then the next block's; the copy has not been awaited: do so before the end of the kernel (g.bulk.waitReads)
          shared memory, stage[n]
          test/gpu/sim/gallery/copies.ts:62:5  g.bulk.store(out.as('v16'), stage.as('v16'), 128)
            read, weak, by sent on rank 0, block 0, thread n"
    `);
  });

  it('lists who takes part in a divergent operation', async () => {
    expect(await textOf('barrier under divergence')).toMatchInlineSnapshot(`
      "Divergence: not all threads take part in a barrier of the block
          test/gpu/sim/gallery/blocks.ts:10:17 (divergent_barrier, rank 0, block 0)
          there: threads 0–39; missing: threads 40–63"
    `);
  });
});
