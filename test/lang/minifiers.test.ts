/** What becomes of Heddle's own kernels when a bundler minifies them. */
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build } from 'esbuild';
import { build as buildByVite } from 'vite';
import { expect, test } from 'vitest';
import { type Diagnostic, effectsOf, type IrModule, type KernelError } from '../../src/lang/index.js';
import { registry as plain } from '../../src/verify/kernels/index.js';

const entry = fileURLToPath(new URL('../../src/verify/kernels/index.ts', import.meta.url));

/** The registry out of the text of a bundle, which is run here without a file of its own. */
function registryOf(text: string): ReturnType<typeof plain> {
  const module: { exports: Partial<typeof import('../../src/verify/kernels/index.js')> } = { exports: {} };
  const required = createRequire(import.meta.url);
  new Function('require', 'module', 'exports', text)(required, module, module.exports);
  return module.exports.registry!();
}

async function bundled(options: BuildOptions): Promise<ReturnType<typeof plain>> {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    format: 'cjs',
    platform: 'node',
    packages: 'external',
    define: { 'import.meta.url': JSON.stringify(import.meta.url) },
    ...options,
    write: false,
    logLevel: 'error',
  });
  return registryOf(outputFiles[0]!.text);
}

/** The same by the Vite that Vitest brings. */
async function bundledByVite(options: { readonly treeshake?: false; readonly compress: boolean }) {
  const { compress, ...own } = options;
  const made = await buildByVite({
    configFile: false,
    logLevel: 'silent',
    define: { 'import.meta.url': JSON.stringify(import.meta.url) },
    build: {
      ...{ write: false, target: 'esnext', ssr: entry },
      rolldownOptions: {
        ...own,
        external: /^(?!\.|\/|node:)|^node:/,
        output: { format: 'cjs', minify: { compress } },
      },
    },
  });
  if (!('output' in made)) throw new Error('Vite made no single bundle');
  return registryOf(made.output[0].code);
}

const operationsOf = (module: IrModule): string[] => effectsOf(module).map(({ effect }) => effect.op);

test.each([
  ['esbuild', () => bundled({ minifyIdentifiers: true, minifyWhitespace: true })],
  ['Vite', () => bundledByVite({ treeshake: false, compress: false })],
] as const)('shorter names and less white space change nothing (%s)', async (_tool, made) => {
  const registry = await made();
  for (const { name, build } of plain()) {
    const terse = registry
      .find((kernel) => kernel.name === name)!
      .build()
      .ir();
    expect([name, operationsOf(terse)]).toEqual([name, operationsOf(build().ir())]);
  }
});

test.each([
  ['minify', () => bundled({ minify: true })],
  ['minifySyntax', () => bundled({ minifySyntax: true })],
  ['names that are kept', () => bundled({ minifySyntax: true, keepNames: true })],
  ['Vite', () => bundledByVite({ compress: true })],
] as const)(
  'a kernel that a minifier rewrote gives one error, which says what to do: %s',
  async (_options, made) => {
    const registry = await made();
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
