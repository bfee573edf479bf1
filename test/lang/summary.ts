import { effectsOf, type IrModule, printIr, walkStatements } from '../../src/lang/index.js';

/** What must be the same however the kernel's file was transpiled: the IR without spans, and the places in the file. */
export function summary(module: IrModule) {
  const { sources, ...rest } = module;
  const ir: unknown = JSON.parse(
    JSON.stringify(rest, (key, value) =>
      key === 'span' ? undefined : typeof value === 'bigint' ? `${value}n` : value,
    ),
  );
  const places: string[] = [];
  walkStatements(module.entry.body, (stmt) => {
    const source = sources[stmt.span.source]!;
    const { line, column } = source.position(stmt.span.start);
    places.push(`${source.file}:${line}:${column}`);
  });
  const effects = effectsOf(module).map(({ effect }) => effect.op);
  return { ir, text: printIr(module), effects, places };
}
