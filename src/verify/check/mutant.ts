/** Plain data, so that it can be sent to another thread; `mutate` applies it, `mutateHosts` where it is a host's. */
export interface Mutant {
  /** Stable while the source is: 'one_sided_combine dispatch.ts:41:7 release → relaxed'. */
  readonly id: string;
  /** Or the program of a host. */
  readonly kernel: string;
  /** 'dispatch.ts:41:7' */
  readonly where: string;
  /** The statement as written, one line. */
  readonly text: string;
  /** 'release → relaxed' */
  readonly description: string;
}
