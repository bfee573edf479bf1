import { parser } from '@lezer/javascript';

/** Syntax that is types and nothing else. */
const types = new Set([
  'TypeAnnotation',
  'TypeParamList',
  'TypeArgList',
  'InterfaceDeclaration',
  'TypeAliasDeclaration',
  'AmbientDeclaration',
  'Optional',
  'ThisTypeAnnotation',
  'TypePredicate',
]);

/**
 * TypeScript without its types: blanks stand in their place, so every place stays where it was. The editor's own parser
 * knows them; what is no type but still not JavaScript (an enum) is left, for who evaluates the text to refuse.
 */
export function eraseTypes(text: string): string {
  let erased = '';
  let end = 0;
  const blank = (from: number, to: number) => {
    erased += text.slice(end, from) + text.slice(from, to).replaceAll(/[^\n]/g, ' ');
    end = to;
  };
  parser
    .configure({ dialect: 'ts' })
    .parse(text)
    .iterate({
      enter({ name, from, to, node }) {
        if (from < end) return false;
        const isModule = name === 'ImportDeclaration' || name === 'ExportDeclaration';
        if (types.has(name) || (isModule && ['type', ...types].some((type) => node.getChild(type)))) {
          blank(from, to);
          return false;
        }
        // `value as Type`, `value satisfies Type`, `value!`
        const { parent } = node;
        if ((name === 'as' || name === 'satisfies') && parent?.name === 'BinaryExpression') {
          blank(from, parent.to);
        } else if (name === 'LogicOp' && parent?.name === 'PostfixExpression') {
          blank(from, to);
        } else if (name === 'type' && parent?.name === 'ImportGroup') {
          const comma = parent.getChildren(',').find((one) => one.from > from);
          blank(from, comma?.to ?? parent.to - 1);
        }
        return undefined;
      },
    });
  return erased + text.slice(end);
}
