/** The names HEDDLE_… in src, codes of errors and variables of the environment, and the variables of others. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { root } from '../tree.js';

const givesCode = new Set(['super', 'HeddleError', 'printError']);

/** Whether an expression stands where the code of an error does: given to its constructor, or beside `error.code`. */
function isCode(of: ts.Node): boolean {
  const { parent } = of;
  if (ts.isConditionalExpression(parent)) {
    return /\.code$/.test(parent.whenTrue.getText()) || isCode(parent);
  }
  if (ts.isBinaryExpression(parent)) return /\.code$/.test(parent.left.getText());
  return (
    (ts.isCallExpression(parent) || ts.isNewExpression(parent)) &&
    parent.arguments?.[0] === of &&
    givesCode.has(parent.expression.getText())
  );
}

const found = { codes: new Set<string>(), variables: new Set<string>(), others: new Set<string>() };

function visit(node: ts.Node): void {
  if ((ts.isStringLiteralLike(node) || ts.isIdentifier(node)) && /^HEDDLE_[A-Z_]+$/.test(node.text)) {
    found[isCode(node) ? 'codes' : 'variables'].add(node.text);
  }
  for (const name of namesFrom(node)) if (!name.startsWith('HEDDLE_')) found.others.add(name);
  ts.forEachChild(node, visit);
}

/** The variables of the environment that a node reads or sets by name. */
function namesFrom(node: ts.Node): readonly string[] {
  const isEnvironment = (of: ts.Node | undefined) => of?.getText() === 'process.env';
  if (ts.isPropertyAccessExpression(node) && isEnvironment(node.expression)) return [node.name.text];
  if (
    ts.isVariableDeclaration(node) &&
    isEnvironment(node.initializer) &&
    ts.isObjectBindingPattern(node.name)
  )
    return node.name.elements.map((element) => (element.propertyName ?? element.name).getText());
  if (ts.isCallExpression(node) && /setEnvironment$/.test(node.expression.getText()))
    return node.arguments.slice(0, 1).flatMap((name) => (ts.isStringLiteral(name) ? [name.text] : []));
  // A table whose every entry is given to `setEnvironment`.
  if (ts.isPropertyAssignment(node) && /^NVSHMEM_/.test(node.name.getText())) return [node.name.getText()];
  return [];
}

for (const name of readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })) {
  if (!name.endsWith('.ts')) continue;
  const text = readFileSync(join(root, 'src', name), 'utf8');
  if (/HEDDLE_|process\.env|setEnvironment/.test(text))
    visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true));
}

export const codes: readonly string[] = [...found.codes].sort();
export const variables: readonly string[] = [...found.variables].sort();
export const variablesOfOthers: readonly string[] = [...found.others].sort();
