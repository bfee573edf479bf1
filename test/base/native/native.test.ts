import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { ArgumentError, DisposedError, UnavailableError } from '../../../src/base/errors.js';
import {
  addressOf,
  allocate,
  byValue,
  functionAt,
  openLibrary,
  probe,
  readAddress,
  readString,
  runApart,
  setEnvironment,
  view,
} from '../../../src/base/native/index.js';
import { transpiledUrl } from '../../tree.js';

describe('libraries', () => {
  it('opens the first candidate that loads and calls what it exports', () => {
    const libm = openLibrary(['libno-such-thing.so', 'libm.so.6'], 'Install libm');
    expect(libm.name).toBe('libm.so.6');
    expect(libm.path).toMatch(/^\/.*libm/);
    expect(libm.functions({ sqrt: ['f64', 'f64'] }).sqrt(2)).toBeCloseTo(Math.SQRT2);
    const { cbrt, no_such_symbol } = libm.optional({ cbrt: ['f64', 'f64'], no_such_symbol: ['void'] });
    expect(cbrt?.(27)).toBeCloseTo(3);
    expect(no_such_symbol).toBeNull();
  });

  it('stays when the thread that opened it has ended: its handlers of signals may be called', async () => {
    // One of the C library's own that nothing else here needs.
    const name = 'libanl.so.1';
    const isMapped = () => readFileSync('/proc/self/maps', 'utf8').includes('/libanl');
    expect(isMapped()).toBe(false);
    const { href } = transpiledUrl('src/base/native/index.ts');
    const program = `import(${JSON.stringify(href)}).then(({ openLibrary }) => openLibrary(['${name}'], 'Install it'))`;
    const [code] = await once(new Worker(program, { eval: true }), 'exit');
    expect(code).toBe(0);
    expect(isMapped()).toBe(true);
  });

  it('names every candidate and the remedy when none loads', () => {
    const open = () => openLibrary(['liba-missing.so', 'libb-missing.so'], 'Install the missing package');
    expect(open).toThrow(UnavailableError);
    expect(open).toThrow(/liba-missing.so: .*libb-missing.so: .*Install the missing package/);
  });

  it('calls through a function pointer', () => {
    const libc = openLibrary(null, '');
    const strlen = functionAt(libc.addressOf('strlen'), ['u64', 'buffer']);
    expect(strlen(Buffer.from('seven..\0'))).toBe(7);
  });

  it('sets the environment that libraries read', () => {
    const { getenv } = openLibrary(null, '').functions({ getenv: ['address', 'string'] });
    const set = (value: string, overwrite: boolean) => {
      setEnvironment('HEDDLE_TEST_NATIVE', value, overwrite);
      return readString(getenv('HEDDLE_TEST_NATIVE'));
    };
    expect([set('first', false), set('second', false), set('third', true)]).toEqual([
      'first',
      'first',
      'third',
    ]);
  });

  it('passes a structure by value', () => {
    const libc = openLibrary(null, '');
    // div_t div(int, int) returns two ints by value.
    const { div } = libc.functions({ div: [byValue(8), 'i32', 'i32'] });
    const { bytes } = div(17, 5);
    expect([...new Int32Array(bytes.buffer, bytes.byteOffset, 2)]).toEqual([3, 2]);
  });
});

describe('memory', () => {
  it('sees the same bytes through every view and through C', () => {
    const memory = allocate(10_000);
    expect(memory.address % 4096).toBe(0);
    expect(new Uint8Array(memory.buffer).every((byte) => byte === 0)).toBe(true);
    new Uint8Array(memory.buffer).set(Buffer.from('woven\0'), 100);
    expect(readString(memory.address + 100)).toBe('woven');
    expect(new Uint8Array(view(memory.address + 104, 1))[0]).toBe('n'.charCodeAt(0));
    new BigUint64Array(memory.buffer)[0] = BigInt(memory.address + 100);
    expect(readAddress(memory.address)).toBe(memory.address + 100);
    expect(addressOf(memory.buffer)).toBe(memory.address);
    expect(addressOf(new Uint8Array(memory.buffer, 16))).toBe(memory.address + 16);
    memory.free();
    memory.free();
    expect(() => memory.buffer).toThrow(DisposedError);
  });

  it('that is released stays as long as somebody can see it', () => {
    const memory = allocate(4096);
    const bytes = new Uint8Array(memory.buffer).fill(7);
    memory.release();
    memory.release();
    memory.free();
    expect(() => memory.buffer).toThrow(DisposedError);
    // What free() gives back comes out of the next allocations; this memory must not.
    const others = Array.from({ length: 50 }, () => allocate(4096));
    for (const other of others) new Uint8Array(other.buffer).fill(1);
    expect(bytes.every((byte) => byte === 7)).toBe(true);
    for (const other of others) other.free();
  });

  it('finds shared array buffers, which every thread sees at one address', () => {
    const shared = new SharedArrayBuffer(64);
    new Uint8Array(view(addressOf(shared), 64))[9] = 42;
    expect(new Uint8Array(shared)[9]).toBe(42);
  });

  it('refuses null addresses and views that Node.js would abort on', () => {
    expect(() => view(0, 8)).toThrow(ArgumentError);
    expect(() => view(4096, 2 ** 32)).toThrow(/bytes is 4294967296/);
    expect(() => allocate(0)).toThrow(/bytes/);
    expect(readString(0)).toBeNull();
  });
});

describe('probe', () => {
  it('reports a library that opens, with its path', () => {
    expect(probe(['libno-such-thing.so', 'libm.so.6'])).toMatchObject({
      ok: true,
      name: 'libm.so.6',
      version: null,
    });
  });

  it('asks for the version', () => {
    const answer = probe(['libc.so.6'], { symbol: 'getpagesize', how: 'returns' });
    expect(answer).toMatchObject({ ok: true, version: 4096 });
  });

  it('reports a library that opens but does not come up', () => {
    // close(0) succeeds once; a probing process that has closed its input still answers.
    const works = { symbol: 'getpagesize', how: 'returns', initialise: 'close' } as const;
    expect(probe(['libc.so.6'], works)).toMatchObject({ ok: true, version: 4096 });
    const fails = { symbol: 'getpagesize', how: 'returns', initialise: 'dup' } as const;
    expect(probe(['libc.so.6'], fails)).toEqual({
      ok: false,
      reason: expect.stringMatching(/libc.so.6: dup returned [1-9]/),
    });
  });

  it('survives a library call that ends the process', () => {
    expect(probe(['libc.so.6'], { symbol: 'abort', how: 'returns' })).toEqual({
      ok: false,
      reason: expect.stringContaining('SIGABRT'),
    });
  });

  it('survives a library call that ends the process as if all were well', () => {
    const ends = { symbol: 'getpagesize', how: 'returns', initialise: 'exit' } as const;
    expect(probe(['libc.so.6'], ends)).toEqual({
      ok: false,
      reason: 'the process of the trial ended without an answer',
    });
  });

  it('says of a process that does not answer how long it had', () => {
    expect(runApart(new URL('data:text/javascript,for (;;);'), 1)).toEqual({
      ok: false,
      reason: 'the process of the trial did not answer within 0.001 s',
    });
  });

  it('gives the reason for each candidate that does not open', () => {
    expect(probe(['libno-such-thing.so'])).toEqual({
      ok: false,
      reason: expect.stringContaining('no-such-thing'),
    });
  });
});
