// The rooms of the house, top to bottom (docs/design.md). Imports point down this list, never up, and enter
// another room only by its door, index.ts.
const rooms = [
  'cli',
  'plan',
  'export',
  'bench',
  'check',
  'trials',
  'testing',
  'moe',
  'tuning',
  'kernels',
  'world',
  'layer',
  'fabric',
  'cuda',
  'sim',
  'device',
  'lang',
  'page',
  'native',
  'files',
  'errors',
];

/** What the simulator needs also runs in browsers. */
const withoutNode = ['layer', 'sim', 'device', 'lang', 'errors'];

/** A room may import only from rooms below it. */
const downOnly = rooms.slice(1).map((room, i) => ({
  name: `${room}-points-down`,
  comment: `src/${room} may not import from a room above it: ${rooms.slice(0, i + 1).join(', ')}`,
  severity: 'error',
  from: { path: `^src/${room}/` },
  to: { path: `^src/(${rooms.slice(0, i + 1).join('|')})/` },
}));

module.exports = {
  forbidden: [
    ...downOnly,
    {
      name: 'without-node',
      comment: `these run in browsers too, where Node.js has no modules: ${withoutNode.join(', ')}`,
      severity: 'error',
      from: { path: `^src/(${withoutNode.join('|')})/` },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'fabric-front-on-top',
      comment: 'inside fabric: what callers see, the core behind it, and libfabric at the bottom',
      severity: 'error',
      from: { path: '^src/net/fabric/(core|libfabric)/' },
      to: { path: '^src/net/fabric/front/' },
    },
    {
      name: 'libfabric-at-the-bottom',
      severity: 'error',
      from: { path: '^src/net/fabric/libfabric/' },
      to: { path: '^src/net/fabric/core/' },
    },
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'by-the-door',
      comment: 'another room is entered by its index.ts',
      severity: 'error',
      from: { path: '^src/([^/]+)/' },
      to: { path: '^src/([^/]+)/(?!index\\.ts$)', pathNot: '^src/$1/' },
    },
    {
      name: 'package-by-the-doors',
      comment: 'what the package exports comes through the doors of its rooms',
      severity: 'error',
      from: { path: '^src/index\\.ts$' },
      to: { path: '^src/([^/]+)/(?!index\\.ts$)' },
    },
    {
      name: 'package-is-the-top',
      comment: 'src/index.ts is for users of the package; no room imports it',
      severity: 'error',
      from: { path: '^src/[^/]+/' },
      to: { path: '^src/index\\.ts$' },
    },
    {
      name: 'known-rooms',
      comment: 'every folder of src is a room of the list above, so that the list says where it stands',
      severity: 'error',
      from: { path: `^src/(?!(${rooms.join('|')})/)[^/]+/` },
      to: {},
    },
    {
      name: 'product-only',
      comment: 'what is shipped imports no tests, scripts or examples',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|scripts|examples|bench)/' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: `${__dirname}/tsconfig.json` },
    enhancedResolveOptions: { extensions: ['.ts', '.js'] },
  },
};
