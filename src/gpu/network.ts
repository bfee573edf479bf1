/** What a proxy asks of a network: writes from this rank's wire memory into that of others. */
export interface Network {
  /**
   * Bytes from an offset of this rank's wire memory to an offset of a peer's. Once all of them are there the peer's
   * `arrived` gives `tag`, once; until then the source may be read at any time. Writes overtake each other, and a tag
   * says nothing about any write but its own.
   * False where nothing can be posted now, and nothing was.
   */
  write(peer: number, from: number, to: number, bytes: number, tag: number): boolean;
  /** The tag, 31 bits of its sender's choice, of a write that has come; -1 where none has since the last one that was given. */
  arrived(): number;
}
