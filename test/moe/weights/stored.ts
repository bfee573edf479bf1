/** Tensors as files hold them, and the files. */
import { bytesOf } from '../../../src/moe/index.js';
import { type Bits, fromF32 } from '../../../src/moe/layer/index.js';
import { randomBytes, randomElements } from '../../../src/verify/testing/index.js';

export interface Stored {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bits: Bits;
}
export type StoredModel = Readonly<Record<string, Stored>>;

export const stored = (dtype: string, shape: readonly number[], bits: Bits): Stored => ({
  dtype,
  shape,
  bits,
});

const types = { BF16: 'bf16', F32: 'f32', F8_E4M3: 'e4m3' } as const;

/** With elements from a seed. */
export function drawn(dtype: keyof typeof types | 'F8_E8M0', shape: readonly number[], seed: number): Stored {
  const length = shape.reduce((product, n) => product * n, 1);
  if (dtype === 'F8_E8M0')
    return stored(
      dtype,
      shape,
      randomBytes(length, seed).map((exponent) => exponent % 255),
    );
  const values = Float32Array.from(randomElements('f32', length, seed));
  return stored(dtype, shape, fromF32(types[dtype], values));
}

export interface Entry {
  readonly dtype: unknown;
  readonly shape: unknown;
  readonly data_offsets: unknown;
}

/** What a header says of tensors that lie in this order. */
export function entriesOf<K extends string>(model: Readonly<Record<K, Stored>>): Record<K, Entry> {
  let at = 0;
  const entries = Object.entries<Stored>(model).map(([name, { dtype, shape, bits }]) => {
    const from = at;
    at += bits.byteLength;
    return [name, { dtype, shape, data_offsets: [from, at] }];
  });
  return Object.fromEntries(entries) as Record<K, Entry>;
}

/** A file whose header is this text. */
export function fileOf(header: string, data: Uint8Array): Uint8Array {
  const text = new TextEncoder().encode(header);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true);
  return Buffer.concat([length, text, data]);
}

export function safetensors(model: StoredModel): Uint8Array {
  const data = Buffer.concat(Object.values(model).map(({ bits }) => bytesOf(bits)));
  // Writers fill up with blanks.
  return fileOf(`${JSON.stringify({ __metadata__: { format: 'pt' }, ...entriesOf(model) })}   `, data);
}
