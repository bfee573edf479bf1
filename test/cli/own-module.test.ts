/** `heddle check ./mine.ts` and `heddle emit ./mine.ts`: kernels of one's own, in TypeScript as it is. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { heddle } from '../../src/cli/program.js';
import { temporaryFolder } from '../temporary.js';
import { root, transpiled, transpiledUrl } from '../tree.js';
import { heard } from './said.js';

const folder = temporaryFolder();

const door = (path: string): string => JSON.stringify(transpiledUrl(`src/${path}/index.ts`).href);
const write = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};

/** As a user's clone has it: types throughout, and a module beside it that is called .js. */
beforeAll(() => {
  write('package.json', '{ "type": "module", "name": "mine" }');
  write(
    'window.ts',
    `import { field, layout } from ${door('lang')};
export const width: number = 32;
export const mail = layout('mail', { here: field('u32', 1), word: field('u32', 32) });
`,
  );
  write('mine.ts', mine('sys'));
  write('wrong.ts', mine('gpu'));
  write('timed.ts', `${mine('sys')}export const timed = ${timed};\n`);
  write('nothing.ts', 'export const answer: number = 42;\n');
  const one = (name: string) =>
    `export const ${name} = kernel({ name: '${name}', params: { out: pointer('u32') } }, (g, { out }) => { g.store(out, 1); });\n`;
  write('two.ts', `import { kernel, pointer } from ${door('lang')};\n${one('ping')}${one('pong')}`);
});

const timed = `configuration('a copy', { ranks: 2 }, async ({ device, rank }) => {
  const [from, to] = [device.allocate(1024, 'from'), device.allocate(1024, 'to')];
  return { enqueue: (stream) => stream.copy(to.address, from.address, 1024), bytes: 1024 << rank };
})`;

const mine = (scope: string): string => `import { kernel, peers, pointer } from ${door('lang')};
import { configuration, WrongResult } from ${door('verify/check')};
import { mail, width } from './window.js';

interface Round { readonly epoch: number }

export const post = kernel(
  { name: 'post', params: { win: peers(mail), out: pointer('u32'), limit: 'u32' } },
  (g, { win, out, limit }) => {
    const i = g.threadIdx.x;
    if (g.rank === 0) {
      g.store(win.at(1).word.at(i), i * 3);
      g.barrier();
      if (i === 0) g.store(win.at(1).here, 1, { order: 'release', scope: '${scope}' });
    } else {
      if (i === 0) g.awaitEpoch(win.at(1).here, 1, { order: 'acquire', scope: 'sys', limit });
      g.barrier();
      g.store(out.at(i), g.load(win.at(1).word.at(i)));
    }
  },
);

export const ways = [2].map((ranks: number) =>
  configuration(\`a letter among \${ranks}\`, { ranks }, async (world): Promise<void> => {
    const { device, rank } = world;
    const window = await world.createWindow(mail.bytes, 'mail');
    const out = device.allocate(4 * width, 'out');
    const stream = device.createStream();
    const launcher = (await device.load(post.ir())).launcher({ grid: 1, block: width, rank });
    launcher.setWindow('win', window);
    launcher.set('out', out.address);
    launcher.set('limit', 10_000_000);
    launcher.launch(stream);
    const bytes = await stream.copyOut(out.address, 4 * width);
    const round: Round = { epoch: new Uint32Array(bytes.slice().buffer)[5]! };
    if (rank === 1 && round.epoch !== 15) throw new WrongResult('the letter is another');
    await world.barrier();
  }),
);
`;

/** In a process of its own, as a shell starts it. */
function started(...args: readonly string[]) {
  const command = ['--enable-source-maps', transpiled('src/cli/main.ts'), ...args];
  return spawnSync(process.execPath, command, { encoding: 'utf8', timeout: 100_000 });
}

/** In this process; mistakes are told as JSON. */
async function run(...args: readonly string[]) {
  const { given: status, said: stdout } = await heard(() => heddle(args));
  process.exitCode = 0;
  return { status, stdout };
}

