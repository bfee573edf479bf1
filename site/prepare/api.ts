/**
 * The API reference: for each door of the package a page with everything that it exports, as the published
 * declarations have it. What a person reads is the declaration itself, with its comments as text around it.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';

interface Page {
  readonly path: string;
  readonly text: string;
}

interface Door {
  /** What is imported: 'heddle/lang'. */
  readonly name: string;
  readonly page: string;
  readonly source: string;
}

export function doors(root: string): readonly Door[] {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    exports: Record<string, string | { default: string }>;
  };
  return Object.entries(exports).flatMap(([name, door]) => {
    if (typeof door === 'string') return [];
    const source = join(root, door.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts'));
    const imported = name.replace('.', 'heddle');
    return [{ name: imported, page: `api/${imported.replace('/', '-')}.md`, source }];
  });
}

export function apiPages(root: string): Page[] {
  const program = declarations(root);
  const checker = program.getTypeChecker();
  const all = doors(root).map((door) => {
    const file = program.getSourceFile(door.source.replace(/\.ts$/, '.d.ts'))!;
    const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(file)!).map((symbol) => {
      const real = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
      return { name: symbol.name, nodes: real.declarations ?? [] };
    });
    return { door, file, exported: exported.filter(({ nodes }) => nodes.length > 0) };
  });
  const pages = all.map(({ door, file, exported }) => {
    // A name leads to this page where this door has it, else to the first door that does.
    const links = new Map<string, string>();
    for (const { name } of exported) links.set(name, anchor(name));
    for (const other of all)
      for (const { name } of other.exported)
        if (!links.has(name)) links.set(name, `/${other.door.page}${anchor(name)}`);
    const sections = kinds.flatMap(({ title, is }) => {
      const of = exported.filter(({ nodes }) => is(nodes[0]!));
      if (of.length === 0) return [];
      return [`## ${title}`, ...of.map(({ name, nodes }) => section(door, name, nodes, links, checker))];
    });
    const intro = `\`import { … } from '${door.name}'\``;
    return { path: door.page, text: [`# ${door.name}`, intro, fileComment(file), ...sections].join('\n\n') };
  });
  const list = all.map(({ door, file, exported }) => {
    const about = fileComment(file)
      .replaceAll('\n', ' ')
      .split(/(?<=\.) /)[0];
    return `| [${door.name}](/${door.page}) | ${
      about ||
      exported
        .slice(0, 6)
        .map(({ name }) => `\`${name}\``)
        .join(', ')
    } |`;
  });
  const index = ['# API reference', `| import | |\n| --- | --- |\n${list.join('\n')}`].join('\n\n');
  return [{ path: 'api/index.md', text: index }, ...pages];
}

/** A program of the declarations that a build writes, without writing them. */
function declarations(root: string): ts.Program {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const emitted = new Map<string, string>();
  const write: ts.WriteFileCallback = (path, text) => void emitted.set(path, text);
  const entries = doors(root).map(({ source }) => source);
  const emit = { ...options, noEmit: false, declaration: true, emitDeclarationOnly: true };
  ts.createProgram(entries, emit).emit(undefined, write);
  const host = ts.createCompilerHost(options);
  const { fileExists, readFile, getSourceFile } = host;
  // Where a declaration was written, its source is hidden.
  const hidden = (path: string) => emitted.has(path.replace(/\.ts$/, '.d.ts'));
  host.fileExists = (path) => emitted.has(path) || (!hidden(path) && fileExists(path));
  host.readFile = (path) => emitted.get(path) ?? readFile(path);
  host.getSourceFile = (path, language, ...rest) => {
    const text = emitted.get(path);
    return text === undefined
      ? getSourceFile(path, language, ...rest)
      : ts.createSourceFile(path, text, language, true);
  };
  return ts.createProgram(
    entries.map((path) => path.replace(/\.ts$/, '.d.ts')),
    options,
    host,
  );
}

const isError = (node: ts.Node): boolean =>
  ts.isClassDeclaration(node) && /\bextends \w*Error\b/.test(node.heritageClauses?.[0]?.getText() ?? '');

const kinds: readonly { readonly title: string; readonly is: (node: ts.Node) => boolean }[] = [
  { title: 'Classes', is: (node) => ts.isClassDeclaration(node) && !isError(node) },
  { title: 'Functions', is: ts.isFunctionDeclaration },
  { title: 'Values', is: (node) => ts.isVariableDeclaration(node) || ts.isSourceFile(node) },
  { title: 'Types', is: (node) => ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node) },
  { title: 'Errors', is: isError },
];

const anchor = (name: string): string => `#${name}`;

