/** One definition in the prelude. `DEVICE` in its text stands for the target's function qualifiers. */
export interface Helper {
  readonly text: string;
  /** Names of helpers that must stand before this one. */
  readonly needs?: readonly string[];
}

export type HelperTable = Readonly<Record<string, Helper>>;
