/** Hosts that meet pass on what they have awaited: what one enqueues afterwards is behind what others had seen done. */
import { expect, it } from 'vitest';
import { formatFinding, SimMachine } from '../../../src/gpu/sim/index.js';
import { field, kernel, layout, peers, pointer } from '../../../src/lang/index.js';
import { World } from '../../../src/net/world/index.js';

const box = layout('box', { value: field('u32', 1) });
const put = kernel({ name: 'put', params: { win: peers(box) } }, (g, { win }) => {
  g.store(win.at(1).value.at(0), 7);
}).ir();
const take = kernel({ name: 'take', params: { win: peers(box), to: pointer('u32') } }, (g, { win, to }) => {
  g.store(to, g.load(win.at(1).value.at(0)));
}).ir();

/** Rank 0 writes into rank 1's memory, which rank 1 reads once the hosts have met. */
async function findings(awaits: boolean): Promise<string[]> {
  const machine = SimMachine.create({ ranks: 2, mode: 'checked' });
  await World.local({ ranks: 2, device: 'sim', sim: machine }, async (world) => {
    const { device, rank } = world;
    const stream = device.createStream();
    const window = await world.createWindow(box.bytes, 'box');
    const launcher = (await device.load(rank === 0 ? put : take)).launcher({ grid: 1, block: 1, rank });
    launcher.setWindow('win', window);
    if (rank === 1) launcher.set('to', device.allocate(4, 'taken').address);
    else launcher.launch(stream);
    if (awaits) await stream.synchronize();
    await world.barrier();
    if (rank === 1) launcher.launch(stream);
    await stream.synchronize();
    await world.barrier();
  });
  return machine.findings.map(formatFinding);
}

it('hosts that meet order what each of them has awaited', async () => {
  expect(await findings(true)).toEqual([]);
});

it('hosts that meet do not order what nobody has awaited', async () => {
  expect(await findings(false)).toEqual([expect.stringMatching(/^Data race on box, value\[0\]/)]);
});
