/** Runs something in a turn of the event loop of its own, behind what hosts already wait for. */
export const soon: (run: () => void) => void =
  globalThis.setImmediate === undefined ? overChannel() : (run) => setImmediate(run);

/** Browsers have no setImmediate, and let timers that set each other wait for milliseconds. */
function overChannel(): (run: () => void) => void {
  const { port1, port2 } = new MessageChannel();
  const waiting: (() => void)[] = [];
  port1.addEventListener('message', () => waiting.shift()?.());
  port1.start();
  return (run) => {
    waiting.push(run);
    port2.postMessage(null);
  };
}
