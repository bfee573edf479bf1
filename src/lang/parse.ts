/** Parses a function's text. Offsets in the tree are offsets in the text. */
import * as acorn from 'acorn';
import { type FramedSource, Problem } from './diagnostics.js';

export interface ParsedBody {
  /** Patterns for (g, params, using), as many as the author wrote. */
  readonly parameters: readonly acorn.Pattern[];
  /** The statements, or the expression of `(g) => expression`. */
  readonly body:
    | { readonly statements: readonly acorn.Statement[] }
    | { readonly expression: acorn.Expression };
}

/** Trees by text: a function that is made for each shape is read once. */
const parsed = new Map<string, ParsedBody>();

export function parseBody(source: FramedSource): ParsedBody {
  const known = parsed.get(source.text) ?? parse(source);
  parsed.set(source.text, known);
  return known;
}

function parse(source: FramedSource): ParsedBody {
  const fail = (code: 'HK103' | 'HK104', message: string, start = 0, end = source.text.length): never => {
    throw new Problem(code, message, source, start, end);
  };
  if (/\{\s*\[native code\]\s*\}\s*$/.test(source.text)) {
    const message = 'the body is a built-in or bound function, which has no text; pass the function itself';
    return fail('HK103', message);
  }
  const tree = parseText(source);
  const deep = tooDeep(tree);
  if (deep !== undefined) {
    const message = `the body is nested more than ${mostNested} deep here; name parts of it with const, or split it up`;
    return fail('HK103', message, deep.start, deep.start + 1);
  }
  if (source.text.includes('__name(')) withoutNames(tree);
  if (tree.type !== 'ArrowFunctionExpression' && tree.type !== 'FunctionExpression') {
    return fail('HK104', 'write the body as an arrow function: (g, params, using) => { … }');
  }
  if (tree.async === true || tree.generator === true) {
    return fail('HK104', 'a body is an ordinary function: not async, not a generator');
  }
  if (tree.params.length > 3) {
    return fail('HK104', 'a body has at most three parameters: (g, params, using)');
  }
  return {
    parameters: tree.params,
    body: tree.body.type === 'BlockStatement' ? { statements: tree.body.body } : { expression: tree.body },
  };
}

/**
 * Whether statements were joined to expressions, as minifiers do it, and not by the author. Where nothing but the text is
 * known, it is taken for a minifier's.
 */
export function isMinified(source: FramedSource): boolean {
  const tree = acorn.parseExpressionAt(source.text, 0, { ecmaVersion: 'latest', sourceType: 'module' });
  return contains(tree, (node) => {
    const by = joinedBy(node as acorn.AnyNode);
    if (by === null) return false;
    const written = source.written(node.start, node.end);
    // Minifiers make `let` of every `const`, and one declaration of several: an author has a `const` somewhere.
    if (written === null) return node.type !== 'VariableDeclaration' || !contains(tree, isConst);
    return !written.includes(by) || /;/.test(written) || !isBalanced(written);
  });
}

const isConst = (node: acorn.Node): boolean =>
  node.type === 'VariableDeclaration' && (node as acorn.VariableDeclaration).kind === 'const';

/** The operator that joins what may have been several statements. */
function joinedBy(node: acorn.AnyNode): string | null {
  if (node.type === 'SequenceExpression') return ',';
  if (node.type === 'VariableDeclaration') return node.declarations.length > 1 ? ',' : null;
  if (node.type !== 'ExpressionStatement') return null;
  const { expression } = node;
  if (expression.type === 'LogicalExpression') return expression.operator;
  return expression.type === 'ConditionalExpression' ? '?' : null;
}

/** `if (a && b) c()` is joined to `a && b && c()`: what was written then has half of a pair. */
const isBalanced = (text: string): boolean => text.split('(').length === text.split(')').length;

function contains(node: acorn.Node, wanted: (node: acorn.Node) => boolean): boolean {
  return wanted(node) || nodesIn(node).some((inner) => contains(inner, wanted));
}

function parseText(source: FramedSource): acorn.Expression {
  try {
    return acorn.parseExpressionAt(source.text, 0, { ecmaVersion: 'latest', sourceType: 'module' });
  } catch (error) {
    const at =
      error instanceof SyntaxError && 'pos' in error && typeof error.pos === 'number' ? error.pos : 0;
    const why = error instanceof Error ? error.message : String(error);
    throw new Problem('HK103', `the body's text cannot be parsed: ${why}`, source, at, at + 1);
  }
}

/**
 * Makes `f` of `__name(f, "f")`, which is how esbuild keeps the names of functions, and tsx asks it to. Those of declared
 * functions are statements of their own, and go.
 */
function withoutNames(node: acorn.Node): void {
  const named = (part: unknown): unknown => namedIn(part) ?? part;
  for (const [key, part] of Object.entries<unknown>({ ...node })) {
    const kept = Array.isArray(part)
      ? part.filter((one) => namedIn(one?.expression)?.type !== 'Identifier').map(named)
      : named(part);
    Object.assign(node, { [key]: kept });
  }
  for (const inner of nodesIn(node)) withoutNames(inner);
}

function namedIn(part: unknown): acorn.Node | undefined {
  const node = part as acorn.AnyNode | null | undefined;
  if (node?.type !== 'CallExpression' || node.callee.type !== 'Identifier') return undefined;
  return node.callee.name === '__name' ? node.arguments[0] : undefined;
}

/** Every later step follows the tree by recursion, and must not run out of stack. */
const mostNested = 256;

/** A node that is nested too deeply, if there is one. The search does not recurse. */
function tooDeep(tree: acorn.Node): acorn.Node | undefined {
  let level: acorn.Node[] = [tree];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > mostNested) return level[0];
    level = level.flatMap(nodesIn);
  }
  return undefined;
}

/** The nodes directly inside a node, in source order. */
function nodesIn(node: acorn.Node): acorn.Node[] {
  const found: acorn.Node[] = [];
  for (const part of Object.values<unknown>({ ...node })) {
    if (Array.isArray(part)) found.push(...part.filter(isNode));
    else if (isNode(part)) found.push(part);
  }
  return found;
}

const isNode = (part: unknown): part is acorn.Node =>
  typeof part === 'object' && part !== null && 'type' in part;
