/** The kernels of a program, read once for all of its runs. */
import { basename } from 'node:path';
import { type PtxKernel, type PtxProgram, ptx } from '../../lang/index.js';

export class Kernels {
  readonly #name: string;
  readonly #programs = new Map<string, PtxProgram>();
  readonly #kernels = new Map<string, PtxKernel>();
  readonly launched: string[] = [];
  /** The files that their lines are in. */
  readonly sources: string[] = [];

  constructor(program: string) {
    this.#name = basename(program);
  }

  /** The contents of these texts of PTX, which were linked with each other. */
  #program(texts: readonly string[]): PtxProgram {
    const key = texts.join('\0');
    let program = this.#programs.get(key);
    if (program === undefined) {
      const number = this.#programs.size;
      const names = texts.map(
        (_, i) => `${[this.#name, number || null, i || null].filter((part) => part !== null).join('-')}.ptx`,
      );
      program = ptx(texts.map((text, i) => ({ file: names[i]!, text })));
      this.#programs.set(key, program);
      this.sources.push(...program.module.sources.values(), ...names);
      if (program.module.sources.size === 0)
        process.stderr.write(
          `heddle: ${this.#name} was built without -lineinfo: findings name lines of its PTX alone\n`,
        );
    }
    return program;
  }

  kernel(
    texts: readonly string[],
    name: string,
    sharedBytes = 0,
    cluster: readonly number[] = [],
  ): PtxKernel | null {
    const key = [...texts, name, sharedBytes, ...cluster].join('\0');
    let kernel = this.#kernels.get(key);
    if (kernel === undefined) {
      const program = this.#program(texts);
      if (!program.kernels.includes(name)) return null;
      kernel = program.kernel(name, { sharedBytes, ...(cluster.length > 0 && { cluster }) });
      this.#kernels.set(key, kernel);
      if (!this.launched.includes(name)) this.launched.push(name);
    }
    return kernel;
  }

  /** Any kernel of these texts, for their variables. */
  any(texts: readonly string[]): PtxKernel | null {
    const [first] = this.#program(texts).kernels;
    return first === undefined ? null : this.kernel(texts, first);
  }
}
