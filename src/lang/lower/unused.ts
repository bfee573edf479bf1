/** Values of `using` that a body never mentions. */
import type { AnyNode, MemberExpression, Pattern } from 'acorn';
import { isNode, type ParsedBody } from '../parse.js';

/**
 * The names in `using` that a body does not mention, judged by its text: what it destructures, or takes as `u.NAME`, is
 * in use, in branches that fold away too.
 */
export function unusedNames({ parameters, body }: ParsedBody, names: readonly string[]): readonly string[] {
  const pattern = parameters[2];
  const used = pattern?.type === 'Identifier' ? membersTaken(pattern.name, body) : destructured(pattern);
  return used === 'all' ? [] : names.filter((name) => !used.includes(name));
}

type Taken = readonly string[] | 'all';

/** The members of `object` that are taken in a tree; all of them where it is handed on as a whole. */
function membersTaken(object: string, tree: ParsedBody['body']): Taken {
  const isObject = (node: AnyNode | null | undefined): boolean =>
    node?.type === 'Identifier' && node.name === object;
  const takenIn = (part: unknown): Taken[] => {
    if (Array.isArray(part)) return part.flatMap(takenIn);
    if (!isNode(part)) return [];
    const node = part as AnyNode;
    if (isObject(node)) return ['all'];
    if (node.type === 'MemberExpression' && isObject(node.object)) return [memberOf(node)];
    if (node.type === 'VariableDeclarator' && isObject(node.init)) return [destructured(node.id)];
    return Object.values<unknown>({ ...node }).flatMap(takenIn);
  };
  const taken = takenIn(Object.values(tree));
  return taken.includes('all') ? 'all' : taken.flat();
}

function memberOf({ property, computed }: MemberExpression): Taken {
  if (!computed && property.type === 'Identifier') return [property.name];
  return property.type === 'Literal' ? [String(property.value)] : 'all';
}

function destructured(pattern: Pattern | undefined): Taken {
  if (pattern === undefined) return [];
  if (pattern.type !== 'ObjectPattern') return 'all';
  const names = pattern.properties.map((one) =>
    one.type === 'Property' && !one.computed && one.key.type === 'Identifier' ? one.key.name : undefined,
  );
  return names.every((name) => name !== undefined) ? names : 'all';
}
