/** Prints a line of a table; its head comes with the first, so that what cannot be measured here has none. */
export function growingTable(out: NodeJS.WriteStream, head: string): (line: string) => void {
  let begun = false;
  return (line) => {
    out.write(begun ? `${line}\n` : `${head}\n${line}\n`);
    begun = true;
  };
}
