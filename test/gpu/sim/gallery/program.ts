/**
 * A program is one text with kernels and what the hosts of a few ranks do with them: `run(options, host)`. Tests
 * and the playground make it from the same text, which imports nothing but what is listed here.
 */
import { parse } from 'acorn';
import type { Event, Memory, Stream, Window } from '../../../../src/gpu/index.js';
import { type Finding, type MachineOptions, SimMachine } from '../../../../src/gpu/sim/index.js';
import * as lang from '../../../../src/lang/index.js';
import { type Arguments, launch, ranksOn, windowsOf } from '../harness.js';

export interface LaunchOptions {
  /** 1 by default. */
  readonly blocks?: number;
  /** Of a block; 32 by default. */
  readonly threads?: number;
  /** May start before the launch before it has ended. */
  readonly programmatic?: boolean;
  /** The rank's own by default. */
  readonly stream?: Stream;
}

/** What the host program of one rank can do. */
export interface Host {
  readonly rank: number;
  readonly stream: Stream;
  /** This rank's view of a window that every rank has. */
  window(layout: lang.Layout): Promise<Window>;
  /** Memory that nobody has written. */
  buffer(purpose: string, bytes: number): Memory;
  /** Memory whose every byte is `value`. */
  filled(purpose: string, bytes: number, value: number): Memory;
  launch(kernel: lang.Kernel | lang.PtxKernel, options: LaunchOptions, args: Arguments): Promise<void>;
  newStream(): Stream;
  newEvent(): Event;
}

export interface Program {
  readonly name: string;
  readonly ranks: number;
  readonly host: (host: Host) => Promise<void>;
}

/** Says what to run: on every rank the same. */
export type Run = (options: { readonly ranks: number }, host: (host: Host) => Promise<void>) => void;

/** For programs to import; the real one is given to them when they are made. */
export declare const run: Run;

/** `javascript` is `source` without its types. Findings name lines of `source` in the file `name`. */
export function programOf(name: string, source: string, javascript: string): Program {
  lang.provideSource(name, source);
  const programs: Program[] = [];
  const run: Run = ({ ranks }, host) => programs.push({ name, ranks, host });
  const ptx = (text: string) => lang.ptx(inPlace(source, text), name);
  const modules: Record<string, object> = { 'heddle/lang': { ...lang, ptx }, 'heddle/playground': { run } };
  const script = `((modules) => {${asScript(javascript, Object.keys(modules))}\n})\n//# sourceURL=${name}`;
  // biome-ignore lint/security/noGlobalEval: the author's own text, where the author asked for it to run
  const made = globalThis.eval(script) as (modules: object) => void;
  made(modules);
  const [program] = programs;
  if (program === undefined || programs.length > 1) {
    throw new Error(`a program says run({ ranks }, host) once; this one says it ${programs.length} times`);
  }
  return program;
}

/** With as many lines before it as in the source in which it stands, so that findings name those. */
function inPlace(source: string, text: string): string {
  const at = source.indexOf(text);
  return at < 0 ? text : source.slice(0, at).replaceAll(/[^\n]/g, '') + text;
}

/** A module as the body of a function: imports become constants, exports are dropped, lines stay where they are. */
function asScript(javascript: string, known: readonly string[]): string {
  let script = '';
  let end = 0;
  const replace = (from: number, to: number, text: string) => {
    const lines = javascript.slice(from, to).replaceAll(/[^\n]/g, '');
    script += `${javascript.slice(end, from)}${text}${lines}`;
    end = to;
  };
  for (const node of parse(javascript, { ecmaVersion: 'latest', sourceType: 'module' }).body) {
    if (node.type === 'ImportDeclaration') {
      const from = String(node.source.value);
      if (!known.includes(from)) throw new Error(`import from '${from}': there is only ${known.join(', ')}`);
      const names = node.specifiers.map((specifier) => {
        if (specifier.type !== 'ImportSpecifier') throw new Error(`import names in braces from '${from}'`);
        const imported = javascript.slice(specifier.imported.start, specifier.imported.end);
        return `${imported}: ${specifier.local.name}`;
      });
      replace(node.start, node.end, `const { ${names.join(', ')} } = modules['${from}'];`);
    }
    if (node.type === 'ExportNamedDeclaration' && node.declaration) {
      replace(node.start, node.declaration.start, '');
    }
  }
  return script + javascript.slice(end);
}

/** One schedule of a program. */
export async function runProgram(
  program: Program,
  options: Pick<MachineOptions, 'seed' | 'schedule' | 'watch' | 'substitute'>,
): Promise<{ readonly machine: SimMachine; readonly findings: readonly Finding[] }> {
  const { name, ranks } = program;
  const configuration = name.replace(/\.ts$/, '');
  const machine = SimMachine.create({ ...options, ranks, configuration, mode: 'checked', stepLimit: 20_000 });
  try {
    await runOn(program, machine);
  } catch (error) {
    // A kernel that never ends fails on its host as well; the finding says why.
    if (machine.findings.length === 0) throw error;
  }
  return { machine, findings: machine.findings };
}

/** The hosts of all ranks, on a machine. */
export async function runOn(program: Program, machine: SimMachine): Promise<void> {
  await Promise.all(
    hostsOf(machine, program.ranks).map(async ({ host, end }) => {
      await program.host(host);
      await end();
    }),
  );
}

function hostsOf(machine: SimMachine, count: number): { host: Host; end(): Promise<void> }[] {
  const ranks = ranksOn(machine, count);
  const windows = new Map<lang.Layout, Promise<Window[]>>();
  return ranks.map((on) => {
    const { device, rank, stream } = on;
    const streams = [stream];
    const host: Host = {
      rank,
      stream,
      async window(layout) {
        if (!windows.has(layout)) windows.set(layout, windowsOf(ranks, layout.bytes, layout.name));
        return (await windows.get(layout)!)[rank]!;
      },
      buffer: (purpose, bytes) => device.allocate(bytes, purpose),
      filled(purpose, bytes, value) {
        const memory = device.allocate(bytes, purpose);
        stream.fill(memory.address, bytes, value);
        return memory;
      },
      launch: (kernel, { blocks = 1, threads = 32, programmatic = false, stream: other = stream }, args) =>
        launch(
          on,
          'ir' in kernel ? kernel.ir() : kernel,
          { grid: blocks, block: threads, programmatic },
          args,
          other,
        ),
      newStream() {
        streams.push(device.createStream());
        return streams.at(-1)!;
      },
      newEvent: () => device.createEvent(),
    };
    return { host, end: async () => void (await Promise.all(streams.map((one) => one.synchronize()))) };
  });
}
