/** Sums of a product that are used before it is awaited: an error where straight-line code shows it, and nothing where it may be right. */
import { describe, expect, test } from 'vitest';
import { device, KernelError, kernel, pointer, registers, tile } from '../../../src/lang/index.js';

const Tile = tile('bf16', [64, 64], { swizzle: 128 });
const touch = device({ params: { sums: registers('f32') } }, (_g, { sums }) => {
  sums[1] = 2;
});

/** The marked pieces of a kernel whose body has a product and then this text. */
function errorsOf(body: string): string[] {
  const text = `(g, { out, u }, { Tile, touch }) => {
    const a = g.shared(Tile);
    const sums = g.registers('f32', 32);
    const others = g.registers('f32', 32);
    const held = g.registers('u32', 16);
    g.wgmma.fence();
    g.wgmma.multiply(sums, a, a, true);
    ${body}
    if (u === 7) touch({ sums: others });
    g.store(out, sums[0] + others[0]);
  }`;
  const made = new Function(`return ${text}`)();
  try {
    kernel({ name: 'early', params: { out: pointer('f32'), u: 'u32' }, using: { Tile, touch } }, made).ir();
    return [];
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return error.diagnostics.map(({ code, frame }) => {
      const lines = frame.split('\n');
      const at = lines.findIndex((line) => line.startsWith('>'));
      const [line, marks] = [lines[at]!, lines[at + 1]!];
      return `${code} ${line.slice(marks.indexOf('^'), marks.lastIndexOf('^') + 1)}`;
    });
  }
}

const last = 'HK610 g.store(out, sums[0] + others[0])';
const started = 'g.wgmma.commit();';

describe('sums of a product', () => {
  test.each([
    ['are written', 'sums[3] = 1;'],
    ['are read in a branch', 'if (u > 3) g.store(out, sums[5]);', 'g.store(out, sums[5])'],
    ['are written in a loop', 'for (let i = g.u32(0); i < u; i += 1) sums[3] += 1;', 'sums[3] += 1;'],
    ['are written by a device function', 'touch({ sums });', 'sums[1] = 2;'],
  ])('%s too early', (_, body, wrong = body) => {
    expect(errorsOf(`${started} ${body} g.wgmma.wait(0);`)).toEqual([`HK610 ${wrong}`]);
  });

  test('are a factor, which is written too early', () => {
    const held = 'g.wgmma.multiplyHeld(sums, held, a, false);';
    expect(errorsOf(`${held} ${started} held[3] = 1; g.wgmma.wait(0);`)).toEqual(['HK610 held[3] = 1;']);
  });

  test.each(['', 'g.wgmma.multiply(sums, a, a, false);'])('are read too early: %s', (more) => {
    expect(errorsOf(`${more} ${started}`)).toEqual([last]);
  });

  test.each([
    ['after the wait', `${started} g.wgmma.wait(0);`],
    ['while others are under way', `${started} others[2] = 1; g.wgmma.wait(0);`],
    ['after a wait that leaves some pending', `${started} g.wgmma.wait(1);`],
    ['where a branch may have awaited', `${started} if (u > 3) g.wgmma.wait(0);`],
    ['after a second product', `g.wgmma.multiply(sums, a, a, false); ${started} g.wgmma.wait(0);`],
  ])('may be used %s', (_, body) => {
    expect(errorsOf(body)).toEqual([]);
  });
});
