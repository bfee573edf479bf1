/** The programs of the gallery, which the playground shows too: each is caught, at its lines, and mended. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { transformSync } from 'amaro';
import { describe, expect, it } from 'vitest';
import { type Finding, formatFinding } from '../../../../src/gpu/sim/index.js';
import { programOf, runProgram } from './program.js';
import { mended, programs } from './programs.js';

const seeds = Array.from({ length: 40 }, (_, seed) => `${seed}`);
const textOf = (file: string): string => readFileSync(join(import.meta.dirname, 'programs', file), 'utf8');

async function findingsOf(file: string, text: string, seed: string): Promise<readonly Finding[]> {
  const program = programOf(file, text, transformSync(text, { mode: 'strip-only' }).code);
  const schedule = Number(seed) % 2 === 0 ? 'random' : 'priority';
  return (await runProgram(program, { seed, schedule })).findings;
}

describe.each(programs)('$file', (shown) => {
  const text = textOf(shown.file);

  it('is found, at its lines', async () => {
    const lines = text.split('\n');
    const found = new Set<string>();
    for (const seed of seeds) {
      for (const finding of await findingsOf(shown.file, text, seed)) {
        const at = placesOf(finding).map((where) => {
          const [, file, line] = /^(.*?):(\d+)(?::\d+)?$/.exec(where)!;
          expect(file).toBe(shown.file);
          return lines[Number(line) - 1]!.trim();
        });
        const { kind, hint, lines: wanted } = shown.expect;
        const points = [at, at.toReversed()].some((some) =>
          wanted.every((start, i) => some[i]?.startsWith(start)),
        );
        const hints = hint === undefined || (finding.kind === 'race' && hint.test(finding.hint));
        if (finding.kind === kind && points && hints) return;
        found.add(formatFinding(finding));
      }
    }
    expect.unreachable(`found instead:\n${[...found].join('\n')}`);
  });

  it('is silent once mended', async () => {
    for (const seed of seeds) {
      const findings = await findingsOf(shown.file, mended(text, shown), seed);
      expect(findings.map(formatFinding)).toEqual([]);
    }
  });
});

function placesOf(finding: Finding): string[] {
  if (finding.kind === 'race') return [finding.first.where, finding.second.where];
  if (finding.kind === 'stuck-wait') return [finding.waiting[0]!.where];
  return 'where' in finding ? [finding.where] : [];
}
