import { describe, expect, it, vi } from 'vitest';
import { Command } from '../../src/cli/commander.js';
import { commands, heddle } from '../../src/cli/program.js';
import { err, forget, hear, out } from './said.js';

hear();

it('lists every command without being told one', async () => {
  expect(await heddle([])).toBe(0);
  for (const { name } of commands) expect(out).toMatch(new RegExp(`^  ${name} `, 'm'));
});

it('says its version', async () => {
  expect(await heddle(['--version'])).toBe(0);
  expect(out).toMatch(/^\d+\.\d+\.\d+\n$/);
});

describe.each(commands)('heddle $name', ({ name, load }) => {
  it('takes --json, and shows an example', async () => {
    const command = new Command().enablePositionalOptions().command(name);
    (await load()).register(command);
    const leaves = command.commands.length > 0 ? command.commands : [command];
    for (const leaf of leaves) {
      expect(leaf.options.map(({ long }) => long)).toContain('--json');
      let help = '';
      leaf.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
      expect(help).toMatch(/Examples?:/);
      expect(help).toMatch(/Exit codes?:/);
    }
  });
});

it('shows the help of one command, either way', async () => {
  expect(await heddle(['help', 'emit'])).toBe(0);
  const first = out;
  forget();
  expect(await heddle(['emit', '--help'])).toBe(0);
  expect(out).toBe(first);
  expect(out).toContain('--shape');
});

it.each<[string[], string | RegExp]>([
  [['chek'], /unknown command 'chek'\n\(Did you mean check\?\)/],
  [['emit', '--shap', 'x'], 'Did you mean --shape?'],
  [
    ['check', 'one_sided_dispach'],
    /^heddle: kernel is "one_sided_dispach"; it must be one of \d+ names, such as one_sided_dispatch(, \w+){4} \(--list shows all\)/,
  ],
  [['fabric', 'nope'], /^heddle: command of fabric is "nope"; it must be one of \w+, .*help/],
  [['bench', 'nope'], /^heddle: command of bench is "nope"; it must be one of \w+, .*help/],
  [
    ['run', '-n', '200', '--device', 'sim', 'program.js'],
    'ranks is 200; it must be at most 128 on each node where GPUs are simulated',
  ],
  [['emit'], "error: missing required argument 'kernel' (--list shows all)"],
  [['check', '--host', 'a.ts'], '--host is "a.ts"; it must be given with --ptx, the file whose'],
  [['check', './a.ts', '--ptx', 'a.ptx'], '--ptx is "a.ptx"; it must be left out where a module is named'],
  [['check', './a.ts', '--host', 'b.ts'], '--host is "b.ts"; it must be left out where a module is named'],
  [
    ['check', '--list', '--replay', 'NaN'],
    "option '--list' cannot be used with option '--replay <schedule>'",
  ],
  [['check', 'portable', '--replay', 'none'], '--replay is "none"; it must be'],
  [['run', '-n', '2', 'README.md'], 'program is "README.md"; it must be a JavaScript or TypeScript file'],
])('says of %j what is missing or wrong, by the name of the option', async (args, message) => {
  expect(await heddle(args)).toBe(2);
  expect(err).toMatch(message);
});

it('counts schedules in words that fit', async () => {
  expect(await heddle(['check', 'router, one token', '--seeds', '1', '--workers', '1'])).toBe(0);
  expect(out).toContain('1 configuration, 1 schedule: no finding\n');
});

describe('an error', () => {
  it('is one line that says what to do, with its code and without a stack', async () => {
    expect(await heddle(['emit', 'one_sided_dispatch', '--shape', 'ranks=73'])).toBe(2);
    expect(err).toBe(
      'heddle: --shape ranks is 73; it must be an integer from 1 to 72 (HEDDLE_ARGUMENT: docs/troubleshooting.md#heddle_argument)\n',
    );
    expect(out).toBe('');
  });

  it('is JSON where JSON was asked for', async () => {
    expect(await heddle(['demo', '--experts', '0', '--json'])).toBe(2);
    expect(JSON.parse(out)).toEqual({
      error: {
        code: 'HEDDLE_ARGUMENT',
        message: "option '--experts <n>' argument '0' is invalid. It must be an integer from 1 to 65536.",
      },
    });
    expect(err).toBe('');
  });

  it.each([
    [['-n', '2', '/no/program.js', '--json'], /^heddle: program is "\/no\/program\.js"; it must be/],
    [['/no/program.js', '--json'], /^error: required option '-n, --ranks <count>' not specified/],
  ])('is no JSON where JSON was asked of the program that `heddle run` starts: %j', async (args, message) => {
    expect(await heddle(['run', ...args])).toBe(2);
    expect(err).toMatch(message);
    expect(out).toBe('');
    expect(await heddle(['run', '--json', ...args])).toBe(2);
    expect(JSON.parse(out)).toMatchObject({ error: { code: 'HEDDLE_ARGUMENT' } });
  });

  it('that nobody expected asks to be reported, with its stack', async () => {
    const demo = commands.find(({ name }) => name === 'demo')!;
    vi.spyOn(demo, 'load').mockRejectedValue(new TypeError('the room is broken'));
    expect(await heddle(['demo'])).toBe(1);
    expect(err).toMatch(
      /^heddle failed unexpectedly\. Please report this:\nTypeError: the room is broken\n +at /,
    );
    // … and leaves the other commands alone.
    expect(await heddle(['emit', '--list'])).toBe(0);
  });
});

