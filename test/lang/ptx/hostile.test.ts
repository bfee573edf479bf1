/** Texts that are nearly PTX: each is read, or refused with the line at which it is wrong, and soon. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PtxError, ptx } from '../../../src/lang/ptx/index.js';
import { readAll } from '../../hostile.js';
import { root } from '../../tree.js';

const valid = `${readFileSync(join(root, 'examples/ptx/exchange.ptx'), 'utf8')}
.global .align 4 .b8 text[3] = {104, 105, 0};
.extern .shared .align 16 .b8 dynamic[];
.pragma "nothing";
.visible .entry vectors(.param .align 4 .b8 pair[8], .param .f32 by) .maxntid 128, 2, 1 .pragma "nothing"; {
  .pragma "nounroll";
  called: .callprototype _ (.param .b32 _);
  .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p<1>;
  .loc 1 9 5, function_name $L__info, inlined_at 1 12 1
  @!%p0 st.global.v2.u32 [%rd1+-8], {%r1, 0x1F};
  ret;
}`;

/** What stands there, blanks and ends of lines among it, so that joined they are the text again. */
const parts = valid.match(/\s+|[\w$%.:]+|[^\w\s]/g)!;

/** What may stand in the place of any other. */
const others = [
  ...['', ' ', '\n', '\0', '\ud800'],
  ...'" { } ( ) [ ] < > , ; : = @ ! - /*'.split(' '),
  ...'0 -1 1.5 4294967296 99999999999999999999 0x 0f3F80 1e999 NaN __proto__ constructor toString'.split(' '),
  ...'.reg .param .entry .func .loc .file .section .align .b64 .maxntid .version'.split(' '),
  ...'%r<4294967296> ld. ..... st.global.v9.u7'.split(' '),
];

function* spoilt(): Generator<string> {
  const text = (from: number, to: number, put: string) =>
    parts.slice(0, from).join('') + put + parts.slice(to).join('');
  yield valid;
  for (const [at, part] of parts.entries()) {
    if (part.trim() === '') continue;
    yield text(at, at + 1, part + part);
    yield text(at, parts.length, '');
    // Each of them at every seventh place: at all of them it would take seconds.
    for (const [i, other] of others.entries()) if (i % 7 === at % 7) yield text(at, at + 1, other);
  }
}

const drawn = fc.sample(
  fc.array(fc.record({ at: fc.nat(parts.length - 1), put: fc.constantFrom(...others, ...parts) }), {
    minLength: 1,
    maxLength: 5,
  }),
  { seed: 25, numRuns: 250 },
);

const many = [[], ...drawn].map((edits) => {
  const copy = [...parts];
  for (const { at, put } of edits) copy[at] = put;
  return copy.join('');
});

/** What a reader that recurses would run out of stack at, and what would take it for ever. */
const boundless = [
  ...['{', 'ld {', 'ld (', 'ld -', 'ld [a, '].map((again) => `.entry deep() { ${again.repeat(100_000)}`),
  `.global .b8 deep[] = ${'{'.repeat(100_000)}`,
  [
    '.entry many() { call many0; }',
    ...Array.from({ length: 40 }, (_, i) => `.func many${i}() { call many${i + 1}; call many${i + 1}; }`),
    '.func many40() { ret; }',
  ].join('\n'),
]
  .map((text) => `.version 8.0\n${text}`)
  .concat(valid);

test.each([
  ['something is nested without end, or called ever more often', boundless],
  ['one part is another, twice there, or the last', spoilt()],
  ['several parts are others', many],
])('a module in which %s is read, or refused with its line', (_, inputs) => {
  const read = (text: string) => {
    try {
      const { kernels, kernel } = ptx(text, 'hostile.ptx');
      return kernels.map((name) => kernel(name));
    } catch (error) {
      if (error instanceof PtxError) expect(error.message).toMatch(/hostile\.ptx:\d+/);
      throw error;
    }
  };
  readAll(inputs, read, PtxError, (kernels) => {
    for (const { params, parameterBytes } of kernels) {
      expect(Number.isSafeInteger(parameterBytes)).toBe(true);
      for (const { offset, bytes } of params) expect(offset + bytes).toBeLessThanOrEqual(parameterBytes);
    }
  });
});
