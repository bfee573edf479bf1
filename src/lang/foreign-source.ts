/** CUDA that defines foreign functions, each `extern "C"`: compiled by itself, linked to every kernel that calls one. */
export interface ForeignSource {
  /** For messages: 'NVSHMEM'. */
  readonly name: string;
  /** Called where a kernel is compiled: the text, and the folders in which its `#include`s are looked for. */
  find(): { readonly text: string; readonly folders: readonly string[] };
}
