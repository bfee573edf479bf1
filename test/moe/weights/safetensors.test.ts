/** Whatever a file says of itself, a reader takes what is in it or refuses it. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { FileError, WeightsError } from '../../../src/base/errors.js';
import { parseIndex } from '../../../src/moe/weights/folder.js';
import { parseHeader, shown, TensorFile } from '../../../src/moe/weights/safetensors.js';
import { drawnJson, readAll, spoiltBytes, spoiltJson } from '../../hostile.js';
import { needing } from '../../needs.js';
import { drawn, entriesOf, fileOf, folderWith, type StoredModel, safetensors } from './files.js';

const model = {
  a: drawn('BF16', [2, 3], 1),
  b: drawn('F8_E4M3', [5], 2),
  none: drawn('F32', [0, 4], 3),
  c: drawn('F32', [], 4),
} satisfies StoredModel;
const header = { __metadata__: { format: 'pt' }, ...entriesOf(model) };
const behind = 12 + 5 + 4;
const utf8 = (text: string) => new TextEncoder().encode(text);
const elementBytes = new Map([
  ['BF16', 2],
  ['F8_E4M3', 1],
  ['F32', 4],
]);

describe('a header', () => {
  const parse = (text: string) => parseHeader('file', utf8(text), behind);

  test('says where tensors are', () => {
    const text = JSON.stringify(header);
    const start = 8 + text.length;
    expect([...parse(text).values()]).toEqual([
      { name: 'a', dtype: 'BF16', shape: [2, 3], at: start, bytes: 12 },
      { name: 'b', dtype: 'F8_E4M3', shape: [5], at: start + 12, bytes: 5 },
      { name: 'none', dtype: 'F32', shape: [0, 4], at: start + 17, bytes: 0 },
      { name: 'c', dtype: 'F32', shape: [], at: start + 17, bytes: 4 },
    ]);
  });

  test('may name tensors in another order than they lie', () => {
    const { a, b, none, c } = entriesOf(model);
    const text = JSON.stringify({ c, none, b, a });
    expect(parse(text).get('a')).toMatchObject({ at: 8 + text.length, bytes: 12 });
  });

  test('is refused, or all its tensors are in the file, each in a place of its own', () => {
    const texts = [...spoiltJson(header), ...drawnJson(header, 5)];
    const read = (text: string) => ({ start: 8 + utf8(text).length, tensors: parse(text) });
    readAll(texts, read, WeightsError, ({ start, tensors }) => {
      let end = start;
      for (const { name, dtype, shape, at, bytes } of [...tensors.values()].sort(
        (x, y) => x.at - y.at || x.bytes - y.bytes,
      )) {
        expect(tensors.get(name)?.at).toBe(at);
        expect(at).toBe(end);
        const size = elementBytes.get(dtype);
        if (size !== undefined) expect(bytes).toBe(shape.reduce((n, length) => n * length, size));
        end += bytes;
      }
      expect(end).toBe(start + behind);
    });
  });

  test('takes a tensor called __proto__ for a tensor', () => {
    const found = parseHeader(
      'file',
      utf8('{"__proto__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
      1,
    );
    expect([...found.keys()]).toEqual(['__proto__']);
  });

  const entry = (change: object) => JSON.stringify({ ...header, b: { ...header.b, ...change } });
  it.each<[string, string, string, string | null]>([
    ['no JSON', '{"a":', 'its header is no JSON', null],
    ['no UTF-8', '\ud800', 'its header is no JSON', null],
    ['no object', '[]', 'its header is JSON, but no object', null],
    ['an entry that is no object', '{"a":1}', 'its entry in the header is no object', 'a'],
    ['a dtype that is no text', entry({ dtype: 8 }), 'its dtype is no text', 'b'],
    ['a negative length', entry({ shape: [-5] }), 'its shape is no list of lengths', 'b'],
    ['offsets that are texts', entry({ data_offsets: ['12', '17'] }), 'no two numbers of bytes', 'b'],
    ['one offset', entry({ data_offsets: [12] }), 'no two numbers of bytes', 'b'],
    ['a negative offset', entry({ data_offsets: [-1, 4] }), 'no two numbers of bytes', 'b'],
    ['an end before its beginning', entry({ data_offsets: [17, 12] }), 'end before they begin', 'b'],
    ['another shape', entry({ shape: [6] }), 'hold 5 bytes, and F8_E4M3 [6] has 6', 'b'],
    ['another type', entry({ dtype: 'BF16' }), 'hold 5 bytes, and BF16 [5] has 10', 'b'],
    ['a shape of too many bytes', entry({ shape: [2 ** 50, 2 ** 50] }), 'hold 5 bytes', 'b'],
    ['an overlap', entry({ data_offsets: [11, 16] }), 'begins inside another tensor', 'b'],
    ['a gap', entry({ data_offsets: [13, 18] }), 'begins 1 bytes behind the one before', 'b'],
    [
      'what is not in the file',
      entry({ shape: [9], data_offsets: [12, 21] }),
      'begins inside another tensor',
      'none',
    ],
    ['too little', JSON.stringify({ a: header.a }), 'its tensors end at byte', null],
  ])('is refused with %s', (_, text, message, tensor) => {
    const error = thrownBy(() => parse(text));
    expect(error).toMatchObject({ code: 'HEDDLE_WEIGHTS', file: 'file', tensor });
    expect(error.message).toContain(message);
    expect(error.message).toMatch(/^file: .*; download the file again$/);
  });

  test('may have types that are not known here', () => {
    const found = parseHeader('file', utf8('{"x":{"dtype":"F7","shape":[3],"data_offsets":[0,2]}}'), 2);
    expect(found.get('x')).toMatchObject({ dtype: 'F7', bytes: 2 });
  });

  test('with a name that is long and full of line ends makes a message of one line', () => {
    const name = 'x\n'.repeat(5_000);
    const { message } = thrownBy(() => parse(JSON.stringify({ [name]: 1 })));
    expect(message.length).toBeLessThan(300);
    expect(message).not.toContain('\n');
  });

  test('with a shape of very many lengths makes a short message', () => {
    const entry = { dtype: 'F32', shape: Array(100_000).fill(1), data_offsets: [0, 8] };
    const { message } = thrownBy(() => parse(JSON.stringify({ x: entry })));
    expect(message).toContain('and F32 [1, 1, 1, 1, 1, 1, 1, 1, …] has 4;');
    expect(message.length).toBeLessThan(300);
    expect(shown({ dtype: 'x\n'.repeat(5_000), shape: [1] })).toMatch(/^"(x\\n)+x?…" \[1\]$/);
  });
});

describe('an index', () => {
  const index = { metadata: { total_size: 5 }, weight_map: { a: 'one.safetensors', b: 'two.safetensors' } };
  const parse = (text: string) => parseIndex('index', utf8(text));

  test('is refused, or names files of the folder only', () => {
    readAll([...spoiltJson(index), ...drawnJson(index, 6)], parse, WeightsError, (places) => {
      for (const file of places.values()) expect(file).toMatch(/^[^/\\]+\.safetensors$/);
    });
  });

  it.each([
    '../one.safetensors',
    '/one.safetensors',
    'a\\..\\one.safetensors',
    'one.bin',
    '',
    '.safetensors/x',
  ])('is refused with the file %j', (file) => {
    const text = JSON.stringify({ weight_map: { a: file } });
    expect(thrownBy(() => parse(text)).message).toContain(
      '"a": it names no .safetensors file of this folder',
    );
  });
});

describe('a file', () => {
  const whole = safetensors(model);
  const openedWith = async (contents: Uint8Array) => {
    const file = await TensorFile.open(join(folderWith({ 'x.safetensors': contents }), 'x.safetensors'));
    await file.close();
    return file;
  };

  test('gives the bytes of its tensors, from any of them on', async () => {
    const folder = folderWith({ 'x.safetensors': whole });
    const file = await TensorFile.open(join(folder, 'x.safetensors'));
    const into = new Uint8Array(3);
    await file.read(file.tensors.get('b')!, 2, into);
    await file.close();
    expect([...into]).toEqual([...model.b.bits.subarray(2)]);
  });

  test('that ends while it is read is refused', async () => {
    const file = await TensorFile.open(join(folderWith({ 'x.safetensors': whole }), 'x.safetensors'));
    const read = file.read(file.tensors.get('c')!, 0, new Uint8Array(5));
    await expect(read).rejects.toThrow(`it ends at byte ${whole.length}: it was cut while it was read`);
    await file.close();
  });

  test('cut anywhere, or with a byte too many, is refused', async () => {
    for (let length = 0; length < whole.length; length += 3)
      await expect(openedWith(whole.slice(0, length))).rejects.toThrow(WeightsError);
    await expect(openedWith(Buffer.concat([whole, Uint8Array.of(0)]))).rejects.toThrow(
      'its tensors end at byte',
    );
  });

  test('with other bytes in its beginning is refused or read', async () => {
    const small = fileOf('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', Uint8Array.of(7));
    const ends = { read: 0, refused: 0 };
    for (const spoilt of [...spoiltBytes(small)].filter((_, i) => i % 5 === 0))
      try {
        await openedWith(spoilt);
        ends.read++;
      } catch (error) {
        expect(error).toBeInstanceOf(WeightsError);
        ends.refused++;
      }
    expect(Math.min(ends.read, ends.refused)).toBeGreaterThan(0);
  });

  it.each([
    [
      'that is a note of where the file lies',
      utf8('version https://git-lfs.github.com/spec/v1\n'),
      'download the file itself',
    ],
    ['whose header would be longer than itself', Uint8Array.of(200, 0, 0, 0, 0, 0, 0, 0, 123), 'it was cut'],
    [
      'whose header has more than 100 MB',
      Uint8Array.of(1, 225, 245, 5, 0, 0, 0, 0, 123),
      'has at most 100000000',
    ],
    ['that is empty', new Uint8Array(0), 'it is no safetensors file'],
  ])('%s is refused', async (_, contents, message) => {
    await expect(openedWith(contents)).rejects.toThrow(message);
  });

  test('that is a folder, or is not there, is refused', async () => {
    const folder = folderWith();
    await expect(TensorFile.open(folder)).rejects.toThrow(`${folder} cannot be read: it is no regular file`);
    await expect(TensorFile.open(join(folder, 'x'))).rejects.toThrow(FileError);
  });

  test('that is a pipe without a writer is refused at once', needing('mkfifo'), async () => {
    const pipe = join(folderWith(), 'x.safetensors');
    execFileSync('mkfifo', [pipe]);
    await expect(TensorFile.open(pipe)).rejects.toThrow('it is no regular file');
  });
});

function thrownBy(act: () => unknown): WeightsError {
  try {
    act();
  } catch (error) {
    if (error instanceof WeightsError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}
