// The rooms of the house, top to bottom, and the folders of each room, likewise (docs/design.md). Imports point down these
// lists, never up. Another room is entered by a door: an index.ts of it or of one of its folders, or a file of base.
const rooms = {
  cli: [],
  tools: ['doctor', 'plan', 'export', 'bench', 'program'],
  verify: ['check', 'trials', 'testing', 'kernels'],
  moe: ['weights', 'experts', 'router', 'rounds', 'families', 'layer', 'formats'],
  net: ['world', 'fabric'],
  gpu: ['cuda', 'sim'],
  lang: [],
  base: ['native', 'files'],
};
const names = Object.keys(rooms);
const doors = ['^src/[^/]+/index\\.ts$', '^src/[^/]+/[^/]+/index\\.ts$', '^src/base/[^/]+\\.ts$'];

/** What the simulator needs also runs in browsers. */
const withoutNode = ['moe/layer', 'moe/formats', 'gpu/sim', 'gpu/[^/]+\\.ts', 'lang', 'base/errors\\.ts'];

/** A room may import only from rooms below it. */
const downOnly = names.slice(1).map((room, i) => ({
  name: `${room}-points-down`,
  comment: `src/${room} may not import from a room above it: ${names.slice(0, i + 1).join(', ')}`,
  severity: 'error',
  from: { path: `^src/${room}/` },
  to: { path: `^src/(${names.slice(0, i + 1).join('|')})/` },
}));

/** Likewise inside a room. */
const foldersDown = Object.entries(rooms).flatMap(([room, folders]) =>
  folders.slice(1).map((folder, i) => ({
    name: `${room}-${folder}-points-down`,
    comment: `src/${room}/${folder} may not import from a folder above it: ${folders.slice(0, i + 1).join(', ')}`,
    severity: 'error',
    from: { path: `^src/${room}/${folder}/` },
    to: { path: `^src/${room}/(${folders.slice(0, i + 1).join('|')})/` },
  })),
);

module.exports = {
  forbidden: [
    ...downOnly,
    ...foldersDown,
    {
      name: 'without-node',
      comment: `these run in browsers too, where Node.js has no modules: ${withoutNode.join(', ')}`,
      severity: 'error',
      from: { path: `^src/(${withoutNode.join('|')})` },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'without-native',
      comment: `these run in browsers too, where there are neither foreign functions nor files: ${withoutNode.join(', ')}`,
      severity: 'error',
      from: { path: `^src/(${withoutNode.join('|')})` },
      to: { path: '^src/base/(native|files)/' },
    },
    {
      name: 'fabric-engine-on-top',
      comment: 'inside fabric: what callers see, the core behind it, and libfabric at the bottom',
      severity: 'error',
      from: { path: '^src/net/fabric/(core|libfabric)/' },
      to: { path: '^src/net/fabric/engine/' },
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
      comment: 'another room is entered by an index.ts of it or of its folders',
      severity: 'error',
      from: { path: '^src/([^/]+)/' },
      to: { path: '^src/[^/]+/', pathNot: ['^src/$1/', ...doors] },
    },
    {
      name: 'package-by-the-doors',
      comment: 'what the package exports comes through the doors of its rooms',
      severity: 'error',
      from: { path: '^src/index\\.ts$' },
      to: { path: '^src/[^/]+/', pathNot: doors },
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
      from: { path: `^src/(?!(${names.join('|')})/)[^/]+/` },
      to: {},
    },
    {
      name: 'simulator-by-need',
      comment: 'loading the simulator takes time, which ranks with GPUs need not spend',
      severity: 'error',
      from: { path: '^src/(net|moe|gpu/cuda)/' },
      to: { path: '^src/gpu/sim/', dependencyTypesNot: ['type-only', 'dynamic-import'] },
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
