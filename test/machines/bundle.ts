/** What ranks in virtual machines run, in few files: an emulated machine takes half a minute to load two hundred. */
import { join } from 'node:path';
import { build } from 'esbuild';
import { root, transpiled } from '../tree.js';

/** A neighbour of the engine: from here its thread is found where that lies. */
const bundle = transpiled('src/net/fabric/bundle');

/** Programs by name. Those behind them are modules that they open as files of their own, beside them. */
const modules = {
  several: 'test/machines/programs/several.ts',
  engines: 'test/machines/programs/engines.ts',
  place: 'test/net/world/programs/place.ts',
  survive: 'test/machines/programs/survive.ts',
  'nodes-rank': 'test/suite/programs/nodes-rank.ts',
  probing: 'src/base/native/probing.ts',
  proxy: 'src/moe/families/hybrid/proxy.ts',
};

/** Makes the bundle of what is transpiled. */
export async function makeBundle(): Promise<void> {
  await build({
    ...{
      absWorkingDir: root,
      outdir: bundle,
      bundle: true,
      splitting: true,
      format: 'esm',
      platform: 'node',
    },
    ...{ external: ['koffi'], logLevel: 'error' },
    entryPoints: Object.fromEntries(
      Object.entries(modules).map(([name, source]) => [name, transpiled(source)]),
    ),
  });
}

/** Where a program of the bundle lies. */
export const bundled = (name: keyof typeof modules): string => join(bundle, `${name}.js`);
