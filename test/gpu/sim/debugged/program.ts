/** Runs a kernel beside a debugger, which is a thread here: it prints where the kernel stops. */
import { readFileSync, writeSync } from 'node:fs';
import inspector from 'node:inspector';
import { Worker } from 'node:worker_threads';
import { kernel, pointer } from '../../../../src/lang/index.js';
import { download, launch, machineOf, type Rank } from '../harness.js';

const stops = kernel({ name: 'stops', params: { out: pointer('u32') } }, (g, { out }) => {
  const mine = g.threadIdx.x * 3;
  g.barrier();
  g.store(out.at(g.threadIdx.x), mine); // a breakpoint
  if (g.threadIdx.x === 1) {
    // biome-ignore lint/suspicious/noDebugger: that is what is tested
    debugger;
  }
});

/** What VS Code and Chrome do: stop at every script with a map before it runs, and set the breakpoints that stand in its sources. */
const client = `
const { Session } = require('node:inspector');
const { SourceMap } = require('node:module');
const { parentPort, workerData } = require('node:worker_threads');
const session = new Session();
session.connectToMainThread();
parentPort.on('message', () => {}); // stays alive
const scripts = new Map();
const mapOf = (id) => new SourceMap(JSON.parse(Buffer.from(scripts.get(id).split(',')[1], 'base64')));
const resume = () => session.post('Debugger.resume');
session.on('Debugger.scriptParsed', ({ params: { scriptId, url, sourceMapURL } }) => {
  if (url.startsWith('heddle-kernel/')) scripts.set(scriptId, sourceMapURL);
});
session.on('Debugger.paused', ({ params: { reason, data, hitBreakpoints, callFrames } }) => {
  if (reason === 'instrumentation') {
    const { scriptId } = data;
    if (!scripts.has(scriptId)) return resume();
    const map = mapOf(scriptId);
    const lines = Array.from({ length: 200 }, (_, line) => line);
    const lineNumber = lines.find((line) => map.findEntry(line, 1000).originalLine === workerData.line - 1);
    return session.post('Debugger.setBreakpoint', { location: { scriptId, lineNumber } }, resume);
  }
  const { scriptId, lineNumber, columnNumber } = callFrames[0].location;
  const { originalSource, originalLine } = mapOf(scriptId).findEntry(lineNumber, columnNumber);
  const why = hitBreakpoints.length > 0 ? 'breakpoint' : 'debugger';
  parentPort.postMessage({ why, source: originalSource, line: originalLine + 1 });
  resume();
});
session.post('Debugger.enable', () => {
  const instrumentation = 'beforeScriptWithSourceMapExecution';
  session.post('Debugger.setInstrumentationBreakpoint', { instrumentation }, () => parentPort.postMessage('ready'));
});
`;

inspector.open(0, '127.0.0.1', false);
const lines = readFileSync(process.argv[2]!, 'utf8').split('\n');
const worker = new Worker(client, {
  eval: true,
  workerData: { line: 1 + lines.findIndex((line) => line.endsWith('// a breakpoint')) },
});
const said: unknown[] = [];
await new Promise<void>((ready) => {
  worker.on('message', (what) => {
    if (what === 'ready') ready();
    else said.push(what);
  });
});
const { ranks } = machineOf({ ranks: 1, mode: 'checked' });
const [rank] = ranks as [Rank];
const out = rank.device.allocate(8, 'out');
await launch(rank, stops.ir(), { block: 2 }, { out });
const words = [...new Uint32Array(await download(rank, out))];
await worker.terminate();
writeSync(1, JSON.stringify({ said, words }));
process.exit(0);
