/** A process of a program. */

/** A function or a variable, and the PTX that has it. */
interface Named {
  readonly texts: readonly string[];
  readonly name: string;
}

/** What one process of the program has told, and what it is still to get. */
export class Process {
  /** The PTX of each fat binary, and of those that were linked with it. */
  readonly binaries = new Map<number, string[]>();
  /** By the address of its stub. */
  readonly functions = new Map<number, Named>();
  /** By its address on the host. */
  readonly variables = new Map<number, Named>();
  /** One for each thread that has called. */
  connections = 0;
  #brought: { readonly to: number; readonly bytes: Uint8Array }[] = [];

  /** A copy has brought bytes for the process's own memory. */
  bring(to: number, bytes: Uint8Array): void {
    this.#brought.push({ to, bytes });
  }

  /** What copies have brought since the last time. */
  takeBrought(): readonly { readonly to: number; readonly bytes: Uint8Array }[] {
    const taken = this.#brought;
    this.#brought = [];
    return taken;
  }

  textsOf(binary: number): string[] {
    const texts = this.binaries.get(binary) ?? [];
    this.binaries.set(binary, texts);
    return texts;
  }
}
