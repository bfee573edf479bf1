/** The kernels that only measure: transfers, and barriers that must really order them. */

import { World } from '../../../net/world/index.js';
import {
  flagBarrierKernel,
  flagBarrierWindow,
  loadCeilingKernel,
  readCeilingKernel,
  storeCeilingKernel,
  transferWindow,
} from '../../kernels/index.js';
import { type CheckConfiguration, type CheckSubject, WrongResult } from '../subject.js';
import { exceptKilled, once } from './by-rank.js';

const ranks = 3;
const capacity = 40;
const threads = 32;

const rowsLayout = transferWindow(ranks, capacity);
const flagsLayout = flagBarrierWindow(ranks);

const modules = once(() => ({
  stores: storeCeilingKernel(ranks, capacity, rowsLayout).ir(),
  loads: loadCeilingKernel(ranks, capacity, rowsLayout).ir(),
  reads: readCeilingKernel.ir(),
  barrier: flagBarrierKernel(ranks, flagsLayout).ir(),
}));

export const ceilings: CheckSubject = {
  name: 'ceilings',
  kernels: ['flag_barrier', 'ceiling_stores', 'ceiling_loads', 'ceiling_reads'],
  configurations: [transfers(), lostInBarrier()],
};

/** Stores, loads and looks at the own window, with a barrier between any two of them, in rounds. */
function transfers(): CheckConfiguration {
  return {
    name: 'ceilings, transfers between barriers',
    ranks,
    async run(machine) {
      await World.local({ ranks, device: 'sim', sim: machine }, async (world) => {
        const { meet, stream, rows } = await prepare(world);
        const { stores, loads, reads } = modules();
        const sink = world.device.allocate(2 * threads * 4, 'sink');
        const shape = { grid: 2, block: threads, rank: world.rank };
        const launchers = await Promise.all(
          [stores, loads, reads].map(async (module) => (await world.device.load(module)).launcher(shape)),
        );
        for (const launcher of launchers.slice(0, 2)) launcher.setWindow('win', rows);
        for (const launcher of launchers) launcher.set('vectors', capacity);
        for (const launcher of launchers.slice(1)) launcher.set('sink', sink.address);
        launchers[2]!.set('from', rows.own.address);
        const looks: Promise<Uint8Array>[] = [];
        for (let round = 0; round < 2; round++) {
          launchers[0]!.launch(stream);
          meet(2, round);
          looks.push(stream.copyOut(rows.own.address, rowsLayout.bytes));
          launchers[1]!.launch(stream);
          launchers[2]!.launch(stream);
          meet(1, 0);
        }
        await stream.synchronize();
        for (const bytes of await Promise.all(looks)) requireRows(bytes, world.rank);
        await world.barrier('done');
      });
    },
  };
}

/** Two of three ranks are gone: the third must name one of them. */
function lostInBarrier(): CheckConfiguration {
  return {
    name: 'ceilings, ranks lost in a barrier',
    ranks,
    async run(machine) {
      let named = 0;
      const world = World.local({ ranks, device: 'sim', sim: machine }, async (world) => {
        const { meet, stream, flags } = await prepare(world);
        if (world.rank > 0) {
          machine.kill(world.rank);
          await stream.synchronize();
        }
        meet(1, 0);
        await stream.synchronize();
        const { offset } = flagsLayout.fields.find(({ name }) => name === 'failed')!;
        named = (await stream.copyOut(flags.own.address + offset, 4))[0]!;
      });
      await exceptKilled(world);
      if (named !== 2 && named !== 3) throw new WrongResult(`failed is ${named} instead of 1 + a lost rank`);
    },
  };
}

async function prepare(world: World) {
  const rows = await world.createWindow(rowsLayout.bytes, 'rows');
  const flags = await world.createWindow(flagsLayout.bytes, 'flags');
  const stream = world.device.createStream();
  const program = await world.device.load(modules().barrier);
  const barrier = program.launcher({ grid: 1, block: threads, rank: world.rank });
  barrier.setWindow('win', flags);
  barrier.set('limit', 1000);
  const meet = (rounds: number, pause: number): void => {
    barrier.set('rounds', rounds);
    barrier.set('pause', pause);
    barrier.launch(stream);
  };
  return { stream, rows, flags, meet };
}

/** Vector i of source s begins with i and has s + i in its third word. */
function requireRows(bytes: Uint8Array, rank: number): void {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, ranks * capacity * 4);
  for (let source = 0; source < ranks; source++) {
    for (let i = 0; i < capacity && source !== rank; i++) {
      const at = (source * capacity + i) * 4;
      if (words[at] !== i || words[at + 2] !== source + i) {
        throw new WrongResult(`rank ${rank} has ${words[at + 2]} in vector ${i} of rank ${source}`);
      }
    }
  }
}