function section(
  door: Door,
  name: string,
  nodes: readonly ts.Node[],
  links: ReadonlyMap<string, string>,
  checker: ts.TypeChecker,
): string {
  const parts = [
    `### ${name} {${anchor(name)}}`,
    ...nodes.flatMap((node) => declaration(door, name, node)),
    ...nodes.filter(ts.isInterfaceDeclaration).flatMap((node) => computed(node, checker)),
  ];
  const mentioned = new Set(nodes.flatMap((node) => [...node.getText().matchAll(/[A-Z]\w+/g)].map(String)));
  const seen = [...mentioned].filter((other) => other !== name && links.has(other));
  if (seen.length > 0)
    parts.push(`See ${seen.map((other) => `[${other}](${links.get(other)})`).join(', ')}.`);
  return parts.join('\n\n');
}

function declaration(door: Door, name: string, node: ts.Node): string[] {
  if (ts.isClassDeclaration(node)) return classDeclaration(node);
  if (ts.isVariableDeclaration(node)) {
    const statement = node.parent.parent;
    return [comment(statement), code(`const ${node.getText()};`)];
  }
  // A whole module exported under a name.
  if (ts.isSourceFile(node)) return [comment(node), code(`import { ${name} } from '${door.name}';`)];
  return [comment(node), code(node.getText().replace(/^export (declare )?/, ''))];
}

function classDeclaration(node: ts.ClassDeclaration): string[] {
  const heritage = node.heritageClauses?.map((clause) => clause.getText()).join(' ') ?? '';
  const parts = [comment(node), code(`class ${node.name!.text} ${heritage}`.trimEnd())];
  let last = '';
  for (const member of node.members) {
    const hidden =
      ts.getCombinedModifierFlags(member) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected);
    if (hidden || (member.name !== undefined && ts.isPrivateIdentifier(member.name))) continue;
    const name = member.name?.getText() ?? 'constructor';
    const flags = ts.getCombinedModifierFlags(member);
    // A class may have a function and a property of one name.
    const place = flags & ts.ModifierFlags.Static ? `static.${name}` : name;
    // Overloads, and both halves of a property, stand under one heading.
    if (place !== last) parts.push(`#### ${name} {${anchor(`${node.name!.text}.${place}`)}}`);
    last = place;
    parts.push(code(member.getText()), comment(member));
  }
  return parts;
}

/** The members that an interface gets from types that are computed, which no declaration lists. */
function computed(node: ts.InterfaceDeclaration, checker: ts.TypeChecker): string[] {
  const types = (node.heritageClauses ?? []).flatMap((clause) => clause.types);
  return types
    .map((type) => checker.getTypeAtLocation(type))
    .filter((type) => !type.isClassOrInterface())
    .map((type) => code(`{\n${members(type, node, checker, '  ')}\n}`));
}

function members(type: ts.Type, at: ts.Node, checker: ts.TypeChecker, indent: string): string {
  const lines = type.getProperties().flatMap((member) => {
    const of = checker.getTypeOfSymbolAtLocation(member, at);
    const doc = ts.displayPartsToString(member.getDocumentationComment(checker)).replaceAll('\n', ' ');
    const isGroup = of.getCallSignatures().length === 0;
    const text = isGroup
      ? `{\n${members(of, at, checker, `${indent}  `)}\n${indent}}`
      : checker.typeToString(of, at, ts.TypeFormatFlags.NoTruncation).replaceAll(/import\("[^"]*"\)\./g, '');
    return [...(doc === '' ? [] : [`/** ${doc} */`]), `${member.name}: ${text};`];
  });
  return lines.map((line) => indent + line).join('\n');
}

const code = (text: string): string => `\`\`\`ts\n${text}\n\`\`\``;

/** The comment before a declaration, as Markdown. */
function comment(node: ts.Node): string {
  const [doc] = ts.getJSDocCommentsAndTags(node).filter(ts.isJSDoc).slice(-1);
  if (doc === undefined) return '';
  const tags = (doc.tags ?? []).map((tag) => {
    const name = tag.tagName.text.replace(/^./, (letter) => letter.toUpperCase());
    return `**${name}** ${ts.getTextOfJSDocComment(tag.comment) ?? ''}`;
  });
  return [ts.getTextOfJSDocComment(doc.comment) ?? '', ...tags].map(plain).join('\n\n');
}

/** The comment at the head of a file. */
function fileComment(file: ts.SourceFile): string {
  const text = /^\/\*\*([\s\S]*?)\*\//.exec(file.text)?.[1] ?? '';
  return plain(text.replaceAll(/^\s*\* ?/gm, '').trim());
}

/** Comments are text: what Markdown or HTML would take for markup is kept from it, except code. */
function plain(text: string): string {
  return text
    .split(/(`[^`]*`)/)
    .map((part, i) => (i % 2 === 1 ? part : part.replaceAll('<', '&lt;').replaceAll(/[[\]*]/g, '\\$&')))
    .join('');
}
