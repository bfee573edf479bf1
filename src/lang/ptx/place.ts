/** The place where an instruction of PTX was written. */
import { type PtxInstruction, type PtxLocation, type PtxModule, placeOfLine } from './module.js';

/** The line of the source and, beside the instruction, its line in the PTX; without a source that alone. */
export function writtenAs(
  module: PtxModule,
  { line, source }: PtxInstruction,
): { readonly where: string; readonly text: string } {
  const place = placeOfLine(module, line);
  const written = (module.lines[line - 1] ?? '').trim().replace(/\s+/g, ' ');
  if (source === null) return { where: place, text: written };
  return { where: placeIn(source, module.sources), text: `${written} (${place})` };
}

/** A header of the CUDA toolkit. */
const toolkit = /\/cuda[^/]*\/(.*\/)?include\//;

/**
 * The place itself, and the one that called it, if it was inlined: who uses a function twice must tell the two apart. Of what is
 * in a header of the toolkit, the caller alone.
 */
function placeIn(source: PtxLocation, files: ReadonlyMap<number, string>): string {
  const pathOf = ({ file }: PtxLocation): string => files.get(file) ?? `file ${file}`;
  const show = (at: PtxLocation): string => {
    const path = pathOf(at);
    return `${path.slice(path.lastIndexOf('/') + 1)}:${at.line}:${at.column}`;
  };
  let at = source;
  while (at.inlinedAt !== null && toolkit.test(pathOf(at))) at = at.inlinedAt;
  return at.inlinedAt === null ? show(at) : `${show(at)}, inlined at ${show(at.inlinedAt)}`;
}
