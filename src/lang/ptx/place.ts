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

/** The place itself, or, where that is in a header of others, the one that called it. */
function placeIn(source: PtxLocation, own: number | undefined, files: ReadonlyMap<number, string>): string {
  let at = source;
  while (at.file !== own && at.inlinedAt !== null) at = at.inlinedAt;
  const path = files.get(at.file) ?? `file ${at.file}`;
  return `${path.slice(path.lastIndexOf('/') + 1)}:${at.line}:${at.column}`;
}
