/** The kernels of a program, read once for all of its runs. */
import { basename } from 'node:path';
import { type PtxKernel, type PtxProgram, ptx } from '../../lang/index.js';

interface Program {
  readonly program: PtxProgram;
  readonly kernels: Map<string, PtxKernel>;
}

export class Kernels {
  readonly #name: string;
  readonly #programs = new Map<string, Program>();
  /** Programs by the list of texts itself, which may be long. */
  readonly #known = new WeakMap<readonly string[], Program>();
  readonly launched: string[] = [];
  /** The files that their lines are in. */
  readonly sources: string[] = [];

  constructor(program: string) {
    this.#name = basename(program);
  }

  /** The contents of these texts of PTX, which were linked with each other. */
  #program(texts: readonly string[]): Program {
    const found = this.#known.get(texts) ?? this.#programs.get(texts.join('\0')) ?? this.#read(texts);
    this.#known.set(texts, found);
    return found;
  }

  #read(texts: readonly string[]): Program {
    const number = this.#programs.size;
    const names = texts.map(
      (_, i) => `${[this.#name, ...[number, i].filter((one) => one > 0)].join('-')}.ptx`,
    );
    const program = ptx(texts.map((text, i) => ({ file: names[i]!, text })));
    const read = { program, kernels: new Map<string, PtxKernel>() };
    this.#programs.set(texts.join('\0'), read);
    this.sources.push(...program.module.sources.values(), ...names);
    if (program.module.sources.size === 0)
      process.stderr.write(
        `heddle: ${this.#name} was built without -lineinfo: findings name lines of its PTX alone\n`,
      );
    return read;
  }

  kernel(
    texts: readonly string[],
    name: string,
    sharedBytes = 0,
    cluster: readonly number[] = [],
  ): PtxKernel | null {
    const { program, kernels } = this.#program(texts);
    const key = [name, sharedBytes, ...cluster].join('\0');
    let kernel = kernels.get(key);
    if (kernel === undefined) {
      if (!program.kernels.includes(name)) return null;
      kernel = program.kernel(name, { sharedBytes, ...(cluster.length > 0 && { cluster }) });
      kernels.set(key, kernel);
      if (!this.launched.includes(name)) this.launched.push(name);
    }
    return kernel;
  }

  /** Any kernel of these texts, for their variables. */
  any(texts: readonly string[]): PtxKernel | null {
    const [first] = this.#program(texts).program.kernels;
    return first === undefined ? null : this.kernel(texts, first);
  }
}
