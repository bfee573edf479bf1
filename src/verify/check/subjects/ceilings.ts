/** The kernels that only measure: transfers, and barriers that must really order them. */

import { callSite } from '../../../gpu/index.js';
import { World } from '../../../net/world/index.js';
import {
  createFlagBarrier,
  flagBarrierKernel,
  loadCeilingKernel,
  readCeilingKernel,
  storeCeilingKernel,
} from '../../kernels/index.js';
import { type CheckConfiguration, type CheckSubject, WrongResult } from '../subject.js';
import { exceptKilled } from './by-rank.js';

const ranks = 3;
const capacity = 40;
const threads = 32;

const storing = storeCeilingKernel(ranks, capacity);
const loading = loadCeilingKernel(ranks, capacity);
const barrierKernel = flagBarrierKernel(ranks);

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
        const { device, rank } = world;
        const { meet, stream } = await prepare(world);
        const { bytes } = storing.params.win.layout;
        const rows = await world.createWindow(bytes, 'rows');
        const sink = device.allocate(2 * threads * 4, 'sink');
        const shape = { grid: 2, block: threads, rank };
        const stores = await callSite(device, storing, shape);
        const loads = await callSite(device, loading, shape);
        const reads = await callSite(device, readCeilingKernel, shape);
        for (const { set } of [stores, loads]) set.win(rows);
        for (const { set } of [stores, loads, reads]) set.vectors(capacity);
        for (const { set } of [loads, reads]) set.sink(sink.address);
        reads.set.from(rows.own.address);
        const looks: Promise<Uint8Array>[] = [];
        for (let round = 0; round < 2; round++) {
          stores.launch(stream);
          meet(stream, 2, round);
          looks.push(stream.copyOut(rows.own.address, bytes));
          loads.launch(stream);
          reads.launch(stream);
          meet(stream, 1, 0);
        }
        await stream.synchronize();
        for (const bytes of await Promise.all(looks)) requireRows(bytes, rank);
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
      let named: number | null = null;
      const world = World.local({ ranks, device: 'sim', sim: machine }, async (world) => {
        const { meet, missed, stream } = await prepare(world);
        if (world.rank > 0) {
          machine.kill(world.rank);
          await stream.synchronize();
        }
        meet(stream, 1, 0);
        named = await missed(stream);
      });
      await exceptKilled(world);
      if (named !== 1 && named !== 2)
        throw new WrongResult(`the barrier missed ${named} instead of a lost rank`);
    },
  };
}

async function prepare(world: World) {
  const barrier = await createFlagBarrier(world, barrierKernel, 1000);
  return { ...barrier, stream: world.device.createStream() };
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
