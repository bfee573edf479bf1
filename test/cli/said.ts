import { afterEach, beforeEach, vi } from 'vitest';

/** What commands have written to stdout and stderr since the test began, or `forget`. */
export let [out, err] = ['', ''];

export function forget(): void {
  [out, err] = ['', ''];
}

/** Keeps what the tests of a file write from here on to itself, and puts back their exit code. */
export function hear(): void {
  beforeEach(() => {
    forget();
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
      out += text;
      return true;
    });
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
      err += text;
      return true;
    });
  });
  afterEach(() => {
    vi.restoreAllMocks();
    process.exitCode = undefined;
  });
}

/** What a call gives, and what it writes to stdout meanwhile. */
export async function heard<T>(
  call: () => Promise<T>,
): Promise<{ readonly given: T; readonly said: string }> {
  const said: string[] = [];
  const stdout = vi.spyOn(process.stdout, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  try {
    return { given: await call(), said: said.join('') };
  } finally {
    stdout.mockRestore();
  }
}
