/** The files that `heddle plan` takes, with something hostile at every place of them. */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import {
  type Cell,
  calibrationText,
  ceilingOfBench,
  cellsOfBench,
  lawFrom,
  machineFrom,
  networkOfBench,
  observe,
  parameterNames,
  parseCells,
  parseMachine,
  shippedCells,
} from '../../../src/tools/plan/index.js';
import { drawnJson, readAll, spoiltJson } from '../../hostile.js';

const results = resolve(import.meta.dirname, '../../../docs/results');
const parsed = (name: string) => JSON.parse(readFileSync(join(results, name), 'utf8'));
const everywhere = (valid: unknown) => [...spoiltJson(valid), ...drawnJson(valid, 7)];

const isPositive = (value: number) => Number.isFinite(value) && value > 0;
const expectCells = (cells: readonly Cell[]) => {
  for (const cell of cells) expect(isPositive(observe(cell).us), JSON.stringify(cell)).toBe(true);
};

/** As small as a report gets that has one of everything. */
const { format, unit, workload, machine } = parsed('2026-11-21-4xh200-bench-deepseek_v3-bf16.json');
const bench = {
  ...{ format, unit },
  workload: { ...workload, payloads: [], batches: [] },
  machine: { gpus: machine.gpus.slice(0, 1) },
  points: [
    {
      tokens: 8,
      rows: [
        { subject: 'heddle', phase: 'dispatch', time: 20 },
        { subject: 'stores', phase: 'dispatch', physical: 300 },
      ],
    },
  ],
};
const figures = parsed('fabric-tcp.json').figures.filter(({ what }: { what: string }) =>
  /latency of an 8-byte write, c|rate of 8-byte writes, c|bandwidth of 1 MiB writes, c|scatter to 63 peers, c/.test(
    what,
  ),
);

describe('hostile', () => {
  it('files of cells are read or refused', () => {
    const [timed, fast] = [
      shippedCells().find(({ us }) => us !== null),
      shippedCells().find(({ us }) => us === null),
    ];
    for (const cell of [timed, fast])
      readAll(everywhere([cell]), (text) => parseCells('cells.json', text), ArgumentError, expectCells);
  });

  it('reports of benchmarks are read or refused', () => {
    readAll(everywhere(bench), (text) => cellsOfBench('bench.json', text), ArgumentError, expectCells);
    readAll(
      everywhere(bench),
      (text) => ceilingOfBench('bench.json', text),
      ArgumentError,
      (ceiling) => expect(isPositive(ceiling)).toBe(true),
    );
  });

  it('reports of the network are read or refused', () => {
    const read = (text: string) => networkOfBench('fabric.json', text);
    readAll(everywhere({ figures }), read, ArgumentError, ({ provider, latency, message, nic }) => {
      expect(typeof provider).toBe('string');
      expect([latency, message, nic].every(isPositive)).toBe(true);
    });
  });

  it('measured loads are read or refused', () => {
    for (const loads of [
      [3, 0, 1],
      [[0, 1], [2]],
    ])
      readAll(
        everywhere(loads),
        (text) => lawFrom('loads.json', text),
        ArgumentError,
        (law) => {
          if (law.kind === 'counts')
            expect(law.counts.every((count) => count >= 0 && Number.isFinite(count))).toBe(true);
          else expect(law.kind === 'routes' && law.tokens.flat().every(Number.isInteger)).toBe(true);
        },
      );
  });

  it('files of machines are read or refused', () => {
    const cells = cellsOfBench('bench.json', JSON.stringify(bench));
    const mine = machineFrom(cells, {
      name: 'lab',
      nic: 1,
      network: networkOfBench('fabric.json', JSON.stringify({ figures })),
    });
    readAll(
      everywhere(mine),
      (text) => parseMachine('lab.json', text),
      ArgumentError,
      (known) => {
        expect(calibrationText(known)).toContain(known.machine.title);
        const calibrations = [...known.calibrations, ...(known.network === undefined ? [] : [known.network])];
        for (const { parameters, covariance } of calibrations.flatMap(({ fits }) => Object.values(fits))) {
          expect(parameterNames.every((name) => isPositive(parameters[name]))).toBe(true);
          expect(covariance.flat().filter(Number.isFinite)).toHaveLength(parameterNames.length ** 2);
        }
      },
    );
  });
});
