/** Accesses that come later than they stand: their own thread notices nothing, others see no more than PTX allows. */
import { describe, expect, it } from 'vitest';
import { Random } from '../../../src/gpu/sim/random.js';
import { download, launch, machineOf, windowsOf } from './harness.js';
import { litmusKernel } from './litmus/program.js';
import { clean, fileOf, run } from './ptx/harness.js';

const pick = <T>(random: Random, all: readonly T[]): T => all[random.below(all.length)]!;

function statementsOf(random: Random): string[] {
  const [place, register] = [() => pick(random, ['x', 'y', 'z']), () => pick(random, ['a', 'b', 'c', 'd'])];
  return Array.from({ length: 8 }, (_, i) => {
    const guard = random.below(6) === 0 ? `${register()} ? ` : '';
    const kind = random.below(4);
    if (kind === 0) return `${guard}${register()} = ${place()} relaxed`;
    if (kind === 1) return `${guard}${register()} += ${place()} ${i + 1} relaxed`;
    return `${guard}${place()} = ${i + 10} ${pick(random, ['relaxed', 'weak'])}`;
  });
}

async function alone(statements: readonly string[], mode: 'fast' | 'checked', seed: string): Promise<string> {
  const { ranks } = machineOf({ ranks: 1, mode, seed });
  const [win] = await windowsOf(ranks, 256, 'places');
  const out = ranks[0]!.device.allocateWindow(16, 'registers');
  await launch(ranks[0]!, litmusKernel({ threads: [statements] }).ir(), { block: 1 }, { win: win!, out });
  const places = await download(ranks[0]!, { address: win!.bases[0]!, bytes: 48 });
  return `${new Uint32Array(await download(ranks[0]!, out))} ${new Uint32Array(places)}`;
}

function instructionsOf(random: Random): string {
  const register = (): string => `%r${1 + random.below(5)}`;
  const place = (): string => `[%out+${4 * random.below(3)}]`;
  const lines = Array.from({ length: 14 }, (_, i) => {
    switch (random.below(6)) {
      case 0:
        return `ld.relaxed.gpu.global.u32 ${register()}, ${place()};`;
      case 1:
        return `atom.relaxed.gpu.global.add.u32 ${register()}, ${place()}, ${register()};`;
      case 2:
        return `red.relaxed.gpu.global.add.u32 ${place()}, ${register()};`;
      case 3:
        return `add.u32 ${register()}, ${register()}, ${i};`;
      case 4:
        return `setp.gt.u32 %p1, ${register()}, 9; @%p1 st.relaxed.gpu.global.u32 ${place()}, ${register()};`;
      default:
        return `st.relaxed.gpu.global.u32 ${place()}, ${register()};`;
    }
  });
  const starts = [0, 1, 2].map((i) => `st.global.u32 [%out+${4 * i}], ${i};`);
  const all = [1, 2, 3, 4, 5];
  const ends = all.map((i) => `st.global.u32 [%out+${12 + 4 * i}], %r${i};`);
  return fileOf([...starts, ...all.map((i) => `mov.u32 %r${i}, ${i};`), ...lines, ...ends].join('\n'));
}

describe('accesses that come late', () => {
  it('change nothing for a thread that is alone', async () => {
    const random = Random.from('alone');
    for (let n = 0; n < 20; n++) {
      const statements = statementsOf(random);
      const inOrder = await alone(statements, 'fast', '0');
      for (const seed of ['0', '1', '2', '3'])
        expect(await alone(statements, 'checked', seed), statements.join('; ')).toBe(inOrder);
    }
  });

  it('change nothing for such a thread in PTX', async () => {
    const random = Random.from('alone in PTX');
    for (let n = 0; n < 25; n++) {
      const text = instructionsOf(random);
      const inOrder = await run(text, { mode: 'fast' });
      for (const seed of ['0', '1', '2', '3']) {
        expect((await clean(text, { seed })).words, text).toEqual(inOrder.words);
      }
    }
  });

  it('never bring values out of thin air, though they come behind other stores', async () => {
    // Each thread stores what it has loaded, and something else before that.
    const text = fileOf(`
      mov.u32 %r9, %ctaid.x; setp.eq.u32 %p1, %r9, 1; @%p1 bra OTHER;
      ld.relaxed.gpu.global.u32 %r1, [%out]; st.relaxed.gpu.global.u32 [%out+8], 1; st.relaxed.gpu.global.u32 [%out+4], %r1; ret;
      OTHER: ld.relaxed.gpu.global.u32 %r1, [%out+4]; st.relaxed.gpu.global.u32 [%out+12], 1; st.relaxed.gpu.global.u32 [%out], %r1;`);
    for (let n = 0; n < 200; n++) {
      const { words } = await clean(text, { grid: 2, seed: `${n}` });
      expect([...words.slice(0, 4)]).toEqual([0, 0, 1, 1]);
    }
  });
});
