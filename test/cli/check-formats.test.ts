/** What `heddle check` says to other programs: annotations, SARIF, and what is new since a report. */
import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { runCheck } from '../../src/cli/check.js';
import { heddle } from '../../src/cli/program.js';
import { ptx } from '../../src/lang/index.js';
import { everyRank } from '../../src/verify/check/public.js';
import { temporaryFolder } from '../temporary.js';
import { err, hear } from './said.js';

hear();
const folder = temporaryFolder();

/** Two ranks store to the first word of rank 0, and may to another too; `line` is that of the first store in the source. */
function subject(line: number, stores = 1) {
  const store = (at: number) => `.loc 1 ${line + at} 5\nst.global.u32 [%rd1+${4 * at}], %r1;`;
  const program = ptx(
    `.version 8.0\n.target sm_90\n.address_size 64
    .visible .entry _Z3putPj(.param .u64 put_param_0) {
      .reg .b32 %r<2>; .reg .b64 %rd<2>;
      ld.param.u64 %rd1, [put_param_0];
      mov.u32 %r1, 1;
      ${Array.from({ length: stores }, (_, at) => store(at)).join('\n')}
      ret;
    }
    .file 1 "/home/me/project/src/put, twice.cu"`,
    'put.ptx',
  );
  const kernel = program.kernel('put', { params: ['to'] });
  const configuration = everyRank('x', { ranks: 2 }, async (host) => {
    const [to] = await host.windows('box', 'u32', 4);
    host.launch(kernel, { grid: 1, block: 1 }, { to: to! });
  });
  const sources = [...program.module.sources.values()];
  return [{ name: 'put', kernels: ['put'], configurations: [configuration], sources }];
}

const options = { seeds: 2, workers: 1 };
const put = '/home/me/project/src/put, twice.cu';

test('an annotation stands at the line of the source', async () => {
  const { text, clean } = await runCheck(subject(7), [], { ...options, format: 'github' });
  expect(clean).toBe(false);
  const [annotation, ...rest] = text.trimEnd().split('\n');
  expect(annotation).toContain(
    `::error file=${put.replace(',', '%2C')},line=7,col=5,title=Data race on box::`,
  );
  expect(annotation).toContain('%0A');
  expect(annotation).toContain('st.global.u32 [%25rd1+0], %25r1;');
  expect(annotation).toContain('by put on rank 0');
  expect(rest[0]).toContain('1 finding');
});

test('SARIF has what its schema requires', async () => {
  const { text } = await runCheck(subject(7, 2), [], { ...options, format: 'sarif' });
  const log = JSON.parse(text);
  expect(log).toMatchObject({ version: '2.1.0', $schema: expect.stringContaining('sarif-2.1.0') });
  const [{ tool, results }] = log.runs;
  expect(tool.driver).toMatchObject({ name: 'heddle', version: expect.stringMatching(/^\d+\.\d+\.\d+/) });
  const rules = tool.driver.rules.map(({ id }: { readonly id: string }) => id);
  expect(new Set(rules).size).toBe(rules.length);
  expect(results.length).toBeGreaterThan(0);
  for (const { ruleId, level, message, locations, relatedLocations, partialFingerprints } of results) {
    expect(rules).toContain(ruleId);
    expect(['none', 'note', 'warning', 'error']).toContain(level);
    expect(message.text).toMatch(/^Data race/);
    expect(locations).toHaveLength(1);
    for (const { physicalLocation } of [...locations, ...relatedLocations]) {
      expect(new URL(physicalLocation.artifactLocation.uri).pathname).toBe(encodeURI(put));
      expect(physicalLocation.region.startLine).toBeGreaterThanOrEqual(7);
    }
    for (const print of Object.values(partialFingerprints)) expect(print).toBeTypeOf('string');
  }
});

test('a path below the working folder is relative to it', async () => {
  const [one] = subject(7);
  const sources = [join(process.cwd(), 'src/put, twice.cu')];
  const { text } = await runCheck([{ ...one!, sources }], [], { ...options, format: 'github' });
  expect(text).toContain(`file=${relative('', sources[0]!).replace(',', '%2C')},line=7`);
});

test('what a report has is known, wherever its lines have moved; what is new is not', async () => {
  const baseline = join(folder, 'known.json');
  writeFileSync(baseline, (await runCheck(subject(7), [], { ...options, json: true })).text);
  const moved = await runCheck(subject(70), [], { ...options, baseline });
  expect(moved.clean).toBe(true);
  expect(moved.text).toContain('no finding, and 1 known');
  const more = await runCheck(subject(70, 2), [], { ...options, baseline, format: 'github' });
  expect(more.clean).toBe(false);
  expect(more.text.match(/::error/g)).toHaveLength(1);
  expect(more.text).toContain('line=71,');
});

test.each([
  ['{}', 'a report of heddle check --json'],
  [null, 'cannot be read'],
])('a baseline that is %s is refused before anything runs', async (content, says) => {
  const file = join(folder, `${content}.json`);
  if (content !== null) writeFileSync(file, content);
  expect(await heddle(['check', 'portable', '--baseline', file])).toBeGreaterThan(0);
  expect(err).toContain(says);
});
