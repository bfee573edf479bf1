/** What becomes of Heddle's own kernels when a bundler minifies them. */
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build } from 'esbuild';
import { expect, test } from 'vitest';
import { type Diagnostic, effectsOf, type IrModule, type KernelError } from '../../src/lang/index.js';
import { registry as plain } from '../../src/verify/kernels/index.js';

/** The registry out of a bundle, which is run here without a file of its own. */
async function bundled(options: BuildOptions): Promise<ReturnType<typeof plain>> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL('../../src/verify/kernels/index.ts', import.meta.url))],
    bundle: true,
    format: 'cjs',
    platform: 'node',
    packages: 'external',
    define: { 'import.meta.url': JSON.stringify(import.meta.url) },
    ...options,
    write: false,
    logLevel: 'error',
  });
  const module: { exports: Partial<typeof import('../../src/verify/kernels/index.js')> } = { exports: {} };
  new Function('require', 'module', outputFiles[0]!.text)(createRequire(import.meta.url), module);
  return module.exports.registry!();
}

const operationsOf = (module: IrModule): string[] => effectsOf(module).map(({ effect }) => effect.op);

test('shorter names and less white space change nothing', async () => {
  const registry = await bundled({ minifyIdentifiers: true, minifyWhitespace: true });
  for (const { name, build } of plain()) {
    const terse = registry
      .find((kernel) => kernel.name === name)!
      .build()
      .ir();
    expect([name, operationsOf(terse)]).toEqual([name, operationsOf(build().ir())]);
  }
});

test.each<BuildOptions>([{ minify: true }, { minifySyntax: true }, { minifySyntax: true, keepNames: true }])(
  'a kernel that a minifier rewrote gives one error, which says what to do: %o',
  async (options) => {
    const registry = await bundled(options);
    const found = new Map<string, readonly Diagnostic[]>();
    for (const { name, build } of registry) {
      try {
        build().ir();
      } catch (error) {
        found.set(name, (error as KernelError).diagnostics);
      }
    }
    expect([...found.keys()]).toContain('one_sided_dispatch');
    for (const diagnostics of found.values()) {
      expect(diagnostics.map(({ code, message }) => `${code} ${message}`)).toEqual([
        expect.stringMatching(/^HK105/),
      ]);
      expect(diagnostics[0]!.message).toMatch(/minifier.*minifySyntax: false.*compress: false/);
    }
  },
);
