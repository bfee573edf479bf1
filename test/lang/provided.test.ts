/** Kernels of a text that is no file, as browsers have them: their errors show its lines. */
import { afterEach, expect, test, vi } from 'vitest';
import { type Kernel, KernelError, kernel, pointer, provideSource } from '../../src/lang/index.js';

const text = `const header = { name: 'same', params: { out: pointer('u32') } };
const first = kernel(header, (g, { out }) => {
  g.store(out, wanted);
});
const second = kernel(header, (g, { out }) => {
  g.store(out, wanted);
});
[first, second]`;

/** Where the errors of both kernels are. */
function places(name: string): string[] {
  provideSource(name, text);
  const made = new Function(
    'kernel',
    'pointer',
    `return eval(${JSON.stringify(`${text}\n//# sourceURL=${name}`)})`,
  );
  const kernels = made(kernel, pointer) as Kernel[];
  return kernels.map((one) => {
    try {
      one.ir();
      return 'no error';
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      const { file, line, frame } = error.diagnostics[0]!;
      return `${file}:${line} ${frame.split('\n').find((shown) => shown.startsWith('>'))}`;
    }
  });
}

afterEach(() => vi.restoreAllMocks());

test('each at its own line, though their texts are the same', () => {
  expect(places('editor.ts')).toEqual([
    'editor.ts:3 > 3 |   g.store(out, wanted);',
    'editor.ts:6 > 6 |   g.store(out, wanted);',
  ]);
});

test('found by their text where the engine does not tell who calls', () => {
  vi.spyOn(Error, 'captureStackTrace').mockImplementation(() => {});
  expect(places('other-engine.ts')[0]).toMatch(/^[\w-]+\.ts:3 > 3 \| {3}g\.store\(out, wanted\);$/);
});