test('a mistake in a kernel ends with where its code is explained', () => {
  const body = '(g, { out }) => { g.store(out.at(0), other); }';
  const header = "{ name: 'open', params: { out: pointer('u32') } }";
  const text = `import { kernel, pointer } from ${door('lang')};\nexport const open = kernel(${header}, ${body});\n`;
  const { status, stderr } = started('emit', write('open.ts', text));
  expect(status).toBe(1);
  expect(stderr).toMatch(/^heddle: kernel open has an error\n\n.*open\.ts:2:\d+: HK101 `other`/);
  expect(stderr).toMatch(/\n\(HK101: docs\/language\.md#hk101\)\n$/);
});

test('TypeScript that another names .js is found also where Node.js takes types out by itself', () => {
  // As Node.js 22.18 says of itself; it looks for the file that is named, and for no other.
  const says = "Object.defineProperty(process.features, 'typescript', { value: 'strip' })";
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [
      '--import',
      `data:text/javascript,${encodeURIComponent(says)}`,
      ...[transpiled('src/cli/main.ts'), 'emit', join(folder, 'mine.ts')],
    ],
    { encoding: 'utf8', timeout: 100_000 },
  );
  expect(stderr).toBe('');
  expect(stdout).toContain('post_kernel(');
});

test('of a module of several kernels one is printed by its name', async () => {
  expect((await run('emit', join(folder, 'two.ts'), 'pong')).stdout).toContain('pong_kernel(');
});

test.each<[string, string, readonly string[], RegExp]>([
  ['emit', 'two.ts', [], /two\.ts.* exports several kernels: name one of ping, pong/],
  ['emit', 'mine.ts', ['past'], /^kernel is "past"; it must be one of post$/],
  [
    ...(['emit', join(root, 'examples/ring.ts'), []] as const),
    /ring\.ts"; it must be a module that exports a kernel itself; a function that makes kernels is not one/,
  ],
  ['check', 'nothing.ts', [], /it must be a module that exports kernels, or what configuration/],
  [
    ...(['check', 'mine.ts', ['--list', '--replay', 'random-0']] as const),
    /option '--list' cannot be used with option '--replay <schedule>'/,
  ],
  ['check', './nowhere.ts', [], /nowhere\.ts.*there is no such file/],
  [
    ...(['bench', 'wrong.ts', ['--device', 'sim']] as const),
    /--configuration is "a letter among 2"; it must be one whose program returns a round/,
  ],
  [
    ...(['bench', 'timed.ts', ['--device', 'sim', '--configuration', 'b']] as const),
    /--configuration is "b"; it must be one of a copy, a letter among 2/,
  ],
  ['bench', 'nothing.ts', ['--device', 'sim'], /it must be a module that exports kernels/],
])('heddle %s %s %j says what is wrong', async (command, name, more, message) => {
  const { status, stdout } = await run(command, resolve(folder, name), ...more, '--json');
  expect(status).toBe(2);
  expect(JSON.parse(stdout).error.message).toMatch(message);
});

const throws: string = "export const one: number = 1;\nthrow new Error('no, not today');\n";

test('a module that fails where it is loaded is named with the place, without a stack', () => {
  const { status, stderr } = started('check', write('throws.ts', throws));
  expect(status).toBe(1);
  expect(stderr).toMatch(/^heddle: .* cannot be loaded: .*no, not today \(.*throws\.ts:2:7\) /s);
  expect(stderr).toContain('(HEDDLE_FILE: docs/troubleshooting.md#heddle_file)');
  expect(stderr).not.toMatch(/^ +at /m);
});

/** One function loads modules: all other commands that call it are tried with one that throws. */
test.each([['emit'], ['check', '--ptx', join(root, 'examples/ptx/exchange.ptx'), '--host']])(
  'so it is by heddle %s %s',
  async (...command) => {
    const { status, stdout } = await run(...command, write('throws.ts', throws), '--json');
    expect(status).toBe(1);
    expect(JSON.parse(stdout).error).toMatchObject({
      code: 'HEDDLE_FILE',
      message: expect.stringMatching(/ cannot be loaded: .*no, not today/s),
    });
  },
);

test.each([
  ['unread.ts', 'export const one = ;\n', /unread\.ts\n.*Expression expected/],
  ['unread.js', 'export const one = ;\n', /unread\.js cannot be loaded: Unexpected token ';'/],
  ['enum.ts', 'export enum Way { In, Out }\n', /enum\.ts\n.*enum is not supported/],
  ['alone.ts', "import './nobody.js';\n", /Cannot find module '.*nobody\.(js|ts)'/],
])('%s, which cannot be loaded, is named with the place', async (name, text, message) => {
  const { status, stdout } = await run('check', write(name, text), '--json');
  expect(status).toBe(1);
  const { error } = JSON.parse(stdout);
  expect(error.code).toBe('HEDDLE_FILE');
  expect(error.message).toMatch(/ cannot be loaded: /);
  expect(error.message).toMatch(message);
});

describe('heddle check', () => {
  test('runs what a module exports, and its mutants', async () => {
    const { status, stdout } = await run(
      ...['check', join(folder, 'mine.ts'), '--seeds', '20', '--mutants', '--json'],
    );
    expect(status).toBe(0);
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({ kernels: ['post'], configurations: 1, schedules: 20, findings: [] });
    expect(report.mutants.total).toBeGreaterThan(3);
    expect(report.mutants.killed).toBe(report.mutants.total);
  });

  test('names the line of the TypeScript that it finds wrong', async () => {
    const { status, stdout } = await run('check', join(folder, 'wrong.ts'), 'post', '--seeds', '4');
    expect(status).toBe(1);
    expect(stdout).toMatch(/Data race on mail/);
    expect(stdout).toMatch(/wrong\.ts:14:\d+ {2}g\.store\(win\.at\(1\)\.here, 1/);
    expect(stdout).toMatch(/explains 1 more:\n {4}mail: wrong\.ts:12:\d+ and wrong\.ts:18:\d+\n/);
    expect(stdout).toContain('seen in a letter among 2/random-0');
    const replayed = await run('check', join(folder, 'wrong.ts'), '--replay', 'a letter among 2/random-0');
    expect(replayed.stdout).toContain('1 schedule: 2 findings');
  });

  test('finds that no kernel has run where nobody launches one, or nobody waits for it', async () => {
    const text = `import { configuration } from ${door('verify/check')};
export const idle = configuration('idle', { ranks: 2 }, async () => {});
`;
    for (const how of [[], ['--mutants']]) {
      const { status, stdout } = await run('check', write('idle.ts', text), '--seeds', '4', ...how);
      expect(status).toBe(1);
      expect(stdout).toMatch(/^Failure: no kernel has run: .*\n {2}seen in idle\//);
    }
    const host = `export default (kernels) => [{
  name: 'hasty', ranks: 1,
  async run(machine) {
    const device = machine.device(0);
    const launcher = (await device.load(kernels.kernel('nothing'))).launcher({ grid: 1, block: 32, rank: 0 });
    launcher.launch(device.createStream());
  },
}];
`;
    const ptx = write(
      'nothing.ptx',
      '.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n',
    );
    const nothing = 'export default () => {};';
    const hasty = await run('check', '--ptx', ptx, '--host', write('hasty.js', host), '--seeds', '2');
    expect(hasty.status).toBe(1);
    expect(hasty.stdout).toMatch(/^Failure: no kernel has run: .*\n {2}seen in hasty\//);
    const none = await run('check', '--ptx', ptx, '--json', '--host', write('none.js', nothing));
    expect(none.status).toBe(2);
    expect(none.stdout).toContain('it must be a list of configurations');
  });

  test('lists what a file of PTX has, and what of it would be refused', async () => {
    const head = '.version 8.0\n.target sm_90\n.address_size 64\n';
    const wrong = '.visible .entry plain() { .reg .b64 %rd<2>; suld.b.1d.b32.trap {%rd1}, [%rd0]; ret; }';
    const right =
      '.visible .entry _ZN2ns3addIfLi4EEEvPT_i(.param .u64 a, .param .align 4 .b8 b[12]) { ret; }\n';
    const both = await run('check', '--ptx', write('both.ptx', head + right + wrong));
    expect(both.status).toBe(1);
    expect(both.stdout).toMatch(
      /^ns::add<float, 4>\(float\*, int\)\n.*_ZN2ns3addIfLi4EEEvPT_i\n {4}a: 8 bytes \(u64\)\n {4}b: 12 bytes\nplain\n {4}refused: both.ptx:5: .*suld/,
    );
    expect(both.stdout).toMatch(/\n2 kernels, read in [\d.]+ s; refused: 1\n$/);
    const one = await run('check', '--ptx', write('right.ptx', head + right), '--json');
    expect(one.status).toBe(0);
    expect(JSON.parse(one.stdout)).toMatchObject({
      entries: [{ source: 'ns::add<float, 4>(float*, int)', refused: [] }],
    });
  });

  const hasty = `import { configuration } from ${door('verify/check')};
export const hasty = configuration('hasty', { ranks: 1 }, async () => process.exit(0));
`;
  test.each([
    ['a program', 'exits.ts', hasty],
    ['the module itself', 'exits-at-once.ts', 'process.exit(0);\n'],
  ])('is not clean where %s ends the process', (_, name, text) => {
    const { status, stderr } = started('check', write(name, text));
    expect(stderr).toContain('a program ended this process before the check was done');
    expect(status).toBe(1);
  });

  test('takes once what a module exports by several names', async () => {
    const path = write(
      'several.ts',
      `${mine('sys')}\nexport { post as default };\nexport const [first] = ways;\n`,
    );
    const emitted = await run('emit', path);
    expect(emitted.stdout).toContain('post_kernel(');
    expect((await run('check', path, '--list')).stdout).toBe('several: 1 configuration of post\n');
  });

  test('--list names what there is', async () => {
    const listed = await run('check', join(folder, 'mine.ts'), '--list', 'post');
    expect(listed.stdout).toBe('mine: 1 configuration of post\n  a letter among 2\n');
  });
});

test('the module that the documentation shows has no finding', async () => {
  const page = readFileSync(join(root, 'docs/checking.md'), 'utf8');
  const shown = /```ts\n(import \{ configuration[\s\S]+?)```/.exec(page)![1]!;
  const text = shown.replace("'heddle/check'", door('verify/check')).replace("'heddle/lang'", door('lang'));
  const { status, stdout } = await run('check', write('shown.ts', text), '--seeds', '40');
  expect(stdout).toMatch(/40 schedules: no finding\n/);
  expect(status).toBe(0);
});

describe('heddle bench', () => {
  test('times the round that a configuration returns, on all its ranks', async () => {
    const path = join(folder, 'timed.ts');
    const { status, stdout } = await run(
      ...['bench', path, '--device', 'sim', '--configuration', 'a copy', '--json'],
    );
    expect(status).toBe(0);
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({ unit: 'steps', configuration: 'a copy', ranks: 2, iterations: 1 });
    expect(report.points).toMatchObject([{ bytes: 2048, time: { count: 1 } }]);
    expect(report.points[0].time.median).toBeGreaterThan(0);
    const shown = await run('bench', path, '--device', 'sim', '--configuration', 'a copy');
    expect(shown.stdout).toMatch(/^a copy: 2 ranks, 2 rounds back to back\n.*steps.*\n\n +a round steps/);
  });
});

test('heddle emit prints the CUDA of the only kernel, the IR of one by name, or lists them', async () => {
  const path = join(folder, 'mine.ts');
  expect((await run('emit', path)).stdout).toContain('post_kernel(');
  expect((await run('emit', path, 'post', '--ir')).stdout).toContain('store');
  expect((await run('emit', path, '--list')).stdout).toBe(`post  ${path}\n`);
});
