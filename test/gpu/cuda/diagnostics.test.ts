import { describe, expect, it } from 'vitest';
import { CompileError, parseDiagnostics } from '../../../src/gpu/cuda/diagnostics.js';

// As NVRTC 13.0 and nvcc 13.0 print it.
const log = `src/moe/families/one-sided/dispatch.ts(41): error: identifier "slot" is undefined
    tokens[slot] = 1;
           ^

src/moe/families/one-sided/dispatch.ts(44): warning #177-D: variable "unused" was declared but never referenced
    int unused;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

kernel.cu(3): catastrophic error: out of memory

2 errors detected in the compilation of "kernel.cu".
`;

describe('compiler messages', () => {
  it('are read with file, line and severity', () => {
    expect(parseDiagnostics(log)).toEqual([
      {
        file: 'src/moe/families/one-sided/dispatch.ts',
        line: 41,
        severity: 'error',
        message: 'identifier "slot" is undefined',
      },
      {
        file: 'src/moe/families/one-sided/dispatch.ts',
        line: 44,
        severity: 'warning',
        message: 'variable "unused" was declared but never referenced',
      },
      { file: 'kernel.cu', line: 3, severity: 'error', message: 'out of memory' },
    ]);
  });

  it('are shown at the line of the TypeScript', () => {
    const lineOf = (file: string, line: number) =>
      file.endsWith('.ts') ? `line ${line} of the kernel` : null;
    const { message } = new CompileError('dispatch', parseDiagnostics(log), log, lineOf);
    expect(message).toBe(
      [
        'The CUDA compiler refused the kernel dispatch:',
        'src/moe/families/one-sided/dispatch.ts:41: error: identifier "slot" is undefined',
        '     41 | line 41 of the kernel',
        'kernel.cu:3: error: out of memory',
      ].join('\n'),
    );
  });

  it('are shown whole when they have no form that we know', () => {
    const { message } = new CompileError(
      'k',
      [],
      "ptxas fatal: Unresolved extern function 'f'\n",
      () => null,
    );
    expect(message).toContain("ptxas fatal: Unresolved extern function 'f'");
  });
});
