/** Once before the tests: the tree that they, their processes and threads run. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';
import type { TestProject } from 'vitest/node';
import { doors, manifest, root, tree } from './tree.js';

export default async function setup(project: TestProject): Promise<void> {
  await transpile();
  project.onTestsRerun(transpile);
}

export async function transpile(): Promise<void> {
  await build({
    absWorkingDir: root,
    entryPoints: [
      'src/**/*.ts',
      'src/**/*.json',
      'src/**/*.c',
      'src/**/*.h',
      'test/**/*.ts',
      'examples/**/*.ts',
    ],
    loader: { '.json': 'copy', '.c': 'copy', '.h': 'copy' },
    outdir: tree,
    outbase: root,
    format: 'esm',
    target: `node${process.versions.node}`,
    sourcemap: true,
    logLevel: 'error',
  });
  // Its own package: examples import it by its name.
  const exports = Object.fromEntries(
    doors.map(([name, source]) => [name.replace('heddle', '.'), `./src/${source.replace(/\.ts$/, '.js')}`]),
  );
  writeFileSync(join(tree, 'package.json'), JSON.stringify({ ...manifest, exports }));
}
