/**
 * heddle/fabric between two processes, without a GPU: each writes a letter into the other's memory, over libfabric.
 *
 *   npx heddle run -n 2 examples/fabric.ts
 */
import { type ProviderName, TransferEngine } from 'heddle/fabric';
import { connectFabric, ProcessCircle } from 'heddle/world';

const letterBytes = 64;
const provider = (process.argv[2] ?? 'shm') as ProviderName;

// A rendezvous tells the two of each other; engines then talk by themselves.
const circle = await ProcessCircle.join();
const engine = await TransferEngine.open({ provider, devices: provider === 'shm' ? [] : ['lo'] });
const fabric = await connectFabric(circle, engine);
const other = 1 - circle.rank;

// The first half is what this rank writes, the second what it gets.
const region = engine.allocate(2 * letterBytes);
const { remotes } = await fabric.share(region);
const bytes = new Uint8Array(region.buffer);
new TextEncoder().encodeInto(`greetings from rank ${circle.rank}`, bytes.subarray(0, letterBytes));

const sent = engine.counter();
engine.write({
  source: region,
  sourceOffset: 0,
  target: remotes[other]!,
  targetOffset: letterBytes,
  bytes: letterBytes,
  immediate: 1,
  counter: sent,
});
// Nothing is ordered on a network: a write's own immediate says that its bytes are there.
await engine.immediate(1).wait(1, { from: [fabric.peers[other]!] });
await sent.wait();

const letter = new TextDecoder().decode(bytes.subarray(letterBytes)).replaceAll('\0', '');
console.log(`rank ${circle.rank} got ${letter}`);
await circle.barrier(); // the other may still be waiting for what it sent
fabric.close();
await engine.close();
await circle.dispose();
