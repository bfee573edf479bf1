/** The members of `using` that a body mentions, judged by its text: in branches that fold away too. */
import type { AnyNode, MemberExpression, Node, Pattern } from 'acorn';

/** `all`: the whole object is handed on, or taken apart in a way that names none. */
export type Mentioned = readonly string[] | 'all';

export function mentionedOf(using: Pattern | undefined, body: Node): Mentioned {
  if (using?.type !== 'Identifier') return destructured(using);
  const taken: string[] = [];
  return takes(using.name, body, taken) ? taken : 'all';
}

/** Collects the members of `object` that are taken in a tree; false where it is handed on as a whole. */
function takes(object: string, of: Node, taken: string[]): boolean {
  const node = of as AnyNode;
  const isObject = (of: AnyNode | null | undefined): boolean =>
    of?.type === 'Identifier' && of.name === object;
  const found =
    node.type === 'MemberExpression' && isObject(node.object)
      ? memberOf(node)
      : node.type === 'VariableDeclarator' && isObject(node.init)
        ? destructured(node.id)
        : undefined;
  if (found === undefined) {
    return !isObject(node) && nodesIn(node).every((inner) => takes(object, inner, taken));
  }
  if (found === 'all') return false;
  taken.push(...found);
  return true;
}

function memberOf({ property, computed }: MemberExpression): Mentioned {
  if (!computed && property.type === 'Identifier') return [property.name];
  return property.type === 'Literal' ? [String(property.value)] : 'all';
}

function destructured(pattern: Pattern | undefined): Mentioned {
  if (pattern === undefined) return [];
  if (pattern.type !== 'ObjectPattern') return 'all';
  const names = pattern.properties.map((one) =>
    one.type === 'Property' && !one.computed && one.key.type === 'Identifier' ? one.key.name : undefined,
  );
  return names.every((name) => name !== undefined) ? names : 'all';
}

/** The nodes directly inside a node, in source order. */
export function nodesIn(node: Node): Node[] {
  const found: Node[] = [];
  for (const part of Object.values<unknown>({ ...node })) {
    if (Array.isArray(part)) found.push(...part.filter(isNode));
    else if (isNode(part)) found.push(part);
  }
  return found;
}

const isNode = (part: unknown): part is Node => typeof part === 'object' && part !== null && 'type' in part;
