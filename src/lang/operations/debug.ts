/** Messages of a kernel to the person who debugs it. */
import type { Expr } from '../expression.js';
import type { bf16, bool, e4m3, f16, f32, i32, u32, u64 } from '../language.js';
import type { ValueName } from '../types.js';
import { operation, value, words } from './operation.js';
import { calls } from './parts.js';

/** The directive of printf for a value, by its type; others become one of these first. */
const directives: Partial<Record<ValueName, string>> = {
  bool: '%s',
  i32: '%d',
  u32: '%u',
  u64: '%llu',
  f32: '%g',
};
export const printedTypes = Object.keys(directives);

const nameOf = ({ type }: Expr): ValueName => (type.kind === 'value' ? type.name : 'u32');

/** The text of a string in C++. Of what printf would read as a directive, as two. */
const format = (words: readonly (string | Expr)[]): string =>
  JSON.stringify(
    words
      .map((word) => (typeof word === 'string' ? word.replaceAll('%', '%%') : directives[nameOf(word)]))
      .join(' '),
  ).slice(1, -1);

export const debug = {
  /** Stops the kernel where `test` is false. On GPUs a line names the statement, the block and the thread, and a trap follows. */
  assert: operation({
    signature: calls<(test: bool) => void>(),
    takes: { test: value('bool') },
    alone: {},
    cuda({ test }, { prelude, args }) {
      const name = prelude.add(`DEVICE void assert_that(bool test, const char* file, u32 line) {
  if (test) return;
  printf("%s:%u: g.assert fails in block %u, thread %u\\n", file, line, blockIdx.x, threadIdx.x);
  __trap();
}`);
      // Of the TypeScript: that is where #line points.
      return `${name}(${args(test)}, __FILE__, __LINE__)`;
    },
    simulate: ({ test }, machine) => machine.call('assert', test, machine.site),
  }),
  /** Stops a debugger that is attached to the simulated machine, as the statement `debugger` does. Nothing on GPUs. */
  debugger: operation({
    alone: {},
    cuda: () => '(void)0',
    simulate: (_, machine) => machine.stop(),
  }),
  /** Prints a line: the rank, the block and the thread, then the texts and values, a space between each. */
  print: operation({
    signature:
      calls<(...words: readonly (string | bool | i32 | u32 | u64 | f32 | bf16 | f16 | e4m3)[]) => void>(),
    takes: { words },
    alone: {},
    cuda({ words }, { prelude, args }) {
      const values = words.flatMap((word) => {
        if (typeof word === 'string') return [];
        return [nameOf(word) === 'bool' ? `(${args(word)}) ? "true" : "false"` : args(word)];
      });
      const where = ['rank', 'blockIdx.x', 'threadIdx.x'];
      return `${prelude.add('printf')}("rank %u, block %u, thread %u: ${format(words)}\\n", ${[...where, ...values].join(', ')})`;
    },
    simulate: ({ words }, machine) => machine.print(words),
  }),
};
