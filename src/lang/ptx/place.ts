/** Where an instruction of PTX was written. */
import type { PtxKernel } from './kernel.js';
import type { PtxInstruction, PtxLocation } from './module.js';

/** The line of the source and, beside the instruction, its line in the PTX; without a source that alone. */
export function writtenAs(
  { module, entry }: Pick<PtxKernel, 'module' | 'entry'>,
  { line, source }: PtxInstruction,
): { readonly where: string; readonly text: string } {
  const own = entry.instructions.find((one) => one.source !== null)?.source?.file;
  const place = `${module.file}:${line}`;
  const written = (module.lines[line - 1] ?? '').trim().replace(/\s+/g, ' ');
  if (source === null) return { where: place, text: written };
  return { where: placeIn(source, own, module.sources), text: `${written} (${place})` };
}

/**
 * The place itself, and the one that called it, if it was inlined: whoever uses a function twice must tell the two apart. Of
 * what is in a header of others, the caller alone.
 */
function placeIn(source: PtxLocation, own: number | undefined, files: ReadonlyMap<number, string>): string {
  const show = ({ file, line, column }: PtxLocation): string => {
    const path = files.get(file) ?? `file ${file}`;
    return `${path.slice(path.lastIndexOf('/') + 1)}:${line}:${column}`;
  };
  const { inlinedAt } = source;
  if (inlinedAt === null) return show(source);
  return source.file === own ? `${show(source)}, inlined at ${show(inlinedAt)}` : show(inlinedAt);
}
