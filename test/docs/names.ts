/** The names HEDDLE_… in src: codes of errors, and variables of the environment. */
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

const found = { codes: new Set<string>(), variables: new Set<string>() };

function visit(node: ts.Node): void {
  if ((ts.isStringLiteralLike(node) || ts.isIdentifier(node)) && /^HEDDLE_[A-Z_]+$/.test(node.text)) {
    found[isCode(node) ? 'codes' : 'variables'].add(node.text);
  }
  ts.forEachChild(node, visit);
}

for (const name of readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })) {
  if (!name.endsWith('.ts')) continue;
  const text = readFileSync(join(root, 'src', name), 'utf8');
  if (text.includes('HEDDLE_')) visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true));
}

export const codes: readonly string[] = [...found.codes].sort();
export const variables: readonly string[] = [...found.variables].sort();