it.each([
  ['demo', '--ranks', [-1, 0, 73, '1.5', 'x', ''], 'an integer from 1 to 72'],
  ['demo', '--tokens', [-1, 0, 2 ** 21], 'an integer from 1 to 1048576'],
  ['bench', '--ep', [-1, 0, 73], 'an integer from 1 to 72'],
  ['bench', '--sms', [-1, 0, 1025], 'an integer from 1 to 1024'],
  ['bench', '--iterations', [-1, 0], 'an integer from 1 to 1000000'],
  ['bench', '--factor', [0, 1, 1025], 'a number above 1, at most 1024'],
  ['plan', '--ep', [-1, 0, 1, 1025], 'an integer from 2 to 1024'],
  ['run', '--ranks', [-1, 0, 1025], 'an integer from 1 to 1024'],
  ['run', '--timeout', [0, -1, 'x'], 'a number at least 0.001, at most 2000000'],
] as const)(
  '%s %s, a number, says one range, whatever is wrong: %j',
  async (command, option, wrong, range) => {
    for (const value of wrong) {
      forget();
      expect(await heddle([command, `${option}=${value}`])).toBe(2);
      expect(err).toContain(`argument '${value}' is invalid. It must be ${range}.\n`);
    }
  },
);

it('prints every kernel', async () => {
  await heddle(['emit', '--list', '--json']);
  const { kernels } = JSON.parse(out) as { kernels: { name: string; summary: string }[] };
  expect(kernels.map(({ name }) => name)).toEqual(
    expect.arrayContaining(['one_sided_dispatch', 'one_sided_combine', 'example_experts']),
  );
  for (const { name } of kernels) {
    forget();
    expect(await heddle(['emit', name])).toBe(0);
    expect(out).toContain(`__global__ void __launch_bounds__`);
    expect(out).toContain(`\n${name}_kernel(`);
  }
});

it.each([
  ['ranks=4,topK=2,dtype=f32,counts=yes', 0, ''],
  ['hiden=3', 2, 'a key of one_sided_combine: ranks, replicas, tokens, hidden'],
  ['dtype=f64', 2, "one of 'bf16', 'f16', 'f32'"],
  ['ranks=64,combine.threads=32', 2, 'tuning.combine.threads is 32; it must be at least ranks, 64'],
  ['combine.threads=100', 2, 'a multiple of 32'],
  ['tokens=1.5', 2, 'an integer from 1 to'],
  ['hidden=5,combine.way=push', 2, "'pull' for rows that are not a multiple of 16 bytes"],
  ['hidden=5,combine.way=pull', 0, ''],
])('emit --shape %s', async (shape, code, message) => {
  expect(await heddle(['emit', 'one_sided_combine', '--shape', shape])).toBe(code);
  expect(err).toContain(message);
});

it.each([
  ['experts_gate_up', 'hidden=100', '--shape hidden is 100; it must be a multiple of 64'],
  ['experts_gate_up_bf16', 'hidden=96', '--shape hidden is 96; it must be a multiple of 64'],
  ['experts_down_bf16', 'inner=100', '--shape inner is 100; it must be a multiple of 64'],
  ['experts_down', 'format=fp8,inner=192', '--shape inner is 192; it must be a multiple of 128'],
  ['experts_down_e4m3', 'hidden=192', '--shape hidden is 192; it must be a multiple of 128'],
  ['experts_gate_up', 'experts=0', '--shape experts is 0; it must be an integer from 1 to 1024'],
  ['hybrid_dispatch_send', 'rounded=yes', `--shape rounded is "yes"; it must be 'no', unless format is fp8`],
  [
    'one_sided_dispatch',
    'format=mxfp8,rounded=yes,hidden=192',
    '--shape rounded is "yes"; it must be \'no\'',
  ],
  ['experts_swiglu', 'inner=65', '--shape inner is 65; it must be a multiple of 64'],
  ['router_logits', 'hidden=9', '--shape hidden is 9; it must be a multiple of 8'],
  ['router_choose', 'experts=65536', '--shape experts is 65536; it must be an integer from 1 to 1024'],
  ['router_choose', 'experts=8,topk=9', 'topK is 9; it must be an integer from 1 to 8'],
  ['router_choose', 'groups=3,top=3', 'routing.groups.count is 3; it must be a divisor of experts, 256'],
  ['router_choose', 'groups=2', 'routing.groups.top is 4; it must be an integer from 1 to 2'],
])('emit %s refuses %s as an argument, and compiles nothing', async (kernel, shape, message) => {
  expect(await heddle(['emit', kernel, '--shape', shape])).toBe(2);
  expect(err).toContain(message);
});
