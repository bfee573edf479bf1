/**
 * Several nodes, and no GPU: every rank writes a line to the rank of its own place in each other node, over libfabric, and
 * what came it hands on within its node, through windows. In the end every rank has a line of every rank.
 *
 *   npx heddle run -n 4 --nodes 2 --device sim examples/two-nodes.ts
 */
import { World } from 'heddle';
import { type ProviderName, TransferEngine } from 'heddle/fabric';
import { connectFabric } from 'heddle/world';

const lineBytes = 64;
const provider = (process.argv[2] ?? 'shm') as ProviderName;
const devices = provider === 'shm' ? [] : ['lo'];

await World.join({}, async (world) => {
  const { rank, ranks, circle, device, topology } = world;
  const { members, localRank } = topology;

  // Over the network: place `rank` of every rank's region is that of the line that `rank` writes.
  const engine = await TransferEngine.open({ provider, devices });
  const fabric = await connectFabric(circle, engine);
  const region = engine.allocate(ranks * lineBytes);
  const { remotes } = await fabric.share(region);
  const lines = new Uint8Array(region.buffer);
  new TextEncoder().encodeInto(`rank ${rank} of process ${process.pid}`, lines.subarray(rank * lineBytes));
  const rails = members.map((node) => node[localRank]!);
  const others = rails.filter((other) => other !== rank);
  const sent = engine.counter();
  for (const other of others) {
    engine.write({
      source: region,
      sourceOffset: rank * lineBytes,
      target: remotes[other]!,
      targetOffset: rank * lineBytes,
      bytes: lineBytes,
      immediate: 1,
      counter: sent,
    });
  }
  await engine.immediate(1).wait(others.length, { from: others.map((other) => fabric.peers[other]!) });
  await sent.wait();

  // Within the node: into the windows of all its ranks.
  const window = await world.createWindow(ranks * lineBytes, 'lines');
  const stream = device.createStream();
  for (const base of window.bases) {
    for (const from of rails) {
      const at = from * lineBytes;
      stream.copyIn(base + at, lines.subarray(at, at + lineBytes));
    }
  }
  await stream.synchronize();
  await world.barrier();

  const all = new TextDecoder().decode(await stream.copyOut(window.own.address, ranks * lineBytes));
  const heard = all.match(/rank \d+/g) ?? [];
  console.log(`rank ${rank} of node ${topology.node} has lines of ${heard.join(', ')}`);
  await world.barrier();
  window.close();
  fabric.close();
  await engine.close();
});
