/** A compiler of CUDA C++ on this machine. */
export interface Compiler {
  readonly kind: 'nvrtc' | 'nvcc';
  /** '13.0'; NVRTC tells no more. */
  readonly version: string;
  /** The library or program. */
  readonly path: string;
  /** Compiles to a cubin, or says why not. */
  compile(text: string, options: readonly string[]): Promise<Compiled>;
}

export type Compiled =
  | { readonly ok: true; readonly cubin: Uint8Array }
  | { readonly ok: false; readonly log: string };
