import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import { familyNamed, oneSided, requireKnobs } from '../../src/moe/families/index.js';
import {
  keepTuned,
  nearest,
  readTuning,
  shippedTunings,
  type TunedShape,
  tunedFor,
} from '../../src/moe/index.js';
import type { Shape } from '../../src/moe/layer/index.js';
import { drawnJson, readAll, spoiltJson } from '../hostile.js';
import { temporaryFolder } from '../temporary.js';
import { deepSeek, targetOn } from './families/target.js';

const layer = { ...deepSeek, ranks: 4, payloads: [{ name: 'x', rowBytes: 14_336 }] };
const entry = (maxTokens: number, change: Partial<TunedShape> = {}): TunedShape => ({
  family: 'one-sided',
  gpu: 'NVIDIA H200',
  ranks: 4,
  topK: 8,
  dispatchBytes: 14_336,
  combineBytes: 14_336,
  maxTokens,
  // Marks the entry: its tuning is found again by its blocks.
  tuning: {
    ...oneSided.defaults(layer, targetOn([0, 0, 0, 0])),
    dispatch: { blocks: maxTokens, threads: 256, parts: 1, inFlight: 2, teams: 1 },
  },
  microseconds: 10,
  ...change,
});
const found = (
  wanted: Partial<Shape>,
  shapes: readonly TunedShape[],
  where: Partial<Pick<TunedShape, 'family' | 'gpu'>> = {},
) =>
  nearest({ ...layer, ...wanted }, { family: 'one-sided', gpu: 'NVIDIA H200', ...where }, shapes)?.dispatch
    .blocks ?? null;

describe('the tuning of the most similar shape', () => {
  const shapes = [entry(32), entry(128), entry(1024)];

  it('is that of the nearest number of tokens, by ratio', () => {
    expect(found({}, shapes)).toBe(128);
    expect(found({ maxTokens: 100 }, shapes)).toBe(128);
    expect(found({ maxTokens: 45 }, shapes)).toBe(32);
    expect(found({ maxTokens: 1400 }, shapes)).toBe(1024);
  });

  it('is none where no shape is alike: within a factor of √2', () => {
    expect(found({ maxTokens: 64 }, shapes)).toBeNull();
    expect(found({ maxTokens: 400 }, shapes)).toBeNull();
    expect(found({ maxTokens: 8 }, shapes)).toBeNull();
    expect(found({ payloads: [{ name: 'x', rowBytes: 3584 }] }, shapes)).toBeNull();
  });

  it('is of the same family and GPU and as many ranks only', () => {
    expect(found({}, shapes, { family: 'portable' })).toBeNull();
    expect(found({}, shapes, { gpu: 'NVIDIA H100' })).toBeNull();
    expect(found({ ranks: 8 }, shapes)).toBeNull();
  });

  it('prefers rows of the same length', () => {
    const fp8 = entry(120, { dispatchBytes: 7392 });
    expect(found({ payloads: [{ name: 'x', rowBytes: 7392 }] }, [...shapes, fp8])).toBe(120);
  });
});

describe('a tuning file', () => {
  const folder = temporaryFolder();
  const read = (text: string) => {
    const path = join(folder, 'tuning.json');
    writeFileSync(path, text);
    return readTuning(path);
  };

  it('is read as it was written', () => {
    const file = { format: 'heddle-tuning/2', date: '2026-11-20', shapes: [entry(8)] };
    expect(read(JSON.stringify(file))).toEqual(file);
  });

  it('is refused where heddle tune cannot have written it, by its name', () => {
    const broken = [
      '{',
      '[]',
      '{"format":"heddle-tuning/2"}',
      JSON.stringify({ format: 'heddle-tuning/1', shapes: [] }),
      ...[{ blocks: 0 }, { way: 'push' }].map((dispatch) => {
        const good = entry(8);
        const tuning = { ...good.tuning, dispatch: { ...good.tuning.dispatch, ...dispatch } };
        return JSON.stringify({ format: 'heddle-tuning/2', shapes: [{ ...good, tuning }] });
      }),
    ];
    for (const text of broken)
      expect(() => read(text), text).toThrow(/tuning\.json".*delete it, and tune again/);
  });

  it('is whole for whoever reads it while a shape is added, which takes the place of an older one', () => {
    const path = join(folder, 'new', 'tuning.json');
    keepTuned(path, entry(128));
    const open = openSync(path, 'r');
    keepTuned(path, entry(8));
    keepTuned(path, entry(128, { microseconds: 9 }));
    expect(JSON.parse(readFileSync(open, 'utf8')).shapes).toEqual([entry(128)]);
    closeSync(open);
    expect(readTuning(path).shapes).toEqual([entry(8), entry(128, { microseconds: 9 })]);
  });

  it('that is torn is said once, and what ships with Heddle counts', () => {
    const path = join(folder, 'torn.json');
    writeFileSync(path, JSON.stringify(shippedTunings).slice(0, 1000));
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    vi.stubEnv('HEDDLE_TUNING', path);
    try {
      const here = { kind: 'cuda', model: 'NVIDIA H200' } as const;
      const shipped = nearest(layer, { family: 'one-sided', gpu: here.model }, shippedTunings.shapes);
      expect(shipped).not.toBeNull();
      for (let create = 0; create < 2; create++) expect(tunedFor(oneSided, layer, here)).toBe(shipped);
      expect(warn.mock.calls).toEqual([
        [
          expect.stringMatching(/^what was tuned here is not used: tuning file is .*torn\.json/),
          expect.anything(),
        ],
      ]);
    } finally {
      vi.unstubAllEnvs();
      vi.restoreAllMocks();
    }
  });

  it('is read or refused, with something hostile at every place', () => {
    const file = { format: 'heddle-tuning/2', date: '2026-11-20', shapes: [entry(8)] };
    readAll([...spoiltJson(file), ...drawnJson(file, 6)], read, ArgumentError, ({ date, shapes }) => {
      expect(typeof date).toBe('string');
      for (const { family, gpu, tuning, microseconds, ...numbers } of shapes) {
        const { ranks, topK, dispatchBytes, combineBytes, maxTokens } = numbers;
        const whole = [ranks, topK, dispatchBytes, combineBytes, maxTokens];
        requireKnobs(familyNamed(family).knobs, tuning);
        if (!whole.every((number) => Number.isSafeInteger(number) && number > 0)) throw new Error(`${whole}`);
        expect([typeof gpu, microseconds > 0 && Number.isFinite(microseconds)]).toEqual(['string', true]);
      }
    });
  });

  it('ships with Heddle in a form that reads back', () => {
    expect(read(JSON.stringify(shippedTunings))).toEqual(shippedTunings);
  });
});
