import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import { allocate } from '../../src/base/native/index.js';
import { NativeView } from '../../src/gpu/index.js';
import { SimMachine } from '../../src/gpu/sim/index.js';

describe('views of mapped memory', () => {
  it('mean the same on real and simulated memory, whatever is done by them', () => {
    const real = allocate(64);
    const simulated = SimMachine.create({ ranks: 1 }).device(0).allocateMapped(64, 'words');
    const views = [new NativeView(new Uint8Array(real.buffer)), simulated.host];
    const operation = fc.oneof(
      fc.record({ what: fc.constant('load' as const), offset: fc.integer({ min: -4, max: 68 }) }),
      fc.record({
        what: fc.constant('store' as const),
        offset: fc.nat(17).map((word) => 4 * word),
        value: fc.nat({ max: 2 ** 32 - 1 }),
      }),
      fc.record({
        what: fc.constant('write' as const),
        offset: fc.integer({ min: -1, max: 64 }),
        bytes: fc.uint8Array({ maxLength: 20 }),
      }),
      fc.record({ what: fc.constant('read' as const), offset: fc.nat(64), length: fc.nat(20) }),
    );
    fc.assert(
      fc.property(fc.array(operation), (operations) => {
        for (const doing of operations) {
          const [one, other] = views.map((view) => {
            try {
              if (doing.what === 'load') return view.load(doing.offset);
              if (doing.what === 'store') return view.store(doing.offset, doing.value);
              if (doing.what === 'write') return view.write(doing.offset, doing.bytes);
              const into = new Uint8Array(doing.length);
              view.read(doing.offset, into);
              return [...into];
            } catch (error) {
              expect(error).toBeInstanceOf(ArgumentError);
              return (error as Error).message;
            }
          });
          expect(other).toEqual(one);
        }
        expect([...simulated.raw]).toEqual([...new Uint8Array(real.buffer)]);
      }),
      { seed: 1 },
    );
    real.free();
  });
});
