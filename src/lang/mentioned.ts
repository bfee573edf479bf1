/** The members of `using` that a body mentions, judged by its text: in branches that fold away too. */
import type { AnyNode, Expression, MemberExpression, Node, Pattern, Statement } from 'acorn';

/** `all`: the whole object is handed on, or taken apart in a way that names none. */
export type Mentioned = readonly string[] | 'all';

/** What a body destructures, or takes as `u.NAME`. */
export function mentionedOf(using: Pattern | undefined, body: readonly Statement[] | Expression): Mentioned {
  if (using?.type !== 'Identifier') return destructured(using);
  const taken: string[] = [];
  return takes(using.name, body, taken) ? taken : 'all';
}

/** Collects the members of `object` that are taken in a tree; false where it is handed on as a whole. */
function takes(object: string, part: unknown, taken: string[]): boolean {
  if (Array.isArray(part)) return part.every((item) => takes(object, item, taken));
  if (!isNode(part)) return true;
  const node = part as AnyNode;
  const isObject = (of: AnyNode | null | undefined): boolean =>
    of?.type === 'Identifier' && of.name === object;
  const found =
    node.type === 'MemberExpression' && isObject(node.object)
      ? memberOf(node)
      : node.type === 'VariableDeclarator' && isObject(node.init)
        ? destructured(node.id)
        : undefined;
  if (found === undefined) {
    return (
      !isObject(node) && Object.values<unknown>({ ...node }).every((inner) => takes(object, inner, taken))
    );
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

export const isNode = (part: unknown): part is Node =>
  typeof part === 'object' && part !== null && 'type' in part;
