/**
 * The files that tell where a body stands in its source. Node.js's modules are asked for when the program runs, not
 * imported: the compiler also runs in browsers, where there are none, and no files but those that someone provided.
 */
const node = globalThis.process?.getBuiltinModule && {
  fs: process.getBuiltinModule('node:fs'),
  path: process.getBuiltinModule('node:path'),
  url: process.getBuiltinModule('node:url'),
  module: process.getBuiltinModule('node:module'),
};

/** The content of a file; undefined where there is none, or none that can be read. */
export function readText(path: string): string | undefined {
  try {
    return node?.fs.statSync(path).isFile() ? node.fs.readFileSync(path, 'utf8') : undefined;
  } catch {
    return undefined;
  }
}

/** The source map that was written beside a file. */
export function sourceMapOf(path: string) {
  const text = readText(`${path}.map`);
  return node === undefined || text === undefined ? undefined : new node.module.SourceMap(JSON.parse(text));
}

/** A path that a source map gives, relative to the file it is the map of. */
export function besideFile(path: string, other: string): string {
  return node === undefined ? other : node.path.resolve(node.path.dirname(path), other);
}

/** The path of a script, as the engine names it; undefined for what is no file. Loaders append queries. */
export function scriptPath(script: string): string | undefined {
  const bare = script.replace(/[?#].*$/, '');
  if (node === undefined) return bare;
  if (bare.startsWith('file:')) return node.url.fileURLToPath(bare);
  return bare.startsWith('node:') || bare.startsWith('data:') ? undefined : node.path.resolve(bare);
}

/** Relative to the package that the file belongs to. */
export function shownPath(path: string): string {
  if (node === undefined) return path;
  const { dirname, join, relative, sep } = node.path;
  for (let folder = dirname(path); folder !== dirname(folder); folder = dirname(folder)) {
    if (node.fs.existsSync(join(folder, 'package.json'))) return relative(folder, path).split(sep).join('/');
  }
  return path;
}
