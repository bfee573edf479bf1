/**
 * `npm run api`: compares what users compile against with `scripts/api/`, a file for each door of the package; with `--write`
 * it writes those files. It reads the declarations that `npm run build` has made. Each file has the declarations of the
 * names that its door exports, without comments.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import ts from 'typescript';

interface Door {
  readonly types: string;
}

const folder = 'scripts/api';
const { exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  exports: Record<string, Door | string>;
};
const doors = Object.entries(exports).flatMap(([name, door]) =>
  typeof door === 'string' ? [] : [{ name: name.replace(/^\.\/?/, '') || 'heddle', types: door.types }],
);
const missing = doors.find(({ types }) => !existsSync(types));
if (missing !== undefined) {
  console.error(`there is no ${missing.types}: run npm run build first`);
  process.exit(2);
}

const program = ts.createProgram(
  doors.map(({ types }) => types),
  { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, strict: true, skipLibCheck: true },
);
const checker = program.getTypeChecker();
const printer = ts.createPrinter({ removeComments: true });
const ours = resolve('dist');

const target = (symbol: ts.Symbol): ts.Symbol =>
  symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;

const statementOf = (node: ts.Declaration): ts.Node =>
  ts.isVariableDeclaration(node) ? node.parent.parent : node;

/** The declarations of a symbol that stand at the top level of one of our files. */
const declarationsOf = (symbol: ts.Symbol): readonly ts.Declaration[] =>
  (symbol.declarations ?? []).filter(
    (node) =>
      statementOf(node).parent?.parent === undefined &&
      !ts.isSourceFile(node) &&
      node.getSourceFile().fileName.startsWith(ours),
  );

function print(node: ts.Declaration): string {
  const statement = statementOf(node);
  const text = printer.printNode(ts.EmitHint.Unspecified, statement, statement.getSourceFile());
  return text.replace(/^export /, '').replace(/^declare /, '');
}

function report(types: string): string {
  const source = program.getSourceFile(types);
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) throw new Error(`${types} exports nothing`);
  const texts = checker.getExportsOfModule(module).map((exported) => {
    const symbol = target(exported);
    const renamed = exported.name === symbol.name ? '' : `// as ${exported.name}\n`;
    return `${renamed}${[...new Set(declarationsOf(symbol).map(print))].join('\n')}\n`;
  });
  return texts.sort().join('\n');
}

const write = process.argv.includes('--write');
if (write) mkdirSync(folder, { recursive: true });
const changed = doors.filter(({ name, types }) => {
  const file = `${folder}/${name}.txt`;
  const now = report(types);
  if (write) writeFileSync(file, now);
  return !existsSync(file) || readFileSync(file, 'utf8') !== now;
});
if (changed.length > 0) {
  console.error(`What users compile against changed: ${changed.map(({ name }) => name).join(', ')}.`);
  console.error(
    `If that is meant, run npm run api -- --write, and say in CHANGELOG.md what users must change.`,
  );
  process.exitCode = 1;
}
